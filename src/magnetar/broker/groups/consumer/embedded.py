"""What members of the classic protocol send each other inside JoinGroup and SyncGroup.

The server reads it if it assigns partitions to such members: their topics, their partitions, their racks.  Topics are
full names here, as everywhere in this room.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from magnetar.base.errors import WireError
from magnetar.wire.kafka.messages import consumer_protocol_assignment, consumer_protocol_subscription
from magnetar.wire.kafka.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from magnetar.wire.kafka.runtime import Buffer

EMBEDDED_BYTES_MAX: Final = 256 << 10  # read in one step of the loop, in 5 ms
_VERSION: Final = struct.Struct(">h")
_SUBSCRIPTION_VERSION_MAX: Final = consumer_protocol_subscription.VERSIONS[1]
_ASSIGNMENT_VERSION_MAX: Final = consumer_protocol_assignment.VERSIONS[1]


class Malformed(ValueError):
    """The bytes are not what a consumer of the classic protocol sends."""


class Embedded(NamedTuple):
    """`names` are as the client writes them; `owned` is by full name; `version` is that of the client's bytes."""

    version: int
    names: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def subscription(metadata: bytes, full_name: Callable[[str], str]) -> Embedded:
    """The metadata that a member sends about itself.

    Raises:
        Malformed
    """
    version = _version(metadata)
    try:
        found = consumer_protocol_subscription.decode(
            min(version, _SUBSCRIPTION_VERSION_MAX), memoryview(metadata), _VERSION.size
        )
    except WireError as error:
        raise Malformed(str(error)) from None
    owned: dict[str, frozenset[int]] = {}
    for one in found.owned_partitions:
        topic = full_name(one.topic)
        owned[topic] = owned.get(topic, frozenset()) | frozenset(one.partitions)
    return Embedded(version, tuple(found.topics), owned, found.rack_id or None)


def assigned(assignment: bytes, full_name: Callable[[str], str]) -> dict[str, set[int]]:
    """The partitions that a leader has assigned to a member; empty if the bytes are not a consumer's assignment."""
    try:
        version = _version(assignment)
        found = consumer_protocol_assignment.decode(
            min(version, _ASSIGNMENT_VERSION_MAX), memoryview(assignment), _VERSION.size
        )
    except (Malformed, WireError):
        return {}
    partitions: dict[str, set[int]] = {}
    for one in found.assigned_partitions:
        partitions.setdefault(full_name(one.topic), set()).update(one.partitions)
    return partitions


def assignment(version: int, partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """The bytes by which a leader would assign these partitions to a member of that version; names are those that
    clients see.
    """
    version = min(version, _ASSIGNMENT_VERSION_MAX)
    rows = [TopicPartition(name, sorted(indexes)) for name, indexes in partitions]
    out: list[Buffer] = [_VERSION.pack(version)]
    consumer_protocol_assignment.encode(version, ConsumerProtocolAssignment(rows), out)
    return b"".join(out)


def _version(embedded: bytes) -> int:
    if not _VERSION.size <= len(embedded) <= EMBEDDED_BYTES_MAX:
        raise Malformed(f"{len(embedded)} bytes")
    (version,) = _VERSION.unpack_from(embedded)
    if version < 0:
        raise Malformed(f"version {version}")
    return int(version)
