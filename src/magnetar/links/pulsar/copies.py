"""Copies of topics of a cluster of Pulsar's: entries with their positions, schemas, and subscriptions.

A topic's schemas are sent before the first entry that names one of them, so that readers of the copy find it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from magnetar.base.names import PARTITION_SEPARATOR
from magnetar.client.links import LinksClient, Position, SchemaRow, SubscriptionPosition
from magnetar.links.port import Copy, Found, FoundCopy, Place, SourceTopic
from magnetar.links.pulsar.admin import PulsarAdmin, is_behind
from magnetar.links.pulsar.entries import SourceEntry
from magnetar.links.pulsar.positions import number_of, position_of
from magnetar.links.pulsar.source import PulsarSource
from magnetar.wire.pulsar.linked import framed

BODY_BYTES: Final = 4 << 20  # of one request, more if a single entry is larger
SCHEMAS_BYTES: Final = 600 << 10  # of one request, more if a single one is larger
PARTS_AT_ONCE: Final = 10_000  # subscriptions, and ranges that they have acknowledged, of one request
_BUSY: Final = "SUBSCRIPTION_BUSY"  # it is in use here, and so has a position of its own


class PulsarCopies:
    """See `port.py`.  Without `admin` no subscriptions are copied."""

    are_held_first = True

    def __init__(
        self, source: PulsarSource, admin: PulsarAdmin | None, links: LinksClient, address: str
    ) -> None:
        self._source = source
        self._admin = admin
        self._links = links
        self._address = address
        self._partitioned: dict[str, bool] = {}
        self._schema_counts: dict[str, int] = {}  # versions that the copies have, by topic
        self._ends: dict[Place, Position] = {}  # where the copies ended when positions were asked for
        self._sent: dict[tuple[str, int, str], SubscriptionPosition] = {}  # what need not be sent again

    def declare(self, topic: SourceTopic) -> Found:
        self._partitioned[topic.name] = topic.is_partitioned
        declared = self._links.declare(
            topic.name,
            self._address,
            topic.origin,
            topic.partition_count,
            topic.configs,
            is_partitioned=topic.is_partitioned,
        )
        self._schema_counts[topic.name] = declared.schema_count
        self._send_schemas(topic.name)
        for one in declared.partitions:
            if one.position is None:  # perhaps a new topic of that name, whose subscriptions have got nothing
                self._sent = {
                    key: sent for key, sent in self._sent.items() if key[:2] != (topic.name, one.partition)
                }
        copies = [
            FoundCopy(
                one.partition,
                0 if one.position is None else number_of(one.position) + 1,
                one.position is None,
            )
            for one in declared.partitions
        ]
        return Found(copies, declared.left_out)

    def send(self, place: Place, copy: Copy, items: Sequence[SourceEntry], source_end: int) -> int:
        topic, partition = place
        if max((one.schema_version for one in items), default=-1) >= self._schema_counts[topic]:
            self._send_schemas(topic)
        for part in _parts(items):
            body = b"".join(framed(*one.position, one.data) for one in part)
            after = position_of(copy.end - 1) if copy.end > 0 else None
            self._links.append_entries(topic, partition, body, after=after)
            copy.end = part[-1].offset + 1
        return sum(one.message_count for one in items)

    def positions(self, copies: Mapping[Place, Copy]) -> Iterator[tuple[str, Sequence[SubscriptionPosition]]]:
        if self._admin is None:
            return
        for (topic, partition), copy in copies.items():
            self._ends[topic, partition] = position_of(copy.end - 1)
            name = f"{topic}{PARTITION_SEPARATOR}{partition}" if self._partitioned[topic] else topic
            part: list[SubscriptionPosition] = []
            size = 0
            for one in self._admin.subscriptions(name, partition):
                if self._sent.get((topic, partition, one.subscription)) == one:
                    continue
                if part and size + len(one.acknowledged) >= PARTS_AT_ONCE:
                    yield topic, part
                    part, size = [], 0
                part.append(one)
                size += 1 + len(one.acknowledged)
            if part:
                yield topic, part

    def set_positions(self, topic: str, positions: Sequence[SubscriptionPosition]) -> str:
        trouble = ""
        errors = self._links.set_subscriptions(topic, positions)
        for one, code in zip(positions, errors, strict=True):
            if code is None and is_behind(one, self._ends[topic, one.partition]):
                self._sent[topic, one.partition, one.subscription] = one
            elif code not in (None, _BUSY):
                trouble = f"subscription {one.subscription}: its position cannot be copied: {code}"
        return trouble

    def _send_schemas(self, topic: str) -> None:
        """Send the versions that the copy does not have."""
        part: list[SchemaRow | None] = []
        size = 0
        for one in self._source.schemas(topic, self._schema_counts[topic]):
            if part and one is not None and size + len(one.data) > SCHEMAS_BYTES:
                self._add_schemas(topic, part)
                part, size = [], 0
            part.append(one)
            size += 0 if one is None else len(one.data)
        if part:
            self._add_schemas(topic, part)

    def _add_schemas(self, topic: str, schemas: Sequence[SchemaRow | None]) -> None:
        self._schema_counts[topic] = self._links.add_schemas(topic, self._schema_counts[topic], schemas)


def _parts(items: Sequence[SourceEntry]) -> Iterator[list[SourceEntry]]:
    """The entries of each request."""
    part: list[SourceEntry] = []
    size = 0
    for one in items:
        if part and size + len(one.data) > BODY_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += len(one.data)
    if part:
        yield part
