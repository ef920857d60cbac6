"""Idempotent producers of one partition: duplicates found, gaps refused (KIP-98, KIP-360).

For each producer id the last five batches are remembered, as many as a client may have in flight.  A batch that is one
of them is a duplicate: it is acknowledged with the offset it got the first time.  Otherwise its first sequence number
must follow the last one; a new epoch starts at 0; a producer this partition does not know (its records expired) may
start anywhere.  Sequence numbers wrap at 2^31.

A batch that could not be stored has to come again before any that follows it: its sequence number is what is expected
next, also from a producer of which nothing is stored yet.

`check` decides and changes nothing; `add` records what was appended.  The state is a snapshot (`encode`, `decode`) plus
the batch headers of the log after it, so it survives any restart.

Snapshot, version 3, big-endian::

    0  u8   version        3; 2 had no markers; 1 had nothing of Pulsar's producers behind what follows, either
                           (`producer_recovery.py`)
    1  i64  next_offset    the snapshot covers the log below this offset
    9  u32  producer_count
       per producer: i64 producer_id, i16 epoch, u8 batch_count (and 0x80: a marker was written for it),
       per batch:    i32 base_sequence, i32 last_sequence, i64 base_offset, i64 last_offset,
                     i64 timestamp_ms (when it was appended; of what is replayed: when it was replayed)
"""

from collections import deque
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.errors import InvalidProducerEpoch, OutOfOrderSequence
from magnetar.metadata.store import VALUE_BYTES_MAX

BATCHES_REMEMBERED: Final = 5  # max.in.flight.requests.per.connection of an idempotent producer
_SEQUENCES: Final = 1 << 31
_SNAPSHOT: Final = Struct(">BqI")
_PRODUCER: Final = Struct(">qhB")
_BATCH: Final = Struct(">iiqqq")
_VERSION: Final = 3
_MARKED: Final = 0x80
DEDUPLICATION_SINCE: Final = 2
_SNAPSHOT_BYTES_MAX: Final = VALUE_BYTES_MAX * 3 // 4  # the rest is for what a partition stores beside it
SNAPSHOT_PRODUCERS_MAX: Final = _SNAPSHOT_BYTES_MAX // (_PRODUCER.size + BATCHES_REMEMBERED * _BATCH.size)


class ProducedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry:
    """What is remembered of one producer id: its epoch and its last batches, the newest last.

    `is_marked`: the coordinator has ended a transaction of it here, under whatever epoch.
    """

    __slots__ = ("batches", "epoch", "is_marked", "resume_at")

    def __init__(self, epoch: int, resume_at: int | None = None, *, is_marked: bool = False) -> None:
        self.epoch = epoch
        self.is_marked = is_marked
        self.resume_at = resume_at  # what must come next while there are no batches; None: anything
        self.batches: deque[ProducedBatch] = deque(maxlen=BATCHES_REMEMBERED)


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` places after `sequence`, wrapping as clients do."""
    return (sequence + count) % _SEQUENCES


def _last_written_ms(known: tuple[int, ProducerEntry]) -> int:
    batches = known[1].batches
    return batches[-1].timestamp_ms if batches else -1


class ProducerStates:
    """See the module's text."""

    __slots__ = ("_producers", "next_offset")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self.next_offset = 0  # everything below is accounted for

    def __len__(self) -> int:
        return len(self._producers)

    def items(self) -> list[tuple[int, ProducerEntry]]:
        return list(self._producers.items())

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, record_count: int
    ) -> ProducedBatch | None:
        """The earlier batch that this one repeats, or None when it may be appended.

        Raises:
            InvalidProducerEpoch: the epoch is older than the producer's.
            OutOfOrderSequence: the batch does not follow the producer's last one.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return None
        if epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {known.epoch}, the batch has {epoch}"
            )
        if epoch > known.epoch:
            if base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} starts epoch {epoch} at sequence {base_sequence}, not 0"
                )
            return None
        last_sequence = sequence_after(base_sequence, record_count - 1)
        for batch in known.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        expected = sequence_after(known.batches[-1].last_sequence, 1) if known.batches else known.resume_at
        if expected is not None and base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {producer_id} sent sequence {base_sequence} instead of {expected}"
            )
        return None

    def add(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        record_count: int,
        timestamp_ms: int,
    ) -> None:
        """Record an appended batch."""
        known = self._producers.get(producer_id)
        if known is None or known.epoch != epoch:
            is_marked = known is not None and known.is_marked
            known = self._producers[producer_id] = ProducerEntry(epoch, is_marked=is_marked)
        last_offset = base_offset + record_count - 1
        known.batches.append(
            ProducedBatch(
                base_sequence,
                sequence_after(base_sequence, record_count - 1),
                base_offset,
                last_offset,
                timestamp_ms,
            )
        )

    def refused(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """A batch that `check` let pass could not be appended: what follows it must not be stored before it."""
        known = self._producers.get(producer_id)
        if known is None or (known.epoch == epoch and not known.batches):
            is_marked = known is not None and known.is_marked
            self._producers[producer_id] = ProducerEntry(epoch, base_sequence, is_marked=is_marked)

    def raise_epoch(self, producer_id: int, epoch: int) -> None:
        """A transaction was ended under `epoch`: batches of older ones are those of a zombie."""
        known = self._producers.get(producer_id)
        if known is not None and known.epoch < epoch:
            self._producers[producer_id] = ProducerEntry(epoch, is_marked=known.is_marked)

    def marked(self, producer_id: int, epoch: int) -> None:
        """A marker of the producer's was appended, under `epoch`."""
        self.raise_epoch(producer_id, epoch)
        known = self._producers.get(producer_id)
        if known is not None:
            known.is_marked = True

    def below(self, end_offset: int) -> "ProducerStates":
        """The state without the batches at or above `end_offset`, whose append failed."""
        states = ProducerStates()
        states.next_offset = end_offset
        for producer_id, known in self._producers.items():
            stored = [batch for batch in known.batches if batch.last_offset < end_offset]
            resume_at = known.batches[0].base_sequence if known.batches else known.resume_at
            kept = ProducerEntry(known.epoch, resume_at, is_marked=known.is_marked)
            states._producers[producer_id] = kept
            kept.batches.extend(stored)
        return states

    def expire(self, before_ms: int) -> None:
        """Forget producers that have not written since `before_ms` (producer.id.expiration.ms)."""
        for producer_id, known in list(self._producers.items()):
            if not known.batches or known.batches[-1].timestamp_ms < before_ms:
                del self._producers[producer_id]

    def encode(self, next_offset: int) -> bytes:
        """The snapshot that covers the log below `next_offset`.

        With more producers than a value of the metadata store holds, those that wrote last are in it: the others are
        unknown after a restart, as if their records had expired.
        """
        producers = self.items()
        if len(producers) > SNAPSHOT_PRODUCERS_MAX:
            producers = sorted(producers, key=_last_written_ms)[-SNAPSHOT_PRODUCERS_MAX:]
        parts = [_SNAPSHOT.pack(_VERSION, next_offset, len(producers))]
        for producer_id, known in producers:
            count = len(known.batches) | (_MARKED if known.is_marked else 0)
            parts.append(_PRODUCER.pack(producer_id, known.epoch, count))
            parts.extend(_BATCH.pack(*batch) for batch in known.batches)
        return b"".join(parts)

    @classmethod
    def decode(cls, snapshot: bytes) -> "tuple[ProducerStates, int]":
        """The inverse of `encode`, and where the snapshot ends; EntryCorrupt when the bytes are not a snapshot."""
        states = cls()
        try:
            version, states.next_offset, count = _SNAPSHOT.unpack_from(snapshot)
            if not 1 <= version <= _VERSION:
                raise EntryCorrupt(f"producer snapshot of unknown version {version}")
            position = _SNAPSHOT.size
            for _ in range(count):
                producer_id, epoch, batch_count = _PRODUCER.unpack_from(snapshot, position)
                position += _PRODUCER.size
                # One without batches is known for its epoch alone, which begins at 0.
                known = ProducerEntry(epoch, 0, is_marked=bool(batch_count & _MARKED))
                states._producers[producer_id] = known
                for _ in range(batch_count & ~_MARKED):
                    known.batches.append(ProducedBatch(*_BATCH.unpack_from(snapshot, position)))
                    position += _BATCH.size
        except StructError as error:
            raise EntryCorrupt("a producer snapshot is cut short") from error
        return states, position
