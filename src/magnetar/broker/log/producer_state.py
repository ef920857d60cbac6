"""Idempotent producers of one partition: duplicates found, gaps refused (KIP-98, KIP-360).

For each producer id the partition keeps the last five batches, as many as a client may have in flight.  A batch that
is one of them is a duplicate: it is acknowledged with the offset that it got the first time.  Otherwise its first
sequence number must follow the last one.  A new epoch starts at 0.  A producer that this partition does not know,
because its records expired, may start anywhere.  Sequence numbers wrap at 2^31.

If a batch could not be stored, the producer must send it again before any later one.  Its sequence number is expected
next, also from a producer of which nothing is stored yet.

A client can create any number of producers.  So each is kept packed, as in a snapshot: 300 bytes of memory with one
batch, 430 with five.  `forget_oldest` removes those that have not written for longest.  A forgotten producer that
writes again is unknown, as after expiry.

`check` decides and changes nothing; `add` records an appended batch.  The state is a snapshot (`encode`, `decode`)
plus the batch headers of the log after it, so it survives any restart.

Snapshot, version 4, big-endian::

    0  u8   version        4; 3 did not say whether Pulsar's producers were known (`producer_recovery.py`); 2 also had
                           no markers; 1 also had nothing about Pulsar's producers after the rest
    1  i64  next_offset    the snapshot covers the log below this offset
    9  u32  producer_count
       per producer: i64 producer_id, i16 epoch, u8 batch_count (and 0x80: a marker was written for it),
       per batch:    i32 base_sequence, i32 last_sequence, i64 base_offset, i64 last_offset,
                     i64 timestamp_ms (when it was appended or, after a replay, when it was replayed)
"""

from collections import OrderedDict
from collections.abc import Callable
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
# In memory a producer is this and its batches: resume_at, and what follows the id in a snapshot.
_STATE: Final = Struct(">ihB")
_ANYTHING: Final = -1
_RESUME_BYTES: Final = 4
_ID: Final = Struct(">q")
_VERSION: Final = 4
_MARKED: Final = 0x80
DEDUPLICATION_SINCE: Final = 2
SAYS_IF_KNOWN_SINCE: Final = 4  # whether the producers of the deduplication are known
_SNAPSHOT_BYTES_MAX: Final = VALUE_BYTES_MAX * 3 // 4  # the rest is for the snapshot's other parts


class ProducedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry(NamedTuple):
    """What the partition knows about one producer id: its epoch and its last batches, the newest last.

    `is_marked`: the coordinator has ended a transaction of it here, under any epoch.  `resume_at`: the sequence
    number that must come next if there are no batches; None: any.
    """

    epoch: int
    is_marked: bool
    resume_at: int | None
    batches: tuple[ProducedBatch, ...]

    def packed(self) -> bytes:
        resume_at = _ANYTHING if self.resume_at is None else self.resume_at
        batches = b"".join(_BATCH.pack(*batch) for batch in self.batches)
        return _STATE.pack(resume_at, self.epoch, len(self.batches) | self.is_marked * _MARKED) + batches

    @classmethod
    def of(cls, packed: bytes) -> "ProducerEntry":
        resume_at, epoch, count = _STATE.unpack_from(packed)
        batches = tuple(map(ProducedBatch._make, _BATCH.iter_unpack(packed[_STATE.size :])))
        return cls(epoch, bool(count & _MARKED), None if resume_at == _ANYTHING else resume_at, batches)


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` places after `sequence`, wrapping as clients do."""
    return (sequence + count) % _SEQUENCES


class ProducerStates:
    """See the module's text."""

    __slots__ = ("_producers", "next_offset")

    def __init__(self) -> None:
        self._producers: OrderedDict[int, bytes] = (
            OrderedDict()
        )  # packed `ProducerEntry`s; the one that wrote last is last
        self.next_offset = 0  # everything below it is recorded here

    def __len__(self) -> int:
        return len(self._producers)

    def items(self) -> list[tuple[int, ProducerEntry]]:
        return [(producer_id, ProducerEntry.of(packed)) for producer_id, packed in self._producers.items()]

    def _find(self, producer_id: int) -> ProducerEntry | None:
        packed = self._producers.get(producer_id)
        return None if packed is None else ProducerEntry.of(packed)

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, record_count: int
    ) -> ProducedBatch | None:
        """The earlier batch that this one repeats; None if it is new and may be appended.

        Raises:
            InvalidProducerEpoch: the epoch is older than the producer's.
            OutOfOrderSequence: the batch does not follow the producer's last one.
        """
        packed = self._producers.get(producer_id)
        if packed is None:
            return None
        expected, known_epoch, count = _STATE.unpack_from(packed)
        if epoch < known_epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {known_epoch}, the batch has {epoch}"
            )
        if epoch > known_epoch:
            if base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} starts epoch {epoch} at sequence {base_sequence}, not 0"
                )
            return None
        if count & ~_MARKED:
            expected = sequence_after(_BATCH.unpack_from(packed, len(packed) - _BATCH.size)[1], 1)
        if base_sequence == expected or expected == _ANYTHING:
            return None
        last_sequence = sequence_after(base_sequence, record_count - 1)
        for batch in ProducerEntry.of(packed).batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {base_sequence} instead of {expected}"
        )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuse a marker whose epoch is older than the producer's.

        Raises:
            InvalidProducerEpoch
        """
        known = self._find(producer_id)
        if known is not None and epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {known.epoch}, the marker has {epoch}"
            )

    def check_first(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Refuse a batch that does not begin an epoch at its first sequence number; `check` allows that to an unknown
        producer.

        Raises:
            OutOfOrderSequence
        """
        known = self._find(producer_id)
        is_begun = known is not None and known.epoch >= epoch and known.batches
        if base_sequence != 0 and not is_begun:
            raise OutOfOrderSequence(
                f"producer {producer_id} starts epoch {epoch} at sequence {base_sequence}, not 0"
            )

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
        producers = self._producers
        added = _BATCH.pack(
            base_sequence,
            (base_sequence + record_count - 1) % _SEQUENCES,
            base_offset,
            base_offset + record_count - 1,
            timestamp_ms,
        )
        packed = producers.get(producer_id)
        if packed is None:
            producers[producer_id] = _STATE.pack(_ANYTHING, epoch, 1) + added
            return
        _, known_epoch, count = _STATE.unpack_from(packed)
        if known_epoch != epoch:
            packed = _STATE.pack(_ANYTHING, epoch, 1 | count & _MARKED) + added
        elif count & ~_MARKED < BATCHES_REMEMBERED:
            packed = _STATE.pack(_ANYTHING, epoch, count + 1) + packed[_STATE.size :] + added
        else:
            packed = packed[: _STATE.size] + packed[_STATE.size + _BATCH.size :] + added
        producers[producer_id] = packed
        producers.move_to_end(producer_id)

    def refused(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Note that a batch that `check` accepted could not be appended, so that no later one is stored before it."""
        known = self._find(producer_id)
        if known is None or (known.epoch == epoch and not known.batches):
            is_marked = known is not None and known.is_marked
            self._producers[producer_id] = ProducerEntry(epoch, is_marked, base_sequence, ()).packed()

    def raise_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuse batches of older epochs from now on, because a transaction was ended under `epoch`."""
        known = self._find(producer_id)
        if known is not None and known.epoch < epoch:
            self._producers[producer_id] = ProducerEntry(epoch, known.is_marked, 0, ()).packed()

    def marked(self, producer_id: int, epoch: int) -> None:
        """Record a marker of the producer, appended under `epoch`."""
        self.raise_epoch(producer_id, epoch)
        known = self._find(producer_id)
        if known is not None and not known.is_marked:
            self._producers[producer_id] = known._replace(is_marked=True).packed()

    def below(self, end_offset: int) -> "ProducerStates":
        """A copy without the batches at or above `end_offset`, whose append failed."""
        states = ProducerStates()
        states.next_offset = end_offset
        for producer_id, packed in self._producers.items():
            if len(packed) == _STATE.size or _last_offset(packed) < end_offset:
                states._producers[producer_id] = packed
                continue
            known = ProducerEntry.of(packed)
            stored = tuple(batch for batch in known.batches if batch.last_offset < end_offset)
            resume_at = known.batches[0].base_sequence
            kept = known._replace(resume_at=resume_at, batches=stored)
            states._producers[producer_id] = kept.packed()
        return states

    def expire(self, before_ms: int) -> None:
        """Forget producers that have not written since `before_ms` (producer.id.expiration.ms)."""
        for producer_id, packed in list(self._producers.items()):
            if len(packed) == _STATE.size or _timestamp_ms(packed) < before_ms:
                del self._producers[producer_id]

    def forget_oldest(self, count: int, durable_end: int, is_open: Callable[[int], bool]) -> int:
        """Forget the `count` producers that have not written for longest, or fewer, and return how many.

        A producer with an open transaction stays.  So does one whose last batch is not below `durable_end`: if that
        fails, no later batch may be stored before it.
        """
        oldest: list[int] = []
        for producer_id, packed in self._producers.items():
            if len(oldest) >= count:
                break
            is_durable = len(packed) == _STATE.size or _last_offset(packed) < durable_end
            if is_durable and not is_open(producer_id):
                oldest.append(producer_id)
        for producer_id in oldest:
            del self._producers[producer_id]
        return len(oldest)

    def encode(self, next_offset: int) -> bytes:
        """The snapshot that covers the log below `next_offset`.

        If a value of the metadata store cannot hold all producers, it has those that wrote last: the others are
        unknown after a restart, as if their records had expired.
        """
        parts: list[bytes] = []
        left = _SNAPSHOT_BYTES_MAX - _SNAPSHOT.size
        for producer_id, packed in reversed(self._producers.items()):
            left -= len(packed) - _RESUME_BYTES + _ID.size
            if left < 0:
                break
            parts += (packed[_RESUME_BYTES:], _ID.pack(producer_id))
        parts.append(_SNAPSHOT.pack(_VERSION, next_offset, len(parts) // 2))
        parts.reverse()
        return b"".join(parts)

    @classmethod
    def decode(cls, snapshot: bytes) -> "tuple[ProducerStates, int]":
        """The inverse of `encode`, and the position where the snapshot ends.  Raises EntryCorrupt if the bytes are no
        snapshot.
        """
        states = cls()
        try:
            version, states.next_offset, count = _SNAPSHOT.unpack_from(snapshot)
            if not 1 <= version <= _VERSION:
                raise EntryCorrupt(f"producer snapshot of unknown version {version}")
            position = _SNAPSHOT.size
            for _ in range(count):
                producer_id, epoch, batch_count = _PRODUCER.unpack_from(snapshot, position)
                position += _PRODUCER.size
                batches = []
                for _ in range(batch_count & ~_MARKED):
                    batches.append(ProducedBatch(*_BATCH.unpack_from(snapshot, position)))
                    position += _BATCH.size
                # Of a producer without batches only its epoch is known; the next sequence number is 0.
                known = ProducerEntry(
                    epoch, bool(batch_count & _MARKED), 0, tuple(batches[-BATCHES_REMEMBERED:])
                )
                states._producers[producer_id] = known.packed()
        except StructError as error:
            raise EntryCorrupt("a producer snapshot is cut short") from error
        return states, position


def snapshot_end(snapshot: bytes) -> int:
    """The offset up to which a snapshot covers the log.  Raises EntryCorrupt if the bytes are no snapshot."""
    if len(snapshot) < _SNAPSHOT.size:
        raise EntryCorrupt("a producer snapshot is cut short")
    offset: int = _SNAPSHOT.unpack_from(snapshot)[1]
    return offset


def _last_offset(packed: bytes) -> int:
    offset: int = _BATCH.unpack_from(packed, len(packed) - _BATCH.size)[3]
    return offset


def _timestamp_ms(packed: bytes) -> int:
    timestamp_ms: int = _BATCH.unpack_from(packed, len(packed) - _BATCH.size)[4]
    return timestamp_ms
