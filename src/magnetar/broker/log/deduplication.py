"""Broker-side deduplication: what Pulsar's producers have already sent to one partition.

It is off unless a policy turns it on.  A producer keeps its name when it reconnects, and over restarts of either
side.  For each name the partition knows the highest sequence id that the producer has published.  An entry with that
sequence id or a lower one is a duplicate: it is acknowledged without a position of its own, once everything before it
is durable.

* A batch has the sequence id of its last message.  After a restart a producer may batch the same messages differently,
  so that a batch begins with known messages and ends with new ones.  Such a batch is stored.  (Pulsar drops it, and
  loses its new messages.)
* The chunks of a message share one sequence id, which counts only once the last chunk has come.  So no chunk is taken
  for a duplicate of another one, but all chunks of a message that is sent again are duplicates.
* A producer is forgotten some hours after it was last connected.  If there are too many, those that were seen longest
  ago are forgotten first.
* The last entry of a producer counts, also if an earlier one has a higher sequence id: while deduplication was off, a
  producer may have begun again at 0.

As for Kafka's idempotent producers, the state is a snapshot plus the metadata of the entries after it.  A snapshot
covers everything that was appended, and is stored once that is durable.

If a policy turns deduplication on for a log that has entries, the server reads that log first
(`deduplication_reading.py`), and producers wait for it.  A snapshot of this time says that nothing is known, so a
server that was killed meanwhile reads the log again.

Snapshot, big-endian::

    0  u32  producer_count    0xFFFFFFFF: not known, and nothing follows
                              per producer: u16 size, name in UTF-8, i64 sequence_id, i64 last_offset (of the entry),
                                            i64 seen_ms (when it last published, or was connected)
"""

from collections import deque
from collections.abc import Collection
from heapq import nsmallest
from struct import Struct
from struct import error as StructError
from typing import Final

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.log.errors import ProducersNotKnown
from magnetar.wire.pulsar.entry import EntryView

PRODUCERS_MAX: Final = 10_000  # Pulsar's brokerDeduplicationMaxNumberOfProducers
INACTIVITY_MS: Final = 6 * 3600 * 1000  # Pulsar's brokerDeduplicationProducerInactivityTimeoutMinutes
NONE_PUBLISHED: Final = -1
NOT_KNOWN: Final = b"\xff" * 4  # in place of a snapshot
_COUNT: Final = Struct(">I")
_SIZE: Final = Struct(">H")
_STATE: Final = Struct(">qqq")
_NAME_BYTES_MAX: Final = 0xFFFF
_LONG_MAX: Final = (1 << 63) - 1


class _Producer:
    """`published`: pairs (sequence id, last offset), the newest last; all except the first may still fail."""

    __slots__ = ("published", "seen_ms")

    def __init__(self) -> None:
        self.published: deque[tuple[int, int]] = deque()
        self.seen_ms = 0


