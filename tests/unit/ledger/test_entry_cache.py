"""The entry cache against a model, and the entry format byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.entry_cache import ENTRY_OVERHEAD_BYTES, CachedRun, Entry, EntryCache
from magnetar.ledger.entry_format import KafkaEntryPrefix, decode_entry, kafka_batch_of, varint
from magnetar.storage.store import EntryId, StoredEntry

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(1, 3), st.integers(1, 300)),
        st.tuples(st.just("drop"), st.integers(0, 2), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("clear"), st.integers(0, 2), st.just(0), st.just(0)),
    ),
    max_size=80,
)


@given(steps=STEPS, bytes_max=st.sampled_from([0, 500, 1500, 5000, 1 << 20]))
def test_a_run_is_the_unbroken_end_of_its_log_and_the_cache_keeps_its_size(
    steps: list[tuple[str, int, int, int]], bytes_max: int
) -> None:
    cache = EntryCache(bytes_max)
    runs = [CachedRun() for _ in range(3)]
    logs: list[list[Entry]] = [[], [], []]
    for kind, which, number, size in steps:
        run, log = runs[which], logs[which]
        end = log[-1].last_offset + 1 if log else 0
        match kind:
            case "add":
                entry = Entry(end, end + number - 1, 0, memoryview(bytes(size)))
                log.append(entry)
                cache.insert(run, entry)
            case "drop":
                keep = max(len(log) - number, 0)
                run.drop_from(log[keep].base_offset if keep < len(log) else end)
                del log[keep:]
            case _:
                run.clear()
                log.clear()
        held = 0
        for run, log in zip(runs, logs, strict=True):
            count = len(run)
            assert count <= len(log)
            kept = log[len(log) - count :]
            held += sum(len(entry.payload) + ENTRY_OVERHEAD_BYTES for entry in kept)
            end = log[-1].last_offset + 1 if log else 0
            for entry in log:
                found = run.read(entry.last_offset, 1, end)
                assert found == ([entry] if entry in kept else None)
            if kept:
                assert run.read(kept[0].base_offset, 1 << 30, end) == kept
                assert run.read(kept[0].base_offset, 1 << 30, kept[0].base_offset) == []
        assert held <= cache.bytes_used <= max(bytes_max, 0)


def test_reading_stops_at_the_bytes_asked_for_and_at_the_end_given() -> None:
    run = CachedRun()
    for base in range(0, 50, 10):
        run.push(Entry(base, base + 9, 0, memoryview(bytes(100))))
    assert [entry.base_offset for entry in run.read(15, 250, 50) or []] == [10, 20]
    assert [entry.base_offset for entry in run.read(15, 0, 50) or []] == [10]
    assert [entry.base_offset for entry in run.read(15, 1000, 35) or []] == [10, 20]
    assert run.read(50, 1000, 50) is None


def test_the_prefix_is_what_pulsar_s_tools_read() -> None:
    prefix = KafkaEntryPrefix().build(1_700_000_000_000, 300, 5)
    clock = varint(1_700_000_000_000)
    broker = b"\x08" + clock + b"\x10" + b"\xac\x02"
    message = b"\x0a\x00\x10\x00\x18" + clock + b"\x22\x15\x0a\x0centry.format\x12\x05kafka" + b"\x58\x05"
    expected = (
        b"\x0e\x02" + len(broker).to_bytes(4, "big") + broker + len(message).to_bytes(4, "big") + message
    )
    assert prefix == expected


def test_a_stored_entry_gives_back_its_batch_and_any_damage_is_noticed() -> None:
    batch = (123).to_bytes(8, "big") + b"the batch"
    body = KafkaEntryPrefix().build(1_700_000_000_000, 130, 8) + batch
    entry = decode_entry(StoredEntry(EntryId(4), 130, 77, memoryview(body)))
    assert (entry.base_offset, entry.last_offset, entry.max_timestamp_ms) == (123, 130, 77)
    assert bytes(entry.payload) == batch
    prefix = len(body) - len(batch)
    for size in range(prefix):
        with pytest.raises(EntryCorrupt):
            decode_entry(StoredEntry(EntryId(4), 130, 77, memoryview(body)[:size]))
    assert kafka_batch_of(memoryview(b"\x0e\x01" + body[2:])) is None
    for at in range(2, prefix):
        damaged = bytearray(body)
        damaged[at] ^= 0xFF
        try:
            kafka_batch_of(memoryview(damaged))
        except EntryCorrupt:
            continue
