"""Kafka's record batches and Pulsar's entries, each as the other (`docs/reference/interop.md` is the table)."""

from magnetar.wire.convert.batches import (
    assembled_to_kafka,
    covering_batch,
    kafka_to_pulsar,
    pulsar_to_kafka,
)
from magnetar.wire.convert.engine import load

__all__ = ["assembled_to_kafka", "covering_batch", "kafka_to_pulsar", "load", "pulsar_to_kafka"]
