"""What Pulsar clients send, beside Kafka's batches in one log: offsets, positions, duplicates, restarts."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.broker.errors import InvalidRecord, TopicTerminated
from magnetar.ledger.entry import NO_ENTRY, NO_LEDGER, Entry, EntryKind
from magnetar.wire.pulsar.entry import EntryView

from .pulsar_entries import sent
from .test_producer_state import Bench, batch, settle

Outcome = list[Exception | None]


def publish(bench: Bench, view: EntryView) -> tuple[Entry, Outcome]:
    outcome: Outcome = []
    return bench.partition.publish(view.data, view, bench.clock.now_ms(), outcome.append), outcome


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_entries_of_both_protocols_share_the_offsets_of_one_log() -> None:
    async def scenario() -> None:
        bench = Bench()
        one, _ = publish(bench, sent(count=3))
        base, _ = bench.produce(7, 0, 0, count=2)
        two, _ = publish(bench, sent(sequence_id=3, payload=b"other"))
        assert (one.base_offset, one.last_offset, base, two.base_offset) == (0, 2, 3, 5)
        await bench.flush()
        log = bench.partition.log
        for entries in (log.read_cached(0, 1 << 20, 6), await log.read(0, 1 << 20)):
            assert entries is not None
            assert [(e.base_offset, e.last_offset) for e in entries] == [(0, 2), (3, 4), (5, 5)]
            assert [e.kind for e in entries] == [EntryKind.PULSAR, EntryKind.KAFKA, EntryKind.PULSAR]
            assert [(e.ledger_id, e.entry_id) for e in entries] == [(one.ledger_id, n) for n in range(3)]
            assert entries[2].payload == sent(sequence_id=3, payload=b"other").data
        assert (await log.locate(two.ledger_id, two.entry_id)) is two

    run(scenario())


def test_the_newest_time_of_an_entry_is_what_lookups_and_retention_go_by() -> None:
    async def scenario() -> None:
        bench = Bench()
        now_ms = bench.clock.now_ms()
        hour_ms = 3_600_000
        assert bench.partition.topic.config.timestamp_after_max_ms == hour_ms
        for published_ms, event_ms, newest_ms in [
            (now_ms, 0, now_ms),
            (now_ms, now_ms - 5, now_ms),
            (now_ms, now_ms + 5, now_ms + 5),
            (now_ms - 20 * hour_ms, 0, now_ms - 20 * hour_ms),
            (now_ms - 25 * hour_ms, 5, now_ms),  # a wrong clock: it is not as old as it says
            (1, 0, now_ms),
            (now_ms, now_ms * 1000, now_ms + hour_ms),  # microseconds: not in a thousand years
            ((1 << 64) - 1, 0, now_ms + hour_ms),
        ]:
            entry, _ = publish(bench, sent(published_ms=published_ms, event_ms=event_ms))
            assert entry.max_timestamp_ms == newest_ms
        await bench.flush()
        assert bench.partition.log.max_timestamp_ms == now_ms + hour_ms

    run(scenario())


def test_an_entry_without_its_checksum_is_refused() -> None:
    """Its bytes would begin like what stands in front of a Kafka batch."""
    bench = Bench()
    view = sent()
    with pytest.raises(InvalidRecord):
        bench.partition.publish(view.data[6:], view, 0, lambda error: None)
    assert bench.partition.log.next_offset == 0


def test_a_terminated_topic_takes_nothing_from_any_producer() -> None:
    bench = Bench()
    bench.partition.is_terminated = True
    with pytest.raises(TopicTerminated):
        publish(bench, sent())
    with pytest.raises(TopicTerminated):
        bench.partition.append(batch(1, -1, -1, -1, 0), 0, lambda error: None)


def test_duplicates_are_stored_unless_a_policy_says_otherwise() -> None:
    async def scenario() -> None:
        bench = Bench()
        for offset in range(3):
            entry, _ = publish(bench, sent())
            assert entry.base_offset == offset
        assert bench.partition.last_sequence_id("p") == -1
        await bench.flush()
        assert bench.partition.last_sequence_id("p") == -1

    run(scenario())


def test_a_duplicate_is_acknowledged_without_a_position_when_all_before_it_is_durable() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.partition.deduplicate(True)
        order: list[str] = []

        def send(name: str, view: EntryView) -> Entry:
            return bench.partition.publish(view.data, view, 0, lambda error: order.append(name))

        send("first", sent(sequence_id=5))
        again = send("again", sent(sequence_id=5))
        send("older", sent(sequence_id=2))
        send("next", sent(sequence_id=6))
        assert (again.ledger_id, again.entry_id) == (NO_LEDGER, NO_ENTRY)
        assert order == []
        assert bench.partition.last_sequence_id("p") == -1, "nothing is durable yet"
        await bench.flush()
        assert order == ["first", "again", "older", "next"]
        assert (bench.partition.last_sequence_id("p"), bench.partition.log.high_watermark) == (6, 2)
        send("at once", sent(sequence_id=6))
        assert order[-1] == "at once"
        assert send("other producer", sent("q", sequence_id=1)).base_offset == 2

    run(scenario())


def test_a_batch_is_a_duplicate_when_all_of_it_was_published() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.partition.deduplicate(True)
        assert publish(bench, sent(sequence_id=0, count=10))[0].last_offset == 9
        for sequence_id, count in [(0, 10), (3, 4), (9, 1)]:
            assert publish(bench, sent(sequence_id=sequence_id, count=count))[0].base_offset == -1
        overlapping, _ = publish(bench, sent(sequence_id=5, count=10))
        assert overlapping.message_count == 10, "half of it is new, and is stored nowhere else"
        assert publish(bench, sent(sequence_id=14))[0].base_offset == -1
        assert publish(bench, sent(sequence_id=15))[0].base_offset == 20

    run(scenario())


def test_chunks_of_one_message_are_not_duplicates_of_each_other() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.partition.deduplicate(True)
        chunks = [sent(sequence_id=4, chunk=(index, 3)) for index in range(3)]
        assert [publish(bench, chunk)[0].base_offset for chunk in chunks[:2]] == [0, 1]
        # The connection broke: what was not acknowledged comes again, and consumers know chunks by their number.
        assert [publish(bench, chunk)[0].base_offset for chunk in chunks[1:]] == [2, 3]
        assert [publish(bench, chunk)[0].base_offset for chunk in chunks] == [-1, -1, -1]
        assert publish(bench, sent(sequence_id=5))[0].base_offset == 4

    run(scenario())


def test_sequence_ids_that_no_signed_number_holds_are_not_remembered() -> None:
    bench = Bench()
    bench.partition.deduplicate(True)

    async def scenario() -> None:
        for _ in range(2):
            publish(bench, sent(sequence_id=(1 << 64) - 1))
        assert bench.partition.log.next_offset == 2
        bench.partition.snapshot()

    run(scenario())


def test_what_failed_may_come_again_and_what_was_stored_before_it_may_not() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.partition.deduplicate(True)
        publish(bench, sent(sequence_id=1))
        await bench.flush()
        for sequence_id in (2, 3, 4):
            publish(bench, sent(sequence_id=sequence_id))
        bench.store.fail()
        await settle()
        assert bench.partition.last_sequence_id("p") == 1
        assert publish(bench, sent(sequence_id=1))[0].base_offset == -1
        assert publish(bench, sent(sequence_id=2))[0].base_offset == 1

    run(scenario())


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_restart_remembers_what_producers_have_published(with_snapshot: bool) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.deduplicates = True
        bench.partition.deduplicate(True)
        publish(bench, sent(sequence_id=8, count=2))
        publish(bench, sent("q", sequence_id=3, chunk=(0, 2)))
        bench.produce(7, 0, 0)
        await bench.flush()
        snapshot = bench.partition.snapshot() if with_snapshot else None
        publish(bench, sent("r", sequence_id=1))
        await bench.flush()
        await bench.crash(snapshot)
        names = ("p", "q", "r", "nobody")
        assert [bench.partition.last_sequence_id(name) for name in names] == [9, -1, 1, -1]
        assert len(bench.partition.producers) == 1
        assert publish(bench, sent(sequence_id=9))[0].base_offset == -1
        assert publish(bench, sent("q", sequence_id=3, chunk=(0, 2)))[0].base_offset == 5

    run(scenario())


def test_turned_off_it_stores_what_comes_again() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.partition.deduplicate(True)
        publish(bench, sent(sequence_id=5))
        bench.partition.deduplicate(True)
        assert publish(bench, sent(sequence_id=5))[0].base_offset == -1
        bench.partition.deduplicate(False)
        assert publish(bench, sent(sequence_id=5))[0].base_offset == 1

    run(scenario())
