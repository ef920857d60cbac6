"""Kafka's messages as tables of our own, one module per family: what the generator reads."""

from typing import Final

from magnetar.wire.kafka.schema.cluster import API_VERSIONS, FIND_COORDINATOR, METADATA
from magnetar.wire.kafka.schema.fetch import FETCH
from magnetar.wire.kafka.schema.model import Api, Data
from magnetar.wire.kafka.schema.offsets import LIST_OFFSETS
from magnetar.wire.kafka.schema.produce import PRODUCE
from magnetar.wire.kafka.schema.transactions import INIT_PRODUCER_ID

APIS: Final[tuple[Api, ...]] = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    FIND_COORDINATOR,
    API_VERSIONS,
    INIT_PRODUCER_ID,
)

DATA: Final[tuple[Data, ...]] = ()
