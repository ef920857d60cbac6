"""What becomes of single entries: those of aborted transactions, markers, and what is kept until a time."""

from collections.abc import Sequence

import pytest

from magnetar.broker.compaction.entries import Entries, Written
from magnetar.broker.log.model import AbortedRange
from magnetar.ledger.entry_format import EntryPrefix, decode_entry
from magnetar.ledger.moved_entry import behind_metadata, moved
from magnetar.storage.store import Buffer, EntryId, LedgerId, StoredEntry
from magnetar.wire.compaction.plain import PlainLatest
from magnetar.wire.kafka.records import HEADER_SIZE, end_transaction_marker, read_header
from magnetar.wire.stored import Origin, origin_of
from tests.unit.broker.compaction.keyed import Pair, kafka_batch, pulsar_entry

LEDGER = LedgerId(1)
NOW_MS, RETAIN_MS = 1_700_000_000_000, 100
TOMBSTONE: Pair = (b"k", None)
VALUE: Pair = (b"k", b"v")


def stored(last: int, body: Buffer, count: int = 1, *, keep_until_ms: int | None = None) -> StoredEntry:
    """An entry of Kafka's or, with `keep_until_ms`, one that was moved and says so."""
    batch = bytearray(body)
    batch[:8] = (last - count + 1).to_bytes(8)  # as the log gives it its offsets
    whole = memoryview(EntryPrefix().kafka(NOW_MS, last, count) + batch)
    if keep_until_ms is not None:
        parts = moved(whole, Origin(1, last, keep_until_ms), count, behind_metadata(whole))
        whole = memoryview(b"".join(parts))
    return StoredEntry(EntryId(last), last, 1, whole)


def batch(
    last: int, *pairs: Pair, producer: int | None = None, keep_until_ms: int | None = None
) -> StoredEntry:
    records = kafka_batch(
        pairs,
        [1] * len(pairs),
        producer=(-1 if producer is None else producer, 0, 0),
        is_transactional=producer is not None,
    )
    return stored(last, records, len(pairs), keep_until_ms=keep_until_ms)


def message(last: int, *pairs: Pair, transaction: int | None = None) -> StoredEntry:
    view = pulsar_entry(pairs, 1, transaction=transaction)
    body = EntryPrefix().pulsar(NOW_MS, last, len(pairs)) + bytes(view.data)
    return StoredEntry(EntryId(last), last, 1, memoryview(body))


def marker(last: int, producer: int, *, commit: bool = True, keep_until_ms: int | None = None) -> StoredEntry:
    return stored(last, end_transaction_marker(producer, 0, 0, 1, commit=commit), keep_until_ms=keep_until_ms)


def walk(
    log: Sequence[StoredEntry],
    aborted: Sequence[AbortedRange] = (),
    *,
    now_ms: int = NOW_MS,
    retain_ms: int | None = RETAIN_MS,
) -> tuple[Entries, list[Written | None]]:
    entries = Entries(PlainLatest(100, bytes(16)), aborted, now_ms, retain_ms)
    assert all(entries.note(LEDGER, one) for one in log)
    return entries, [entries.rewrite(LEDGER, one) for one in log]


def keep_until(written: Written | None) -> int:
    assert written is not None
    origin = origin_of(memoryview(b"".join(bytes(part) for part in written.parts)))
    assert origin is not None
    return origin.keep_until_ms


def test_before_a_walk_everything_stays() -> None:
    entries = Entries(PlainLatest(100, bytes(16)), (), NOW_MS, RETAIN_MS)
    assert (entries.end, entries.removed, entries.has_changed) == (0, 0, False)
    assert entries.rewrite(LEDGER, batch(0, VALUE)) is not None


def test_what_lies_behind_the_first_walk_stays() -> None:
    entries = Entries(PlainLatest(100, bytes(16)), (AbortedRange(7, 1, 2),), NOW_MS, RETAIN_MS)
    assert entries.note(LEDGER, batch(0, VALUE))
    assert entries.end == 1
    assert entries.rewrite(LEDGER, batch(1, VALUE, producer=7)) is not None


def test_records_of_aborted_transactions_are_counted_and_go() -> None:
    log = [batch(1, VALUE, VALUE, producer=7), message(4, VALUE, VALUE, VALUE, transaction=8)]
    entries, left = walk(log, [AbortedRange(7, 0, 5), AbortedRange(8, 2, 6)])
    assert left == [None, None]
    assert entries.removed == 5


def test_only_records_of_the_aborted_transaction_go() -> None:
    log = [
        batch(0, (b"a", b"v"), producer=7),
        message(1, (b"b", b"v")),
        batch(5, (b"c", b"v"), producer=7),  # behind the marker at 5 there would be another transaction
    ]
    assert None not in walk(log, [AbortedRange(7, 1, 5)])[1]
    plain = stored(2, kafka_batch([(b"d", b"v")], [1], producer=(7, 0, 0)))
    assert None not in walk([plain], [AbortedRange(7, 0, 5)])[1], "it was written outside of it"


