"""Writes records to a stream of Kinesis, within its limits, and in the order of each partition key.

**Partition keys.**  A record's partition key is its message key; a record without one has the name of its partition of
the topic.  A longer one is cut.

**Order.**  Kinesis takes some records of a request, refuses others, and does not promise an order among those that it
takes.  So a request has only one record of each partition key, and the producer sends the next one when that has
arrived.  With `keeps_order` off, requests are full instead: a refused record arrives after those that were behind it.

**Throttling.**  The producer sends again, after a pause, only what Kinesis refused; pauses grow while nothing gets
through.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from magnetar.replicators.aws.client import Patience, Throttled, judging, open_client
from magnetar.replicators.aws.settings import AwsTarget
from magnetar.replicators.errors import PoisonRecords
from magnetar.replicators.kinesis.forms import Encode
from magnetar.replicators.provider import ReplicatedRecord
from magnetar.replicators.texts import key_text, partition_name

RECORDS_MAX: Final = 500  # of a request, as the next one; a record counts with its partition key
REQUEST_BYTES_MAX: Final = 5 << 20
RECORD_BYTES_MAX: Final = 1 << 20
KEY_CHARS_MAX: Final = 256


class Entry(NamedTuple):
    """A record in the form of a request."""

    key: str
    data: bytes
    size: int


class Waiting:
    """The records of a chunk that are not at the target yet, without I/O.  `take` returns the next request; `put_back`
    takes those of its records that have failed, and puts them in front of all that follow them.
    """

    def __init__(self, *, keeps_order: bool) -> None:
        self._keeps_order = keeps_order
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)

    def take(self) -> list[Entry]:
        """The entries of the next request: the first ones, of each partition key one if order is kept."""
        taken: list[Entry] = []
        kept: list[Entry] = []
        keys: set[str] = set()
        size = 0
        while self._entries and len(taken) < RECORDS_MAX and len(kept) < RECORDS_MAX:
            entry = self._entries.popleft()
            if self._keeps_order and entry.key in keys:
                kept.append(entry)
                continue
            if taken and size + entry.size > REQUEST_BYTES_MAX:
                kept.append(entry)
                break
            keys.add(entry.key)
            taken.append(entry)
            size += entry.size
        self._entries.extendleft(reversed(kept))
        return taken

    def put_back(self, entries: Sequence[Entry]) -> None:
        self._entries.extendleft(reversed(entries))


class KinesisProducer:
    """See the module's text."""

    def __init__(
        self,
        target: AwsTarget,
        topic: str,
        encode: Encode,
        *,
        keeps_order: bool,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises CredentialsRefused."""
        self._what = f"stream {target.name} of Kinesis"
        self._name = target.name
        self._topic = topic
        self._encode = encode
        self._sleep = sleep
        self._waiting = Waiting(keeps_order=keeps_order)
        self._poison: list[tuple[ReplicatedRecord, str]] = []
        with judging(self._what):
            self._client: Any = open_client(target)

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        for record in records:
            key, data = self._key(record), self._encode(record)
            size = len(data) + len(key.encode())
            if size > RECORD_BYTES_MAX:
                self._poison.append(
                    (record, f"it is too large for Kinesis: {size} bytes, and {RECORD_BYTES_MAX} are allowed")
                )
            else:
                self._waiting.add(Entry(key, data, size))

    def flush(self) -> None:
        patience = Patience(self._sleep)
        while self._waiting:
            taken = self._waiting.take()
            failed, reason = self._put(taken)
            self._waiting.put_back(failed)
            patience.after(reason, got_through=len(failed) < len(taken))
        poison, self._poison = self._poison, []
        if poison:
            raise PoisonRecords(poison)

    def close(self) -> None:
        self._client.close()

    def _key(self, record: ReplicatedRecord) -> str:
        if record.key:
            return key_text(record.key)[:KEY_CHARS_MAX]
        return partition_name(self._topic, record.partition)[-KEY_CHARS_MAX:]

    def _put(self, entries: Sequence[Entry]) -> tuple[list[Entry], str | None]:
        """The entries that Kinesis has not taken, and why not.  Raises TargetUnavailable, CredentialsRefused."""
        try:
            with judging(self._what):
                answer = self._client.put_records(
                    StreamName=self._name,
                    Records=[{"Data": entry.data, "PartitionKey": entry.key} for entry in entries],
                )
        except Throttled as error:
            return list(entries), str(error)
        failed: list[Entry] = []
        reason = None
        for entry, result in zip(entries, answer["Records"], strict=True):
            if code := result.get("ErrorCode"):
                failed.append(entry)
                reason = f"{self._what} does not take records: {code}: {result.get('ErrorMessage')}"
        return failed, reason
