"""Magnetar: one log, spoken to by unchanged Apache Kafka and Apache Pulsar clients.

The layers and what each may import are described in ``docs/internals/architecture.md``.
"""

__version__ = "0.1.0"
