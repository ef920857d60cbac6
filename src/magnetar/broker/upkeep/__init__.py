"""What the broker does unasked: retention, expiry, and looking after its own health."""
