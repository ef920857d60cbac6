"""The last decided micro-batch of a streaming query, stored durably with the means of any Kafka cluster.

A decision says that a batch will be visible: all its tasks have written, each in an open transaction.  It is recorded
before the first transaction is committed.  From then on, a run that finds it unfinished commits the rest, and the
batch is never written again.  When all are committed, it is recorded again as finished.

It is stored in the metadata of committed offsets: group `spark-sink-<query id>`, topic `__spark_sink` (option
`decisionTopic`; no record is ever written to it), offset 0.  One OffsetCommit is atomic.  If the metadata of one
partition is too small, the rest is in those of the next ones.  A note is text::

    1 <batch id> <D: decided | F: finished> <index>/<count of notes> <crc32 of the whole list, hex> <part of the list>

The list is base64 of varints.  For each task, in ascending order, it has the task number (minus the previous one),
producer id (zigzag, minus the previous one), epoch, and number of rows.  The query's id and Spark's task number make
the transactional id.
"""

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from magnetar.base.varint import varint
from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.errors import UnknownTopic
from magnetar.client.kafka.groups import METADATA_BYTES_MAX, commit_metadata, committed_metadata
from magnetar.client.kafka.transactions import Producer
from magnetar.pipelines.connector.write.errors import SinkError

NOTES_MAX: Final = 8  # partitions of the topic
_PART_BYTES_MAX: Final = METADATA_BYTES_MAX - 64
_VERSION: Final = "1"
_DECIDED: Final = "D"
_FINISHED: Final = "F"


def transactional_id(query_id: str, task: int) -> str:
    return f"{query_id}-{task}"


class TaskTransaction(NamedTuple):
    """The open transaction of one task."""

    task: int
    producer_id: int
    epoch: int
    rows: int

    def producer(self, query_id: str) -> Producer:
        return Producer(transactional_id(query_id, self.task), self.producer_id, self.epoch)


@dataclass(frozen=True, slots=True)
class Decision:
    """Batch `batch_id` and all before it are decided; `transactions` may not be committed yet."""

    batch_id: int
    is_finished: bool = True
    transactions: tuple[TaskTransaction, ...] = ()


NOTHING_DECIDED: Final = Decision(-1)


class DecisionStore:
    """The decisions of one query."""

    def __init__(self, cluster: Cluster, query_id: str, topic: str) -> None:
        self._cluster = cluster
        self._group = f"spark-sink-{query_id}"
        self._topic = topic

    def last(self) -> Decision:
        """The last decision.  Raises KafkaClientError, SinkError."""
        return parse_notes(committed_metadata(self._cluster, self._group, self._topic, NOTES_MAX))

    def record(self, decision: Decision) -> None:
        """Store a decision; it is durable when this returns.  Raises KafkaClientError, SinkError."""
        notes = make_notes(decision)
        try:
            commit_metadata(self._cluster, self._group, self._topic, notes)
        except UnknownTopic:
            self._cluster.create_topic(self._topic, NOTES_MAX)
            commit_metadata(self._cluster, self._group, self._topic, notes, is_new=True)


def make_notes(decision: Decision) -> Mapping[int, str]:
    """The notes of a decision, by partition.  Raises SinkError if there are more than `NOTES_MAX`."""
    listed = encode_list(decision.transactions)
    checksum = zlib.crc32(listed)
    text = base64.b64encode(listed).decode()
    parts = [text[at : at + _PART_BYTES_MAX] for at in range(0, len(text), _PART_BYTES_MAX)] or [""]
    if len(parts) > NOTES_MAX:
        raise SinkError(
            f"{len(decision.transactions)} tasks are too many for one micro-batch:"
            " write with fewer partitions, .coalesce(...)"
        )
    state = _FINISHED if decision.is_finished else _DECIDED
    return {
        index: f"{_VERSION} {decision.batch_id} {state} {index}/{len(parts)} {checksum:08x} {part}"
        for index, part in enumerate(parts)
    }


class _Note(NamedTuple):
    batch_id: int
    state: str
    place: int
    places: int
    checksum: int
    part: str


def parse_notes(notes: Mapping[int, str]) -> Decision:
    """The newest decision that has all its notes.

    If notes of a batch are missing, it was not decided, and all batches before it were finished.

    Raises:
        SinkError: the texts are not notes of this sink.
    """
    found: dict[tuple[int, str, int, int], dict[int, str]] = {}
    for text in notes.values():
        note = _parse(text)
        key = (note.batch_id, note.state, note.places, note.checksum)
        found.setdefault(key, {})[note.place] = note.part
    best = NOTHING_DECIDED
    for (batch_id, state, count, checksum), parts in found.items():
        is_whole = len(parts) == count
        decision = Decision(batch_id - 1)
        if is_whole:
            decision = Decision(batch_id, state == _FINISHED, _parse_list(parts, checksum))
        if (decision.batch_id, decision.is_finished) > (best.batch_id, best.is_finished) or best.batch_id < 0:
            best = decision
    return best


def _parse(text: str) -> _Note:
    try:
        version, batch_id, state, place, checksum, part = text.split(" ")
        index, _, count = place.partition("/")
        note = _Note(int(batch_id), state, int(index), int(count), int(checksum, 16), part)
    except ValueError as error:
        raise SinkError(f"the record of decided batches cannot be read: {text[:80]!r}") from error
    if version != _VERSION or state not in (_DECIDED, _FINISHED) or not 0 <= note.place < note.places:
        raise SinkError(f"the record of decided batches is of a newer version: {text[:80]!r}")
    return note


def _parse_list(parts: Mapping[int, str], checksum: int) -> tuple[TaskTransaction, ...]:
    try:
        listed = base64.b64decode("".join(parts[index] for index in sorted(parts)), validate=True)
        if zlib.crc32(listed) != checksum:
            raise ValueError("its checksum does not hold")
        return tuple(decode_list(listed))
    except (binascii.Error, ValueError, IndexError) as error:
        raise SinkError(f"the record of decided batches is damaged: {error}") from error


def encode_list(transactions: Sequence[TaskTransaction]) -> bytes:
    parts = []
    task = producer_id = 0
    for one in sorted(transactions):
        delta = one.producer_id - producer_id
        parts += [one.task - task, delta << 1 if delta >= 0 else (-delta << 1) - 1, one.epoch, one.rows]
        task, producer_id = one.task, one.producer_id
    return b"".join(map(varint, parts))


def decode_list(listed: bytes) -> Iterator[TaskTransaction]:
    """The inverse of `encode_list`.  Raises ValueError, IndexError."""
    position = task = producer_id = 0
    while position < len(listed):
        numbers = []
        for _ in range(4):
            number, position = _read_varint(listed, position)
            numbers.append(number)
        task += numbers[0]
        producer_id += (numbers[1] >> 1) if not numbers[1] & 1 else -((numbers[1] + 1) >> 1)
        yield TaskTransaction(task, producer_id, numbers[2], numbers[3])


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number is too long")
