"""The stored form of a transactional id: a JSON object at `/transactions/<escaped id>`, version 3::

    {"version": 3,
     "producer_id": 7, "epoch": 3,            # who may write
     "last_producer_id": 7, "last_epoch": 2,  # before the last bump that a producer requested; -1: none (KIP-360)
     "next_producer_id": -1,                  # takes over, with epoch 0, once this transaction is ended; -1: none
     "timeout_ms": 60000,
     "state": "Ongoing",                      # Kafka's names of the states
     "partitions": [["persistent://public/default/t", 0], ...],
     "offsets": {"group": [["persistent://public/default/t", 0, 42, -1, "metadata", "<topic id>"], ...], ...},
     "started_ms": 1700000000000,             # of the open transaction, -1 without one
     "updated_ms": 1700000000000}

A row of `offsets` is topic, partition, offset, leader epoch (-1: unknown), metadata, and the topic's id, because
another topic may have the name when the offset becomes the group's.  Older versions are read, too: version 2 had no
next producer id, and version 1 also no topic ids.  A group without rows was added to the transaction and has
committed nothing yet.  Partitions and offsets are there while a transaction is open or ending.  Each write replaces
the whole value, so a crash leaves the state before it or after it.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from magnetar.base.errors import EntryCorrupt
from magnetar.base.lane import cut
from magnetar.broker.groups.model import OffsetToCommit
from magnetar.broker.transactions.errors import TransactionError

VERSION: Final = 3
EPOCH_MAX: Final = 0x7FFF
# One less than the greatest value of the field, as in Kafka, so that a producer with this epoch can still be fenced.
EPOCH_GIVEN_MAX: Final = EPOCH_MAX - 1
NO_EPOCH: Final = -1
_ROWS_AT_ONCE: Final = 500  # of a record's text, in one turn of the event loop
_TEXT_AT_ONCE: Final = 8 << 10  # characters; less is not worth a turn
COORDINATOR_EPOCH: Final = 0  # there is one coordinator, and no other can take over from it

TopicPartition = tuple[str, int]  # topic's full name, partition
Offsets = Mapping[TopicPartition, OffsetToCommit]


class Producer(NamedTuple):
    """The producer id and epoch in a producer's request."""

    producer_id: int
    epoch: int


class Initialised(NamedTuple):
    """A producer's new id and epoch: the answer to InitProducerId, and to an end that gives a new epoch."""

    error: TransactionError
    producer_id: int = -1
    epoch: int = -1


class TransactionState(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"  # dropped after `transactional.id.expiration.ms`; never stored


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """See the module's text."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    last_producer_id: int = -1
    last_epoch: int = NO_EPOCH
    partitions: frozenset[TopicPartition] = frozenset()
    offsets: Mapping[str, Offsets] = field(default_factory=dict)  # by group
    started_ms: int = -1
    next_producer_id: int = -1

    @property
    def owner(self) -> Producer:
        """The present producer; while the transaction is ending, the producer after that."""
        if self.next_producer_id >= 0:
            return Producer(self.next_producer_id, 0)
        return Producer(self.producer_id, self.epoch)

    async def encode(self) -> bytes:
        """Its stored form; while it encodes very many rows, other work of the loop runs in between."""
        texts: list[str] = []
        for text in self._texts():
            texts.append(text)
            if len(text) > _TEXT_AT_ONCE:
                await asyncio.sleep(0)
        return "".join(texts).encode()

    def _texts(self) -> Iterator[str]:
        """The record's text, in pieces of bounded work."""
        front = {
            "version": VERSION,
            "producer_id": self.producer_id,
            "epoch": self.epoch,
            "last_producer_id": self.last_producer_id,
            "last_epoch": self.last_epoch,
            "next_producer_id": self.next_producer_id,
            "timeout_ms": self.timeout_ms,
            "state": self.state.value,
        }
        yield _text(front)[:-1] + ',"partitions":['
        yield from _rows(sorted(self.partitions))
        yield '],"offsets":{'
        separator = ""
        for group, rows in self.offsets.items():
            yield f"{separator}{_text(group)}:["
            yield from _rows(
                [row.topic, row.partition, row.offset, row.leader_epoch, row.metadata, row.topic_id]
                for row in rows.values()
            )
            yield "]"
            separator = ","
        yield f'}},"started_ms":{self.started_ms},"updated_ms":{self.updated_ms}}}'

    @staticmethod
    def decode(value: bytes) -> "TransactionRecord":
        """The inverse of `encode`.  Raises EntryCorrupt if `value` is no record."""
        try:
            stored = json.loads(value)
            if stored["version"] not in range(1, VERSION + 1):
                raise EntryCorrupt(f"a stored transaction has version {stored['version']}, not {VERSION}")
            return TransactionRecord(
                producer_id=int(stored["producer_id"]),
                epoch=int(stored["epoch"]),
                timeout_ms=int(stored["timeout_ms"]),
                state=TransactionState(stored["state"]),
                updated_ms=int(stored["updated_ms"]),
                last_producer_id=int(stored["last_producer_id"]),
                last_epoch=int(stored["last_epoch"]),
                partitions=frozenset((str(topic), int(index)) for topic, index in stored["partitions"]),
                offsets={str(group): _offsets(rows) for group, rows in stored["offsets"].items()},
                started_ms=int(stored["started_ms"]),
                next_producer_id=int(stored["next_producer_id"]) if stored["version"] >= 3 else -1,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EntryCorrupt(f"a stored transaction is malformed: {error!r}") from error


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _rows(rows: Iterable[object]) -> Iterator[str]:
    """What an array has between its brackets."""
    separator = ""
    for some in cut(rows, _ROWS_AT_ONCE):
        yield separator + _text(some)[1:-1]
        separator = ","


def _offsets(rows: Any) -> Offsets:
    return {
        (str(topic), int(index)): OffsetToCommit(
            str(topic), int(index), int(offset), str(metadata), int(epoch), *map(str, topic_id)
        )
        for topic, index, offset, epoch, metadata, *topic_id in rows
    }
