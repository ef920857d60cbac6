"""One of Pulsar's transactions, in memory and as it is stored.

That is a JSON object at `/pulsar-transactions/<producer id>`, version 1::

    {"version": 1,
     "owner": "User:alice",                   # who has begun it, and alone may write in it and end it
     "timeout_ms": 60000,
     "status": "OPEN",                        # Pulsar's names
     "started_ms": 1700000000000,
     "partitions": [["persistent://public/default/t", 0], ...],
     "acks": [["subscription", "persistent://public/default/t", 0, "<topic id>", [[0, 5], [7, 8], ...]], ...]}

A row of `acks` is a subscription, topic, partition and the topic's id, as another one of the name may have followed by
the time of the commit; and half-open ranges of the offsets that the transaction has acknowledged there.

The record is there from the answer to its client's NEW_TXN until everything about its end is done.  Each write replaces
the whole value, so a crash leaves the state before or the state after.
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
RECORD_BYTES_MAX: Final = VALUE_BYTES_MAX - 1024  # what was taken can always be ended
RANGE_BYTES: Final = 44  # of a range in a record, at most
ACKED_MAX: Final = (
    RECORD_BYTES_MAX // RANGE_BYTES
)  # ids in one acknowledgement: as many as fit, each by itself
_VERSION: Final = 1


class PulsarStatus(Enum):
    """By the names that Pulsar's tools show."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"  # decided, and not yet done everywhere
    ABORTING = "ABORTING"


class PulsarTransaction:
    """The least significant bits of its id are `producer_id` (`log/pulsar_transactions.py`).

    A request changes it in memory, and is answered when a record that tells of that is durable: `changes` counts the
    changes, `stored_changes` those that the stored record tells of.  `lock` is held while a record is being written.
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

    epoch: Final = 0  # a producer id is that of one transaction

    def __init__(
        self, producer_id: int, owner: str, timeout_ms: int, started_ms: int, began_s: float
    ) -> None:
        self.producer_id = producer_id
        self.owner = owner
        self.timeout_ms = timeout_ms
        self.started_ms = started_ms
        self.began_s = began_s  # by the clock that never jumps
        self.status = PulsarStatus.OPEN
        self.partitions: set[TopicPartition] = set()
        self.acks: dict[CursorKey, tuple[str, Cursor]] = {}
        self.changes = 1
        self.stored_changes = 0
        self.lock = asyncio.Lock()
        self.ending: asyncio.Task[object] | None = None
        self.is_leaving = False  # the removal of its record is on its way
        self._writable: Collection[TopicPartition] = ()  # those of the stored record
        self._bytes = RECORD_BYTES_MAX  # of its record, at most
        self._measured = 0  # the changes that the record had when it was measured last

    @property
    def path(self) -> str:
        return f"{ROOT}{self.producer_id}"

    @property
    def is_open(self) -> bool:
        return self.status is PulsarStatus.OPEN

    def may_write(self, topic: str, index: int) -> bool:
        """Whether an entry of it may be appended there: its end will find it."""
        return self.is_open and (topic, index) in self._writable

    def has_room(self, more_bytes: int) -> bool:
        """Whether so much more fits into the record, which is measured only where it may not: that takes its time."""
        if self._bytes + more_bytes > RECORD_BYTES_MAX and self._measured != self.changes:
            self._bytes, self._measured = len(self.encode()), self.changes
        if self._bytes + more_bytes > RECORD_BYTES_MAX:
            return False
        self._bytes += more_bytes
        return True

    def stored(self, changes: int, partitions: Collection[TopicPartition]) -> None:
        """A record that tells of so many changes, and has these partitions, is durable."""
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
        """As it was stored, which has been open since it was begun.

        Raises:
            EntryCorrupt: `value` is not what `encode` gives.
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
