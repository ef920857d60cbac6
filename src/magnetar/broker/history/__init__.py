"""What a topic has stored, for readers that go past the broker."""
