"""Clients that push metrics, and what the server wants of them (KIP-714)."""

from typing import Final, NamedTuple

from magnetar.broker.security.model import Principal

TELEMETRY_BYTES_MAX: Final = 1 << 20  # of one push, also without its compression; Kafka's telemetry.max.bytes
NO_INSTANCE: Final = bytes(16)  # what a client says that has no id yet
# By the numbers that record batches have for them, the one first that clients should take.
COMPRESSIONS: Final = (4, 3, 1, 2)
NOT_COMPRESSED: Final = 0


class TelemetryClient(NamedTuple):
    """What subscriptions match: the client says all of it about itself, except its address.

    `owner`, at which no subscription looks, is the principal as which it has logged in; None if it has not.
    """

    client_id: str
    software_name: str
    software_version: str
    address: str
    owner: Principal | None = None


class Wanted(NamedTuple):
    """What subscriptions want of a client: prefixes of metrics' names (none: no metrics), and how often."""

    metrics: tuple[str, ...]
    interval_ms: int


class Subscribed(NamedTuple):
    """What the server answers a client that asks what to push."""

    instance_id: bytes
    subscription_id: int
    wanted: Wanted


class Push(NamedTuple):
    """What a client sends; `is_last` if the client is about to end."""

    instance_id: bytes
    subscription_id: int
    is_last: bool
    compression: int
    metrics: memoryview
