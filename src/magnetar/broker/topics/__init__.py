"""Topics: their names, lives, partitions and deletion."""
