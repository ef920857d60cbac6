"""What a topic has stored, for readers that read files without the broker."""
