"""Pulsar's binary protocol: translation between its commands and the use cases, one file per family of commands."""
