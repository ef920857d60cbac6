"""Who pushes metrics, and what it is asked for (KIP-714)."""

from typing import Final, NamedTuple

TELEMETRY_BYTES_MAX: Final = 1 << 20  # of one push, also without its compression; Kafka's telemetry.max.bytes
NO_INSTANCE: Final = bytes(16)  # what a client says that has no id yet
# By the numbers that record batches have for them, the one first that clients should take.
COMPRESSIONS: Final = (4, 3, 1, 2)
NOT_COMPRESSED: Final = 0


class TelemetryClient(NamedTuple):
    """What subscriptions go by; each is what the client says of itself, but for its address."""

    client_id: str
    software_name: str
    software_version: str
    address: str


class Wanted(NamedTuple):
    """What subscriptions ask of a client: beginnings of metrics' names, none for no metrics, and how often."""

    metrics: tuple[str, ...]
    interval_ms: int


class Subscribed(NamedTuple):
    """What the server answers a client that asks what to push."""

    instance_id: bytes
    subscription_id: int
    wanted: Wanted


class Push(NamedTuple):
    """What a client sends; `is_last` where it ends."""

    instance_id: bytes
    subscription_id: int
    is_last: bool
    compression: int
    metrics: memoryview
