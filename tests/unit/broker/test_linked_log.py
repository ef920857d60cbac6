"""Batches that keep their offsets: what a linked partition does with each, over gaps, repeats and crashes."""

import asyncio
import struct
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from magnetar.broker.errors import (
    CorruptMessage,
    InvalidRecord,
    OffsetsDiffer,
    TopicLinked,
    TopicTerminated,
    UnsupportedMessageFormat,
)
from magnetar.broker.log import linked
from magnetar.ledger.entry import Entry
from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.records import read_header

from .linked_batches import NOW_MS, copied
from .pulsar_entries import sent
from .test_producer_state import Bench, batch


async def entries_of(bench: Bench) -> list[Entry]:
    log = bench.partition.log
    found: list[Entry] = []
    while (at := found[-1].last_offset + 1 if found else log.log_start) < log.high_watermark:
        found += await log.read(at, 1 << 20)
    return found


async def records_of(bench: Bench) -> dict[int, bytes | None]:
    """What a consumer gets: values by offset."""
    found: dict[int, bytes | None] = {}
    for entry in await entries_of(bench):
        header = read_header(entry.payload)
        assert (header.base_offset, header.last_offset) == (entry.base_offset, entry.last_offset)
        if not header.is_control:
            found |= {one.offset: one.value for one in read_records(entry.payload, header)}
    return found


def send(bench: Bench, *batches: memoryview, end: int = 0) -> list[Exception | None]:
    """As a link does it; returns the list that gets the outcomes."""
    outcomes: list[Exception | None] = []
    for one in batches:
        linked.append(bench.partition, one, NOW_MS, outcomes.append)
    linked.cover(bench.partition, end, NOW_MS, outcomes.append)
    return outcomes


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def values(*offsets: int) -> dict[int, bytes]:
    return {offset: b"%d" % offset for offset in offsets}


def test_records_keep_their_offsets_and_gaps_are_covered() -> None:
    async def scenario() -> None:
        bench = Bench()
        outcomes = send(bench, copied(0, 3), copied(7, 2), copied(9), end=15)
        await bench.flush()
        assert outcomes == [None] * 5  # three batches, and two gaps
        assert await records_of(bench) == values(0, 1, 2, 7, 8, 9)
        spans = [(one.base_offset, one.last_offset) for one in await entries_of(bench)]
        assert spans == [(0, 2), (3, 6), (7, 8), (9, 9), (10, 14)]
        assert bench.partition.log.high_watermark == bench.partition.log.next_offset == 15
        assert bench.partition.last_stable_offset == 15

    run(scenario())


def test_what_is_there_already_is_dropped() -> None:
    async def scenario() -> None:
        bench = Bench()
        send(bench, copied(0, 3), copied(5))
        assert send(bench, copied(0, 3), copied(1), copied(4), copied(5), end=6) == []
        send(bench, copied(6, name=b"new "))
        await bench.flush()
        assert await records_of(bench) == values(0, 1, 2, 5) | {6: b"new 6"}

    run(scenario())


def test_a_batch_over_the_end_of_the_log_is_refused_and_leaves_the_log_as_it_was() -> None:
    async def scenario() -> None:
        bench = Bench()
        send(bench, copied(0, 3))
        with pytest.raises(OffsetsDiffer):
            send(bench, copied(2, 2))
        await bench.flush()
        assert bench.partition.log.next_offset == 3
        assert await records_of(bench) == values(0, 1, 2)

    run(scenario())


def test_a_restart_in_the_middle_goes_on_where_the_log_ends() -> None:
    async def scenario() -> None:
        bench = Bench()
        send(bench, copied(4, 2))
        await bench.flush()
        outcomes = send(bench, copied(9))
        await bench.crash(None)
        assert outcomes in ([], [None], [None, None])
        assert bench.partition.log.next_offset == 6
        send(bench, copied(4, 2), copied(9), end=10)
        await bench.flush()
        assert await records_of(bench) == values(4, 5, 9)
        assert bench.partition.log.high_watermark == 10

    run(scenario())


def test_a_large_gap_is_covered_by_few_entries_and_one_that_is_too_large_is_refused() -> None:
    async def scenario() -> None:
        bench = Bench()
        far = (1 << 32) + 5
        send(bench, copied(far))
        await bench.flush()
        assert len(await entries_of(bench)) == 6
        assert await records_of(bench) == values(far)
        with pytest.raises(InvalidRecord):
            send(bench, end=far + linked.GAP_MAX + 2)
        assert bench.partition.log.next_offset == far + 1

    run(scenario())


