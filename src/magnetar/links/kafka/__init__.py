"""A Kafka cluster as a source: its records keep their offsets."""
