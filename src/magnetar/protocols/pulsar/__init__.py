"""Pulsar's binary protocol: commands to calls of the broker and back, one file per family of commands."""
