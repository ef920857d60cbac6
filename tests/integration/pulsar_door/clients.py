"""Pulsar clients for tests."""

import logging

import pulsar


def new_client(url: str) -> pulsar.Client:
    """A client whose own log goes nowhere: the server's is what these tests read."""
    silent = logging.getLogger("pulsar-client")
    silent.setLevel(logging.CRITICAL)
    return pulsar.Client(url, operation_timeout_seconds=10, logger=silent)
