"""Pulsar subscriptions: who gets which messages of a partition, and how far each subscription has got."""
