"""Replicators: the port of providers, which write to one type of targets, and what a user configures for them."""
