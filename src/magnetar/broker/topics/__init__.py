"""Topics: their names, creation, partitions and deletion."""
