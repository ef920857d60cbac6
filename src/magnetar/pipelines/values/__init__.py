"""Decodes the values of a topic to columns of its schema, without Spark and without the broker."""
