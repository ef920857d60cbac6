"""The kind `source`: files, or another of Spark's sources -> a topic of JSON values with a schema."""
