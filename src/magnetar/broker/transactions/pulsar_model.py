"""A Pulsar transaction, in memory and in its stored form.

It is stored as a JSON object at `/pulsar-transactions/<producer id>`, version 1::

    {"version": 1,
     "owner": "User:alice",                   # the client that began it, and alone may use and end it
     "timeout_ms": 60000,
     "status": "OPEN",                        # one of Pulsar's names
     "started_ms": 1700000000000,
     "partitions": [["persistent://public/default/t", 0], ...],
     "acks": [["subscription", "persistent://public/default/t", 0, "<topic id>", [[0, 5], [7, 8], ...]], ...]}

A row of `acks` is a subscription, topic, partition, the topic's id, and half-open ranges of the offsets that the
transaction has acknowledged there.  It has the id because another topic may have the name at the time of the commit.

The record exists from the answer to its client's NEW_TXN until the transaction's end is carried out.  Each write
replaces the whole value, so a crash leaves the state before it or after it.
"""

import asyncio
import json
from collections.abc import Collection
from enum import Enum
from typing import Any, Final

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.subscriptions.pending_acks import no_offsets
from magnetar.broker.transactions.model import TopicPartition
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.metadata.store import VALUE_BYTES_MAX

ROOT: Final = "/pulsar-transactions/"
RECORD_BYTES_MAX: Final = VALUE_BYTES_MAX - 1024  # so that every transaction can be ended
RANGE_BYTES: Final = 44  # of a range in a record, at most, in bytes
ACKED_MAX: Final = (
    RECORD_BYTES_MAX // RANGE_BYTES
)  # ids in one acknowledgement: as many as fit if each is a range of its own
_VERSION: Final = 1


class PulsarStatus(Enum):
    """The values are the names that Pulsar's tools show."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"  # decided, and not yet carried out everywhere
    ABORTING = "ABORTING"


class PulsarTransaction:
    """A transaction.  The least significant bits of its id are `producer_id` (`log/pulsar_transactions.py`).

    A request changes it in memory, and is answered when a record with that change is durable.  `changes` counts the
    changes, and `stored_changes` those in the stored record.  `lock` is held while a record is written.
    """

    __slots__ = (
        "_bytes",
        "_measured",
        "_writable",
        "acks",
        "began_s",
        "changes",
        "ending",
        "is_leaving",
        "lock",
        "owner",
        "partitions",
        "producer_id",
        "started_ms",
        "status",
        "stored_changes",
        "timeout_ms",
    )

    epoch: Final = 0  # each producer id has one transaction

    def __init__(
        self, producer_id: int, owner: str, timeout_ms: int, started_ms: int, began_s: float
    ) -> None:
        self.producer_id = producer_id
        self.owner = owner
        self.timeout_ms = timeout_ms
        self.started_ms = started_ms
        self.began_s = began_s  # of the monotonic clock
        self.status = PulsarStatus.OPEN
        self.partitions: set[TopicPartition] = set()
        self.acks: dict[CursorKey, tuple[str, Cursor]] = {}
        self.changes = 1
        self.stored_changes = 0
        self.lock = asyncio.Lock()
        self.ending: asyncio.Task[object] | None = None
        self.is_leaving = False  # the removal of its record is under way
        self._writable: Collection[TopicPartition] = ()  # the partitions in the stored record
        self._bytes = RECORD_BYTES_MAX  # at most, of its record
        self._measured = 0  # `changes` when the record was last measured

    @property
    def path(self) -> str:
        return f"{ROOT}{self.producer_id}"

    @property
    def is_open(self) -> bool:
        return self.status is PulsarStatus.OPEN

    def may_write(self, topic: str, index: int) -> bool:
        """Whether an entry of it may be appended to a partition: only if its stored record has that partition."""
        return self.is_open and (topic, index) in self._writable

    def has_room(self, more_bytes: int) -> bool:
        """Whether `more_bytes` fit into the record.  It is measured only if they may not fit, because that takes
        long.
        """
        if self._bytes + more_bytes > RECORD_BYTES_MAX and self._measured != self.changes:
            self._bytes, self._measured = len(self.encode()), self.changes
        if self._bytes + more_bytes > RECORD_BYTES_MAX:
            return False
        self._bytes += more_bytes
        return True

    def stored(self, changes: int, partitions: Collection[TopicPartition]) -> None:
        """Note that a record with this many changes, and with these partitions, is durable."""
        self.stored_changes = changes
        self._writable = partitions

    def encode(self) -> bytes:
        return json.dumps(
            {
                "version": _VERSION,
                "owner": self.owner,
                "timeout_ms": self.timeout_ms,
                "status": self.status.value,
                "started_ms": self.started_ms,
                "partitions": sorted(self.partitions),
                "acks": [
                    [*key, topic_id, acknowledged.ranges]
                    for key, (topic_id, acknowledged) in self.acks.items()
                ],
            },
            separators=(",", ":"),
        ).encode()

    @staticmethod
    def decode(path: str, value: bytes, now_ms: int, now_s: float) -> "PulsarTransaction":
        """The stored transaction, which counts as open since it began.

        Raises:
            EntryCorrupt: `value` is no record.
        """
        try:
            found = json.loads(value)
            if found["version"] != _VERSION:
                raise EntryCorrupt(f"a stored transaction has version {found['version']}, not {_VERSION}")
            started_ms = int(found["started_ms"])
            transaction = PulsarTransaction(
                int(path.removeprefix(ROOT)),
                str(found["owner"]),
                int(found["timeout_ms"]),
                started_ms,
                now_s - max(now_ms - started_ms, 0) / 1000,
            )
            transaction.status = PulsarStatus(found["status"])
            transaction.partitions = {(str(topic), int(index)) for topic, index in found["partitions"]}
            transaction.acks = {
                CursorKey(str(name), str(topic), int(index)): (str(topic_id), _offsets(ranges))
                for name, topic, index, topic_id, ranges in found["acks"]
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EntryCorrupt(f"a stored transaction is malformed: {error!r}") from error
        transaction.stored(transaction.changes, frozenset(transaction.partitions))
        return transaction


def _offsets(ranges: Any) -> Cursor:
    acknowledged = no_offsets()
    acknowledged.ack_individual((int(start), int(end)) for start, end in ranges)
    return acknowledged
