"""The schema registry: which definitions a topic has had, and which it takes next."""
