"""Kafka's messages as tables of our own, one module per family: what the generator reads."""

from typing import Final

from magnetar.wire.kafka.schema import (
    access,
    cluster,
    configs,
    consumer_groups,
    fetch,
    group_offsets,
    groups,
    log_dirs,
    offsets,
    produce,
    share_groups,
    streams_groups,
    telemetry,
    topics,
    transactions,
)
from magnetar.wire.kafka.schema.model import Api, Data

_FAMILIES: Final = (
    access,
    cluster,
    configs,
    consumer_groups,
    fetch,
    group_offsets,
    groups,
    log_dirs,
    offsets,
    produce,
    share_groups,
    streams_groups,
    telemetry,
    topics,
    transactions,
)

APIS: Final = tuple(
    sorted(
        (table for family in _FAMILIES for table in vars(family).values() if isinstance(table, Api)),
        key=lambda api: api.key,
    )
)
"""Every request and its response, by API key."""

DATA: Final = tuple(
    table for family in _FAMILIES for table in vars(family).values() if isinstance(table, Data)
)
"""Every message that travels inside another one's bytes."""
