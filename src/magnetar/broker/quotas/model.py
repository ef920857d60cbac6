"""Whose use a quota limits, and which use.  As in Kafka (KIP-13, KIP-546)."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias


class Default(Enum):
    """All names without a limit of their own."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT
# None: whatever the name is.
Name: TypeAlias = str | Literal[Default.DEFAULT] | None


class Entity(NamedTuple):
    """The clients of a limit: by the user as whom they log in and the client id that they send, or by the IP address
    from which they connect.
    """

    user: Name
    client_id: Name
    address: Name = None


class Limit(Enum):
    """What can be limited; its value is Kafka's name for it.

    Bytes a second, partitions made and deleted a second, a share of the server's time in percent, and connections
    a second.
    """

    PRODUCED = "producer_byte_rate"
    FETCHED = "consumer_byte_rate"
    MUTATED = "controller_mutation_rate"
    WORKED = "request_percentage"
    CONNECTED = "connection_creation_rate"


class Rate(NamedTuple):
    """How much may pass in a period; 0 means no limit."""

    messages: int
    bytes: int
    period_s: int = 1


class SubscribeRate(NamedTuple):
    """How often one consumer may subscribe in a period."""

    times: int
    period_s: int


GroupRates: TypeAlias = Mapping[str, int]  # of a resource group, by Pulsar's names of them
Limits: TypeAlias = dict[Limit, float]
