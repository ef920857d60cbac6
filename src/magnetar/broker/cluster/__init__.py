"""Which node serves what."""
