"""What a producer says of itself: values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class AccessMode(IntEnum):
    """Numbered as on the wire."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


@dataclass(frozen=True, slots=True)
class ProducerOrigin:
    """Where a producer is, as statistics show it: its client's address and version, its id there, what it says of
    itself.
    """

    address: str
    client_version: str
    producer_id: int
    properties: Mapping[str, str]
