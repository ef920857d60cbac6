"""What the broker does by itself: retention, expiry, and checks of its own health."""
