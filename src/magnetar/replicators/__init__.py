"""Replicators: what a provider of a type of targets is, and what a user configures for it."""
