"""Copies of topics of a Pulsar cluster: entries with their positions, schemas, and subscriptions.

A topic's schemas are sent before the first entry that names one of them, so that readers of the copy find it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from magnetar.client.links import LinksClient, Position, SubscriptionPosition
from magnetar.links.parts import in_parts
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
        self._schema_counts: dict[str, int] = {}  # versions that the copies have, by topic
        self._ends: dict[Place, Position] = {}  # where the copies ended when positions were asked for
        self._sent: dict[tuple[str, int, str], SubscriptionPosition] = {}  # what need not be sent again

    def declare(self, topic: SourceTopic) -> Found:
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
        for part in in_parts(items, lambda one: len(one.data), BODY_BYTES):
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
            found = self._admin.subscriptions(self._source.name_of((topic, partition)), partition)
            new = [one for one in found if self._sent.get((topic, partition, one.subscription)) != one]
            for part in in_parts(new, lambda one: 1 + len(one.acknowledged), PARTS_AT_ONCE):
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
        known = self._schema_counts
        missing = self._source.schemas(topic, known[topic])
        for part in in_parts(missing, lambda one: 0 if one is None else len(one.data), SCHEMAS_BYTES):
            known[topic] = self._links.add_schemas(topic, known[topic], part)