def test_what_is_no_batch_of_a_link_is_refused() -> None:
    bench = Bench()
    good = bytes(copied(0, 2))

    def changed(at: int, content: bytes) -> memoryview:
        return memoryview(good[:at] + content + good[at + len(content) :])

    for bad, error in [
        (changed(len(good) - 1, b"\xff"), CorruptMessage),
        (changed(16, b"\1"), UnsupportedMessageFormat),
        (batch(1, 5, 0, 0, NOW_MS), InvalidRecord),  # of an idempotent producer
    ]:
        with pytest.raises(error):
            linked.append(bench.partition, bad, NOW_MS, lambda _: None)
    below_zero = bytearray(good)
    below_zero[:8] = b"\xff" * 8
    with pytest.raises(InvalidRecord):
        linked.append(bench.partition, memoryview(below_zero), NOW_MS, lambda _: None)
    holed = bytearray(good)
    struct.pack_into(">i", holed, 23, 2)  # three offsets for two records
    struct.pack_into(">I", holed, 17, crc32c(holed[21:]))
    with pytest.raises(InvalidRecord, match="without gaps"):
        linked.append(bench.partition, memoryview(holed), NOW_MS, lambda _: None)
    crowded = bytearray(good)
    struct.pack_into(">i", crowded, 23, 999)
    struct.pack_into(">i", crowded, 57, 1000)
    struct.pack_into(">I", crowded, 17, crc32c(crowded[21:]))
    with pytest.raises(InvalidRecord, match="cannot hold 1000 records"):
        linked.append(bench.partition, memoryview(crowded), NOW_MS, lambda _: None)
    assert list(linked.split(memoryview(bytes(holed) + good))) == [holed, good]
    assert next(linked.split(memoryview(good + good[:-1]))) == good, (
        "one after the other: there may be very many"
    )
    for cut in (1, 60, len(good) - 1):
        with pytest.raises(InvalidRecord):
            list(linked.split(memoryview(good[:cut])))
    assert bench.partition.log.next_offset == 0


def test_producers_of_both_protocols_are_refused_while_the_topic_is_linked() -> None:
    bench = Bench()
    bench.partition.is_linked = True
    view = sent()
    with pytest.raises(TopicLinked):
        bench.partition.publish(view.data, view, NOW_MS, lambda _: None)
    with pytest.raises(TopicLinked):
        bench.partition.append(batch(1, -1, -1, -1, 0), NOW_MS, lambda _: None)
    bench.partition.is_terminated = True
    with pytest.raises(TopicTerminated):
        bench.partition.append(batch(1, -1, -1, -1, 0), NOW_MS, lambda _: None)


class LinkMachine(RuleBasedStateMachine):
    """A source whose log has gaps, a link that dies and begins again, and a server that crashes.

    `source` has the runs of records as (first offset, number); a copy must have all of those up to its end, and no
    others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.source: list[tuple[int, int]] = []
        self.end = 0  # of the source

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        async def make() -> Bench:
            return Bench()

        self.bench = self.do(make())

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.do(self.bench.flush())
            self.bench.partition.close()
            self.do(self.bench.flush())
        self.loop.close()

    @rule(gap=st.sampled_from((0, 0, 1, 5, 1000)), count=st.integers(1, 5))
    def produce(self, gap: int, count: int) -> None:
        self.source.append((self.end + gap, count))
        self.end += gap + count

    @rule(gap=st.integers(1, 3))
    def abort(self, gap: int) -> None:
        """The source's log ends with what is no record."""
        self.end += gap

    @rule(back=st.integers(0, 3), most=st.integers(0, 6), tells_end=st.booleans())
    def copy(self, back: int, most: int, tells_end: bool) -> None:
        """Some batches, of which the first ones may be stored already."""

        async def work() -> None:
            next_offset = self.bench.partition.log.next_offset
            first = max(len([one for one in self.source if one[0] < next_offset]) - back, 0)
            runs = self.source[first : first + most]
            is_all = first + most >= len(self.source)
            send(
                self.bench,
                *(copied(offset, count) for offset, count in runs),
                end=self.end if tells_end and is_all else 0,
            )

        self.do(work())

    @rule()
    def flush(self) -> None:
        self.do(self.bench.flush())

    @rule()
    def crash(self) -> None:
        self.do(self.bench.crash(None))

    @invariant()
    def the_copy_is_a_beginning_of_the_source(self) -> None:
        if hasattr(self, "bench"):
            self.do(self._check())

    async def _check(self) -> None:
        end = self.bench.partition.log.high_watermark
        expected: Sequence[int] = [
            offset for first, count in self.source for offset in range(first, first + count) if offset < end
        ]
        assert await records_of(self.bench) == values(*expected)


TestLinkMachine = LinkMachine.TestCase
TestLinkMachine.settings = settings(
    stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
