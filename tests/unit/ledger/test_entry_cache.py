"""The entry cache against a model."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.entry import NO_ENTRY, NO_LEDGER, Entry
from magnetar.ledger.entry_cache import ENTRY_OVERHEAD_BYTES, CachedRun, EntryCache
from magnetar.storage.store import READ_ENTRIES_MAX, EntryId, LedgerId

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


def test_of_the_smallest_entries_no_more_are_read_than_one_turn_of_the_loop_handles() -> None:
    run = CachedRun()
    for base in range(READ_ENTRIES_MAX + 5):
        run.push(Entry(base, base, 0, memoryview(b"x")))
    found = run.read(3, 1 << 30, READ_ENTRIES_MAX + 5) or []
    assert [entry.base_offset for entry in found] == list(range(3, READ_ENTRIES_MAX + 3))
    assert len(run.read(6, 1 << 30, READ_ENTRIES_MAX + 5) or []) == READ_ENTRIES_MAX - 1


def test_an_entry_is_found_by_its_position_while_it_is_cached() -> None:
    cache = EntryCache(1 << 20)
    run = CachedRun()
    entries = []
    for number, position in enumerate([(3, 0), (3, 1), (7, 0), (NO_LEDGER, NO_ENTRY), (NO_LEDGER, NO_ENTRY)]):
        entry = Entry(number, number, 0, memoryview(b""))
        entry.ledger_id, entry.entry_id = LedgerId(position[0]), EntryId(position[1])
        entries.append(entry)
        cache.insert(run, entry)
    for entry in entries[:3]:
        assert run.find(entry.ledger_id, entry.entry_id) is entry
    for ledger, number in [(-1, -1), (2, 0), (3, -1), (3, 2), (7, 1), (8, 0), (1 << 63, 1 << 63)]:
        assert run.find(LedgerId(ledger), EntryId(number)) is None
    run.pop_oldest()
    assert run.find(LedgerId(3), EntryId(0)) is None
    assert run.find(LedgerId(3), EntryId(1)) is entries[1]
