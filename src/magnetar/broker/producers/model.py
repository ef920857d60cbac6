"""What a producer says about itself: values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


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


class ProducerSpec(NamedTuple):
    """What a producer says about itself.

    `is_user_named`: a user has chosen its name, and not the broker.  `topic_epoch` is what its client believes the
    topic's epoch to be, None if it does not know.
    """

    name: str
    epoch: int = 0
    is_user_named: bool = False
    mode: AccessMode = AccessMode.SHARED
    topic_epoch: int | None = None
    origin: ProducerOrigin | None = None
