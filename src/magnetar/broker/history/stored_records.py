"""Entries of a partition as *store records*: in the bytes of segment files, for readers that read those files.

A job that reads history from files reads the tail here, and uses one decoder for both.  A reader at the end of the
log waits for the next append, as a Kafka fetch does.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import StorageError
from magnetar.broker.errors import OffsetOutOfRange, UnknownTopic
from magnetar.broker.interop.interop import Interop
from magnetar.broker.log.partition import Partition
from magnetar.ledger.entry_format import EntryPrefix, decode_entry
from magnetar.ledger.readable_log import ReadableLog
from magnetar.storage.store import READ_ENTRIES_MAX, Buffer, LedgerId, StoredEntry
from magnetar.wire.stored import RECORD_BYTES, record_header

AT_ONCE_MAX: Final = 64  # entries of an answer that the event loop makes, in 0.1 ms
AT_ONCE_BYTES_MAX: Final = 1 << 20
WAITERS_MAX: Final = 128  # of HTTP's 256 requests, so that others are answered

_prefixes: Final = EntryPrefix()


class StoredRecords:
    """See the module's text."""

    def __init__(self, clock: Clock, interop: Interop) -> None:
        self._clock = clock
        self._interop = interop
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_stopping = False

    async def read(
        self, partition: Partition, offset: int, end_offset: int, bytes_max: int, *, as_kafka: bool = False
    ) -> list[Buffer]:
        """The records from the one that holds `offset` on and before `end_offset`: the first, then as many as fit
        `bytes_max`.

        Returns parts whose concatenation is the records.  `as_kafka`: every entry holds a Kafka batch; entries of
        Pulsar clients are converted.

        Raises:
            UnknownTopic, OffsetOutOfRange: see `check`.
            StorageError: the log cannot be read.
        """
        log = partition.log
        self.check(partition, offset)
        try:
            ledger_id, stored = await _read(log, offset, end_offset, bytes_max)
        except StorageError:
            self.check(partition, offset)  # retention, or the topic's deletion, may have come first
            raise
        wanted = _wanted(stored, offset, end_offset, log.high_watermark)
        if as_kafka:
            wanted = await self._as_kafka(partition, ledger_id, wanted)
        if len(wanted) <= AT_ONCE_MAX and sum(len(one.body) for one in wanted) <= AT_ONCE_BYTES_MAX:
            return _parts(ledger_id, wanted, bytes_max)
        return await asyncio.to_thread(_parts, ledger_id, wanted, bytes_max)

    def check(self, partition: Partition, offset: int) -> None:
        """Check that there is, or will be, something to read at `offset`.

        Raises:
            UnknownTopic: the topic has been deleted.
            OffsetOutOfRange: it is before the log's start or after its end.
        """
        log = partition.log
        if partition.topic.is_deleted:
            raise UnknownTopic(f"topic {partition.topic.name} has been deleted")
        if not log.log_start <= offset <= log.next_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {partition.topic.name} partition {partition.index} cannot be read: "
                f"the log goes from {log.log_start} to {log.high_watermark}"
            )

    async def _as_kafka(
        self, partition: Partition, ledger_id: LedgerId, stored: Sequence[StoredEntry]
    ) -> list[StoredEntry]:
        interop = self._interop
        entries = [decode_entry(ledger_id, one) for one in stored]
        formed = interop.kafka_form(partition, entries)
        if formed is None:
            formed = await interop.kafka_form_later(partition, entries)
        found = []
        for entry, given, one in zip(
            entries, formed, stored, strict=False
        ):  # only the first ones, if they become large
            if given is entry:
                found.append(one)
                continue
            count = given.message_count
            prefix = _prefixes.kafka(partition.log.now_ms(), given.last_offset, count)
            body = memoryview(b"".join((prefix, given.payload)))
            found.append(StoredEntry(one.entry_id, given.last_offset, given.max_timestamp_ms, body))
        return found

    async def wait(self, partition: Partition, offset: int, wait_s: float) -> None:
        """Return when there is something to read at `offset`, after `wait_s` seconds at the latest, or when the
        server stops.

        Cancelling it is harmless.
        """
        if partition.log.high_watermark > offset or self._is_stopping or wait_s <= 0:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        wake = _resolver(woken)
        self._waiting.add(woken)
        partition.waiters.add(wake)
        timer = self._clock.call_later(wait_s, wake)
        try:
            await woken
        finally:
            timer.cancel()
            partition.waiters.discard(wake)
            self._waiting.discard(woken)

    @property
    def is_crowded(self) -> bool:
        """Whether `WAITERS_MAX` readers wait already."""
        return len(self._waiting) >= WAITERS_MAX

    def stop_waiting(self) -> None:
        """End all waits, because the server stops: waiting readers get what there is, and later ones do not wait."""
        self._is_stopping = True
        for woken in list(self._waiting):
            _resolver(woken)()


async def _read(
    log: ReadableLog, offset: int, end_offset: int, bytes_max: int
) -> tuple[LedgerId, list[StoredEntry]]:
    """As `ReadableLog.read_stored`, in several steps if entries are very small.

    Raises StorageError if the first step fails.
    """
    ledger_id, stored = await log.read_stored(offset, bytes_max)
    last_step = stored
    room = bytes_max
    while len(last_step) == READ_ENTRIES_MAX and (next_offset := stored[-1].last_offset + 1) < end_offset:
        room -= sum(len(one.body) for one in last_step)
        try:
            next_ledger_id, last_step = await log.read_stored(next_offset, room)
        except StorageError:
            break  # return what was found; the next request gets the error
        if next_ledger_id != ledger_id or len(last_step[0].body) > room:
            break
        stored += last_step
    return ledger_id, stored


def _wanted(
    stored: Sequence[StoredEntry], offset: int, end_offset: int, high_watermark: int
) -> Sequence[StoredEntry]:
    """The entries that begin before `end_offset` and end below the high watermark; the first one holds `offset`."""
    begin = offset
    for number, one in enumerate(stored):
        if begin >= end_offset or one.last_offset >= high_watermark:
            return stored[:number]
        begin = one.last_offset + 1
    return stored


def _parts(ledger_id: LedgerId, stored: Sequence[StoredEntry], bytes_max: int) -> list[Buffer]:
    """The records of entries, at least one, that fit `bytes_max`; runs on any thread."""
    parts: list[Buffer] = []
    size = 0
    for one in stored:
        size += RECORD_BYTES + len(one.body)
        if parts and size > bytes_max:
            break
        head = record_header(ledger_id, one.entry_id, one.last_offset, one.max_timestamp_ms, one.body)
        parts += (head, one.body)
    return parts


def _resolver(woken: "asyncio.Future[None]") -> Callable[..., None]:
    def resolve(*_partition: Partition) -> None:
        if not woken.done():
            woken.set_result(None)

    return resolve
