"""Copies of a Kafka cluster's topics: batches of records at their offsets, and positions of groups.

At its end a copy gets the source's end, too: then both have the same next offset, also if the last offsets have no
records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from magnetar.client.links import GroupPosition, LinksClient
from magnetar.links.kafka.mask import Mask, masked
from magnetar.links.kafka.record import Record, batches_of
from magnetar.links.kafka.source import KafkaSource
from magnetar.links.parts import in_parts
from magnetar.links.port import Copy, Found, FoundCopy, Place, SourceTopic

BODY_BYTES: Final = 4 << 20  # of one request, more if a single batch is larger
POSITIONS_AT_ONCE: Final = 5000
_HAS_MEMBERS: Final = "UNKNOWN_MEMBER_ID"  # the group has members here, and so a position of its own


class KafkaCopies:
    """See `port.py`.  `mask` makes of each record what is copied."""

    are_held_first = False

    def __init__(self, source: KafkaSource, links: LinksClient, address: str, mask: Mask | None) -> None:
        self._source = source
        self._links = links
        self._address = address
        self._mask = mask

    def declare(self, topic: SourceTopic) -> Found:
        declared = self._links.declare(
            topic.name, self._address, topic.origin, topic.partition_count, topic.configs
        )
        copies = [FoundCopy(one.partition, one.end, one.new) for one in declared.partitions]
        return Found(copies, declared.left_out)

    def send(self, place: Place, copy: Copy, items: Sequence[Record], source_end: int) -> int:
        chosen: Iterable[Record] = items
        if self._mask is not None:
            chosen = masked(self._mask, items)
        for batches in in_parts(batches_of(chosen), len, BODY_BYTES):
            self._append(place, copy, b"".join(batches), 0)
        end = max(source_end, items[-1].offset + 1 if items else 0)
        if end > copy.end or (source_end >= 0 and copy.begin > copy.end):
            self._append(place, copy, b"", end)
        return len(items)

    def _append(self, place: Place, copy: Copy, body: bytes, end: int) -> None:
        copy.end = self._links.append(*place, body, after=copy.end, begin=copy.begin, end=end)
        copy.begin = 0

    def positions(self, copies: Mapping[Place, Copy]) -> Iterator[tuple[str, Sequence[GroupPosition]]]:
        for topic, positions in self._source.group_positions().items():
            mine = [one for one in positions if (topic, one.partition) in copies]
            for start in range(0, len(mine), POSITIONS_AT_ONCE):
                yield topic, mine[start : start + POSITIONS_AT_ONCE]

    def set_positions(self, topic: str, positions: Sequence[GroupPosition]) -> str:
        trouble = ""
        errors = self._links.set_positions(topic, positions)
        for one, code in zip(positions, errors, strict=True):
            if code is not None and code != _HAS_MEMBERS:
                trouble = f"group {one.group}: its position cannot be copied: {code}"
        return trouble
