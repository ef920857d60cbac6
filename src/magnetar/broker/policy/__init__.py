"""The configuration of topics and namespaces."""
