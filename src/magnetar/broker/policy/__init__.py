"""What is configured for topics and namespaces."""