class Deduplication:
    """See the module's text."""

    __slots__ = ("_producers", "unread_end")

    def __init__(self, unread_end: int = 0) -> None:
        """`unread_end`: the log below this offset must be read before it knows all producers; 0: it knows them."""
        self.unread_end = unread_end
        self._producers: dict[str, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def is_duplicate(self, view: EntryView) -> bool:
        """Whether all messages of `view` were published before.

        Raises:
            ProducersNotKnown
        """
        self._check_known()
        known = self._producers.get(view.producer_name)
        return known is not None and view.highest_sequence_id <= known.published[-1][0]

    def add(self, view: EntryView, last_offset: int, durable_end: int, now_ms: int) -> None:
        """Record an appended entry; entries below `durable_end` cannot fail any more."""
        if view.highest_sequence_id > _LONG_MAX or (view.is_chunk and not _is_last_chunk(view)):
            return
        known = self._producers.get(view.producer_name)
        if known is None:
            if len(view.producer_name.encode()) > _NAME_BYTES_MAX:
                return
            known = self._producers[view.producer_name] = _Producer()
        published = known.published
        while len(published) > 1 and published[1][1] < durable_end:
            published.popleft()
        published.append((view.highest_sequence_id, last_offset))
        known.seen_ms = now_ms

    def last_sequence_id(self, producer_name: str, durable_end: int) -> int:
        """The producer's last durable sequence id; `NONE_PUBLISHED` if the producer is not known.

        Raises:
            ProducersNotKnown
        """
        self._check_known()
        known = self._producers.get(producer_name)
        newest_first = reversed(known.published) if known else ()
        return next((one for one, offset in newest_first if offset < durable_end), NONE_PUBLISHED)

    def _check_known(self) -> None:
        if self.unread_end:
            raise ProducersNotKnown("what producers have sent is being read from the topic's log: try again")

    def learn(self, before: "Deduplication") -> None:
        """Add the producers of the log below `unread_end`; now it knows all of them."""
        for name, known in before._producers.items():
            self._producers.setdefault(name, known)
        self.unread_end = 0

    def expire(self, now_ms: int, connected: Collection[str]) -> None:
        """Forget producers that were not seen for `INACTIVITY_MS`; those in `connected` count as seen now."""
        for name, known in list(self._producers.items()):
            if name in connected:
                known.seen_ms = now_ms
            elif known.seen_ms < now_ms - INACTIVITY_MS:
                del self._producers[name]

    def forget_from(self, end_offset: int) -> None:
        """Forget entries at or above `end_offset`, whose append failed: producers may send them again."""
        for name, known in list(self._producers.items()):
            while known.published and known.published[-1][1] >= end_offset:
                known.published.pop()
            if not known.published:
                del self._producers[name]

    def forget_surplus(self, producers_max: int, durable_end: int) -> None:
        """Keep the `producers_max` producers that were seen last, and those whose last entry may still fail."""
        surplus = len(self._producers) - producers_max
        if surplus > 0:
            durable = [one for one in self._producers.items() if one[1].published[-1][1] < durable_end]
            for name, _ in nsmallest(surplus, durable, key=_last_seen):
                del self._producers[name]

    def encode(self, bytes_max: int) -> bytes:
        """The snapshot of everything appended; `NOT_KNOWN` if the log has to be read for that first.  If `bytes_max` is
        too small for all producers, it has those that were seen last.
        """
        if self.unread_end:
            return NOT_KNOWN
        parts: list[bytes] = []
        left = bytes_max - _COUNT.size
        for name, known in sorted(self._producers.items(), key=_last_seen, reverse=True):
            text = name.encode()
            left -= _SIZE.size + len(text) + _STATE.size
            if left < 0:
                break
            sequence_id, last_offset = known.published[-1]
            parts += (_SIZE.pack(len(text)), text, _STATE.pack(sequence_id, last_offset, known.seen_ms))
        return _COUNT.pack(len(parts) // 3) + b"".join(parts)

    @classmethod
    def decode(cls, snapshot: bytes, position: int, next_offset: int) -> "Deduplication":
        """The inverse of `encode`, from `position` on; the snapshot is of the log below `next_offset`.  Raises
        EntryCorrupt if the bytes are no snapshot.
        """
        if snapshot[position : position + _COUNT.size] == NOT_KNOWN:
            return cls(next_offset)
        found = cls()
        try:
            (count,) = _COUNT.unpack_from(snapshot, position)
            position += _COUNT.size
            for _ in range(count):
                (size,) = _SIZE.unpack_from(snapshot, position)
                position += _SIZE.size
                name = snapshot[position : position + size].decode()
                position += size
                known = found._producers[name] = _Producer()
                sequence_id, last_offset, known.seen_ms = _STATE.unpack_from(snapshot, position)
                known.published.append((sequence_id, last_offset))
                position += _STATE.size
        except (StructError, UnicodeDecodeError) as error:
            raise EntryCorrupt("a snapshot of deduplication is cut short or damaged") from error
        return found


def _is_last_chunk(view: EntryView) -> bool:
    return view.metadata.chunk_id == view.metadata.num_chunks_from_msg - 1


def _last_seen(known: tuple[str, _Producer]) -> tuple[int, int]:
    """When, and by the offset of its last entry where times are the same: all that is read from a log has one."""
    return known[1].seen_ms, known[1].published[-1][1]
