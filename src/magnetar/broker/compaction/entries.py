"""Reads a log's entries one after the other: it notes their keys, and decides which of their records stay.

It runs on any one thread.  Some entries cannot be read: encrypted messages, chunks, records that are damaged although
the client's checksum is right, and Pulsar's own markers.  Those stay unchanged, and their keys do not count.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from magnetar.base.errors import WireError
from magnetar.broker.log.model import AbortedRange
from magnetar.broker.log.pulsar_transactions import transaction_of
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.ledger.entry_format import EntryPrefix, decode_entry
from magnetar.ledger.moved_entry import behind_metadata, moved
from magnetar.storage.store import Buffer, LedgerId, StoredEntry
from magnetar.wire.compaction import Latest, Rules
from magnetar.wire.compaction.batches import kafka_batch, pulsar_batch
from magnetar.wire.convert import engine, plain
from magnetar.wire.convert.batches import covering_batch, publish_time_ms
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.kafka.record_reader import expand
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    BatchHeader,
    marker_commits,
    read_header,
)
from magnetar.wire.pulsar.entry import EntryView, read_entry
from magnetar.wire.stored import Origin, origin_of

_NO_TIME: Final = -1


class Written(NamedTuple):
    """An entry for the new ledger: its body in parts, and the numbers for the store."""

    parts: Sequence[Buffer]
    size: int
    last_offset: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of an entry as Kafka's records; `source` has their bytes."""

    records: Buffer
    count: int
    last_delta: int
    source: BatchHeader | EntryView


class AbortedRecords:
    """The records of aborted transactions, which do not count."""

    def __init__(self, ranges: Iterable[AbortedRange]) -> None:
        self._by_producer: dict[int, list[AbortedRange]] = {}
        for one in sorted(ranges, key=lambda one: one.first_offset):
            self._by_producer.setdefault(one.producer_id, []).append(one)

    def has_batch(self, header: BatchHeader) -> bool:
        """Whether a Kafka batch belongs to an aborted transaction."""
        return header.is_transactional and self._has(header.producer_id, header.base_offset)

    def has_entry(self, view: EntryView, base_offset: int) -> bool:
        """Whether an entry of a Pulsar client belongs to an aborted transaction."""
        producer_id = transaction_of(view)
        return producer_id is not None and self._has(producer_id, base_offset)

    def _has(self, producer_id: int, base_offset: int) -> bool:
        ranges = self._by_producer.get(producer_id, ())
        index = bisect_right(ranges, base_offset, key=lambda one: one.first_offset) - 1
        return index >= 0 and base_offset < ranges[index].last_offset