@pytest.mark.parametrize("kind", ["kafka", "pulsar"])
def test_a_marker_stays_as_it_is_while_a_record_of_its_transaction_does(kind: str) -> None:
    records = batch(0, VALUE, producer=7) if kind == "kafka" else message(0, VALUE, transaction=7)
    entries, left = walk([records, marker(1, 7), marker(2, 7)])
    assert keep_until(left[1]) == 0
    assert keep_until(left[2]) == NOW_MS + RETAIN_MS, "of this one there is no record"
    assert entries.has_changed


def test_a_marker_whose_records_are_gone_goes_too() -> None:
    old, new = batch(0, VALUE, producer=7), batch(1, VALUE, producer=8)
    entries, left = walk([old, new, marker(2, 7)])
    assert left[0] is None
    assert keep_until(left[2]) == NOW_MS + RETAIN_MS
    assert entries.removed == 1


def test_an_abort_marker_and_one_of_the_first_producer_stay() -> None:
    entries, left = walk([marker(0, 0), marker(1, 7, commit=False)])
    assert keep_until(left[0]) == NOW_MS + RETAIN_MS
    assert keep_until(left[1]) == 0
    assert entries.removed == 0


@pytest.mark.parametrize(("until_ms", "goes"), [(NOW_MS, True), (1, True), (NOW_MS + 1, False), (0, False)])
def test_a_marker_and_a_tombstone_go_once_their_time_has_come(until_ms: int, goes: bool) -> None:
    entries, (found,) = walk([marker(0, 7, keep_until_ms=until_ms)])
    assert (found is None) is goes
    assert entries.removed == int(goes)
    entries, (found,) = walk([batch(0, TOMBSTONE, keep_until_ms=until_ms)])
    assert (found is None) is goes
    assert entries.removed == int(goes)
    if not goes:
        assert keep_until(found) == (until_ms or NOW_MS + RETAIN_MS)


def test_what_is_kept_for_no_time_is_kept_until_now() -> None:
    entries, (found,) = walk([batch(0, TOMBSTONE)], retain_ms=0)
    assert keep_until(found) == NOW_MS
    assert entries.has_changed


def test_an_entry_without_tombstones_is_kept_until_no_time() -> None:
    entries, (found,) = walk([batch(0, VALUE, keep_until_ms=NOW_MS + 5)])
    assert keep_until(found) == 0
    assert not entries.has_changed


@pytest.mark.parametrize(
    ("retain_ms", "kafka_stays", "pulsar_stays"), [(RETAIN_MS, False, True), (None, False, False)]
)
def test_what_has_no_key_stays_where_it_was_taken(
    retain_ms: int | None, kafka_stays: bool, pulsar_stays: bool
) -> None:
    _, left = walk([batch(0, (None, b"v")), message(1, (None, b"v"))], retain_ms=retain_ms)
    assert [one is not None for one in left] == [kafka_stays, pulsar_stays]


@pytest.mark.parametrize("retain_ms", [RETAIN_MS, None])
def test_beside_a_log_empty_values_and_markers_go(retain_ms: int | None) -> None:
    _, left = walk([message(0, (b"k", b"")), marker(1, 7)], retain_ms=retain_ms)
    assert [one is None for one in left] == [retain_ms is None] * 2


def test_neither_a_marker_nor_an_aborted_record_takes_the_place_of_a_record() -> None:
    commit = b"\0\0\0\1"  # a marker's own key
    log = [batch(0, VALUE), batch(1, (commit, b"v")), batch(2, VALUE, producer=7), marker(3, 8)]
    entries, left = walk(log, [AbortedRange(7, 2, 4)])
    assert [one is not None for one in left] == [True, True, False, True]
    assert entries.removed == 1


def test_a_record_beyond_its_batch_is_damage_and_stays() -> None:
    damaged = bytearray(kafka_batch([VALUE], [1]))
    damaged[HEADER_SIZE + 3] = 2  # an offset delta of 1, where the batch has one record
    entries, left = walk([stored(0, damaged), batch(5, VALUE)])
    assert None not in left
    assert entries.removed == 0


def test_a_cover_has_no_time() -> None:
    entries, _ = walk([batch(1, VALUE, VALUE)])
    cover = entries.cover(LEDGER, batch(1, VALUE, VALUE), 3)
    assert keep_until(cover) == 0
    assert (cover.last_offset, cover.max_timestamp_ms) == (1, -1)
    body = memoryview(b"".join(bytes(part) for part in cover.parts))
    entry = decode_entry(LEDGER, StoredEntry(EntryId(0), 1, -1, body))
    assert read_header(entry.payload).max_timestamp_ms == -1


def test_the_last_record_of_a_batch_is_the_last_of_its_key() -> None:
    entries, left = walk([batch(2, VALUE, (b"other", b"v"), VALUE), batch(3, (b"other", b"w"))])
    assert entries.removed == 2
    assert left[0] is not None
    assert left[0].last_offset == 2
