"""Pulsar subscriptions: which consumer gets which messages of a partition, and how far each subscription has got."""