class Entries:
    """See the module's text.  There are two passes, each in the order of the log: `note`, then `rewrite`.

    end        where the pass that notes keys has ended: records after it stay unchanged
    now_ms     tombstones and markers that had to stay until this time or earlier are removed
    retain_ms  how long newly found tombstones and markers stay.  None is for Pulsar's compaction: they are removed at
               once, and empty values are tombstones, too.  Readers of its ledgers need no markers
    """

    def __init__(
        self, latest: Latest, aborted: Iterable[AbortedRange], now_ms: int, retain_ms: int | None
    ) -> None:
        self.end = 0
        self.removed = 0  # records and markers that `rewrite` has removed
        self.has_changed = (
            False  # records were removed, or got a time until which they stay; callers reset it
        )
        self._latest = latest
        self._aborted = AbortedRecords(aborted)
        self._now_ms = now_ms
        self._retain_ms = retain_ms
        # Producers with records of a transaction whose marker comes later.
        self._kept_of: set[int] = set()
        self._prefixes = EntryPrefix()

    # --- the first walk ----------------------------------------------------------------------------------------------

    def note(self, ledger_id: LedgerId, stored: StoredEntry) -> bool:
        """Note the entry's keys; false if the table has no room for them."""
        entry = decode_entry(ledger_id, stored)
        content = self._content(entry)
        if content is not None:
            if not self._latest.has_room(content.count):
                return False
            with suppress(WireError):  # it stays unchanged
                self._latest.note(content.records, content.count, content.last_delta, entry.base_offset)
        self.end = entry.last_offset + 1
        return True

    # --- the second walk ---------------------------------------------------------------------------------------------

    def rewrite(self, ledger_id: LedgerId, stored: StoredEntry) -> Written | None:
        """The entry without the records that go; None if no record stays."""
        entry = decode_entry(ledger_id, stored)
        origin = origin_of(stored.body) or Origin(entry.ledger_id, entry.entry_id, 0)
        if entry.base_offset >= self.end:
            return _written(entry, stored, origin)
        if entry.kind is EntryKind.KAFKA:
            header = read_header(entry.payload)
            if header.is_control:
                return self._marker(entry, stored, origin, header)
            if self._aborted.has_batch(header):
                self.removed += header.record_count
                return None
            producer_id = header.producer_id if header.is_transactional else None
        else:
            view = _view_of(entry)
            if view is not None and self._aborted.has_entry(view, entry.base_offset):
                self.removed += entry.message_count
                return None
            producer_id = None if view is None else transaction_of(view)
        written = self._left_of(entry, stored, origin)
        if written is not None and producer_id is not None:
            self._kept_of.add(producer_id)
        return written

    def _left_of(self, entry: Entry, stored: StoredEntry, origin: Origin) -> Written | None:
        content = self._content(entry)
        if content is None:
            return _written(entry, stored, origin)
        is_due = self._retain_ms is None or 0 < origin.keep_until_ms <= self._now_ms
        # A Kafka client's record without a key is from a time when the topic was not compacted; today it would be
        # refused.  Pulsar clients' records without keys are accepted, so they stay: a record is removed only if a
        # later one replaces it.
        keeps_keyless = self._retain_ms is not None and isinstance(content.source, EntryView)
        try:
            chosen = self._latest.choose(
                content.records,
                content.count,
                content.last_delta,
                entry.base_offset,
                Rules(is_due, self._retain_ms is None, keeps_keyless),
            )
        except WireError:
            return _written(entry, stored, origin)
        self.removed += content.count - len(chosen.deltas)
        if not chosen.deltas:
            return None
        origin = self._until(origin) if chosen.has_tombstones else origin._replace(keep_until_ms=0)
        if chosen.records is None:
            return _written(entry, stored, origin)
        if isinstance(content.source, EntryView):
            return _written(entry, stored, origin, pulsar_batch(content.source, set(chosen.deltas)))
        batch = kafka_batch(content.source, chosen.records, len(chosen.deltas), chosen.newest_ms)
        time_ms = read_header(memoryview(batch)).max_timestamp_ms
        front = behind_metadata(stored.body)[: -len(entry.payload)]
        return _written(entry, stored, origin, bytes(front) + batch, time_ms)

    def cover(self, ledger_id: LedgerId, stored: StoredEntry, leader_epoch: int) -> Written:
        """An empty entry in place of the last entry of a ledger, for when compaction removes all of that ledger."""
        entry = decode_entry(ledger_id, stored)
        origin = Origin(entry.ledger_id, entry.entry_id, 0)
        prefix = self._prefixes.kafka(self._now_ms, entry.last_offset, entry.message_count)
        batch = covering_batch(entry.base_offset, entry.last_offset, leader_epoch, _NO_TIME)
        rest = bytes(behind_metadata(memoryview(prefix))) + bytes(batch)
        return _written(entry, stored, origin, rest, _NO_TIME)

    def _marker(
        self, entry: Entry, stored: StoredEntry, origin: Origin, header: BatchHeader
    ) -> Written | None:
        if header.producer_id < 0 or self._retain_ms is None:
            return None  # it covered the end of a ledger, or is an old marker
        has_records = header.producer_id in self._kept_of
        self._kept_of.discard(header.producer_id)
        if has_records or not marker_commits(entry.payload):
            return _written(entry, stored, origin)
        if 0 < origin.keep_until_ms <= self._now_ms:
            self.removed += 1
            return None
        return _written(entry, stored, self._until(origin))

    def _until(self, origin: Origin) -> Origin:
        """A copy of `origin` with the time until which the entry stays: `retain_ms` after it was first found."""
        if origin.keep_until_ms:
            return origin
        self.has_changed = True
        return origin._replace(keep_until_ms=self._now_ms + (self._retain_ms or 0))

    def _content(self, entry: Entry) -> _Content | None:
        """The records to examine; None for an entry that stays unchanged, or does not count."""
        last_delta = entry.message_count - 1
        try:
            if entry.kind is EntryKind.KAFKA:
                header = read_header(entry.payload)
                if header.is_control or self._aborted.has_batch(header):
                    return None
                data = expand(entry.payload[HEADER_SIZE:], header.attributes & COMPRESSION_MASK)
                return _Content(data, header.record_count, last_delta, header)
            view = read_entry(entry.payload, verify=False)
            if view.is_marker or view.is_chunk or self._aborted.has_entry(view, entry.base_offset):
                return None
            metadata = view.metadata
            if view.is_encrypted:
                if view.is_batch or self._retain_ms is not None:
                    return None
                # Its key can be read, and Pulsar's compactor uses it.
                records = plain.record_of(metadata, view.payload, 0)
                return _Content(records.data, 1, last_delta, view)
            payload = expand_pulsar(view.payload, metadata.compression, metadata.uncompressed_size)
            sent_ms = publish_time_ms(metadata)
            if view.is_batch:
                records = engine.records_of(payload, view.num_messages, sent_ms, 0)
            else:
                records = plain.record_of(metadata, payload, sent_ms)
            return _Content(records.data, records.record_count, last_delta, view)
        except WireError:
            return None


def _view_of(entry: Entry) -> EntryView | None:
    """The decoded metadata of a Pulsar client's entry; None if it cannot be read."""
    try:
        return read_entry(entry.payload, verify=False)
    except WireError:
        return None


def _written(
    entry: Entry, stored: StoredEntry, origin: Origin, rest: bytes | None = None, time_ms: int | None = None
) -> Written:
    """The entry at its new place; `rest` is the new content after the broker's metadata, if it has changed."""
    behind = behind_metadata(stored.body) if rest is None else rest
    parts = moved(stored.body, origin, entry.message_count, behind)
    time_ms = stored.max_timestamp_ms if time_ms is None else time_ms
    return Written(parts, sum(map(len, parts)), stored.last_offset, time_ms)
