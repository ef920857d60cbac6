"""Pulsar's binary protocol: frames, commands and entries, without I/O.

Spec: Pulsar documentation, "Binary protocol".
"""
