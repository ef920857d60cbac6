"""What `tools/generate_kafka.py` is made of."""
