"""What the catalogue makes of ledgers and of how far their files reach."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.base.errors import BrokerError, LeaseNotFound, LedgerNotFound, StorageError, TooManyLeases
from magnetar.base.names import TopicName
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.history.model import Located, Range
from magnetar.broker.history.segments import CUTS_MAX, SegmentCatalogue
from magnetar.broker.log.partition import Partition
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.entry_format import decode_entry
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.storage.store import LedgerId, LedgerStat, SegmentStat
from magnetar.testing.clock import FakeClock

RECORDS = 100  # offsets of each ledger


class Leases:
    def __init__(self) -> None:
        self.held: dict[str, set[int]] = {}
        self.saved: dict[str, set[int]] = {}
        self.refuse: BrokerError | None = None

    def open(self, length_s: int) -> str:
        self.held["lease"] = set()
        return "lease"

    def add(self, lease_id: str, ledgers: Iterable[LedgerId]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.held[lease_id] |= set(ledgers)

    async def save(self, lease_id: str) -> None:
        self.saved[lease_id] = set(self.held[lease_id])

    async def renew(self, lease_id: str, length_s: int | None) -> None:
        if lease_id not in self.held:
            raise LeaseNotFound(lease_id)

    async def end(self, lease_id: str) -> None:
        del self.held[lease_id]
        self.saved.pop(lease_id, None)


class Files:
    """`missing` offsets of a ledger are not in its file yet; `writable` says whether they can be."""

    def __init__(self, leases: Leases) -> None:
        self.store_id = "store"
        self.leases = leases
        self.missing: dict[int, int] = {}
        self.gone: set[int] = set()
        self.writable = True
        self.written_out: list[int] = []
        self.asked: list[tuple[int, int, int, int]] = []

    def stat(self, ledger_id: LedgerId) -> SegmentStat | None:
        if ledger_id in self.gone:
            return None
        count = RECORDS - self.missing.get(ledger_id, 0)
        last = (ledger_id - 1) * RECORDS + count - 1 if count else -1
        return SegmentStat(f"/{ledger_id}.segment", True, count * 10, count, last, ledger_id)

    async def write_out(self, ledger_id: LedgerId) -> None:
        self.written_out.append(ledger_id)
        if self.writable:
            self.missing.pop(ledger_id, None)

    async def find_cuts(
        self, ledger_id: LedgerId, from_offset: int, to_offset: int, step_bytes: int
    ) -> tuple[list[tuple[int, int]], int]:
        assert not self.leases.held or ledger_id in self.leases.held["lease"]
        self.asked.append((ledger_id, from_offset, to_offset, step_bytes))
        if ledger_id in self.gone:
            raise LedgerNotFound("gone")
        return [(-1, 0)], 10 * RECORDS


class Store:
    def __init__(self) -> None:
        self.leases = Leases()
        self.segment_files = Files(self.leases)


def catalogue(count: int, ledger_bytes: int = 10 * RECORDS) -> tuple[SegmentCatalogue, Store]:
    """Of a topic `t` whose only partition has `count` ledgers of `RECORDS` offsets each."""
    clock = FakeClock()
    nothing: Any = None
    store = Store()
    environment = LedgerEnvironment(nothing, nothing, EntryCache(0), clock, decode_entry)
    ids = range(1, count + 1)
    stats = {
        LedgerId(one): LedgerStat(LedgerId(one), RECORDS, ledger_bytes, one * RECORDS - 1, one, True)
        for one in ids
    }
    document = {"v": 1, "epoch": 0, "first": 0, "log_start": 0, "ledgers": [[one, 0, 0] for one in ids]}
    topic: Any = SimpleNamespace(name=TopicName.parse("t"))
    partition = Partition(topic, 0, [1], partial(ManagedLedger, "log", environment, LedgerLimits()))
    partition.log.restore(json.dumps(document).encode(), 0, stats)

    def find(name: str) -> Any:
        if name != "t":
            raise UnknownTopic(name)
        return SimpleNamespace(partition=lambda _: partition)

    ledgers: Any = store
    return SegmentCatalogue(ledgers, find, lambda name: name.local, nothing), store


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_long_chain_is_located_while_others_get_their_turns() -> None:
    async def scenario() -> None:
        made, store = catalogue(10_000)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        lease, (found,) = await made.locate_all([Range("t", 0)], lease_s=60)
        beside.cancel()
        assert isinstance(found, Located)
        assert len(found.segments) == 10_000
        assert found.tail_from == found.to_offset == 1_000_000
        assert turns >= 100
        assert lease is not None
        assert len(store.leases.saved[lease]) == 10_000

    run(scenario)


@pytest.mark.parametrize(
    ("first", "end", "ledgers"),
    [
        (0, 1000, range(1, 11)),
        (99, 101, [1, 2]),
        (100, 200, [2]),
        (150, 151, [2]),
        (950, 9999, [10]),
        (0, 1, [1]),
    ],
)
def test_only_the_ledgers_of_the_range_are_named(first: int, end: int, ledgers: Iterable[int]) -> None:
    async def scenario() -> None:
        made, store = catalogue(10)
        found = await made.locate(Range("t", 0, first, end))
        assert [one.ledger_id for one in found.segments] == list(ledgers)
        assert (found.from_offset, found.to_offset) == (first, min(end, 1000))
        assert found.tail_from == found.to_offset
        # The first segment's index is needed only where the range begins inside.
        assert store.segment_files.asked[0][1] == (-1 if first % RECORDS == 0 else first)

    run(scenario)


@pytest.mark.parametrize(("first", "end"), [(1000, 1000), (5000, 6000), (300, 300), (300, 200)])
def test_an_empty_range_has_neither_segments_nor_tail_nor_lease(first: int, end: int) -> None:
    async def scenario() -> None:
        made, store = catalogue(10)
        lease, (found,) = await made.locate_all([Range("t", 0, first, end)], lease_s=60)
        assert isinstance(found, Located)
        assert found.segments == []
        assert found.tail_from == found.from_offset == found.to_offset == min(first, 1000)
        assert lease is None
        assert not store.leases.held

    run(scenario)


def test_what_the_last_file_lacks_is_tail_and_what_others_lack_is_written_out() -> None:
    async def scenario() -> None:
        made, store = catalogue(5)
        store.segment_files.missing = {2: 30, 5: 40}
        found = await made.locate(Range("t", 0))
        assert store.segment_files.written_out == [2]
        assert len(found.segments) == 5
        assert found.tail_from == 460
        assert found.segments[-1].last_offset == 459

    run(scenario)


def test_a_file_that_cannot_be_written_out_makes_all_behind_it_tail() -> None:
    async def scenario() -> None:
        made, store = catalogue(5)
        store.segment_files.missing = {2: 30}
        store.segment_files.writable = False
        found = await made.locate(Range("t", 0))
        assert [one.ledger_id for one in found.segments] == [1, 2]
        assert found.tail_from == 170
        nothing = await made.locate(Range("t", 0, 180, 400))
        assert nothing.segments == []
        assert nothing.tail_from == 180

    run(scenario)


def test_a_ledger_that_goes_meanwhile_ends_the_list() -> None:
    async def scenario() -> None:
        made, store = catalogue(5)
        store.segment_files.gone = {3}
        found = await made.locate(Range("t", 0))
        assert [one.ledger_id for one in found.segments] == [1, 2]
        assert found.tail_from == 200

    run(scenario)


def test_cuts_lie_further_apart_where_there_would_be_too_many() -> None:
    async def scenario() -> None:
        made, store = catalogue(10, ledger_bytes=1 << 40)
        await made.locate(Range("t", 0))
        steps = {step_bytes for *_, step_bytes in store.segment_files.asked}
        assert steps == {(10 << 40) // CUTS_MAX}

    run(scenario)


def test_what_is_wrong_with_one_range_does_not_touch_the_others() -> None:
    async def scenario() -> None:
        made, store = catalogue(2)
        lease, found = await made.locate_all([Range("u", 0), Range("t", 0)], lease_s=60)
        assert isinstance(found[0], UnknownTopic)
        assert isinstance(found[1], Located)
        assert store.leases.saved == {lease: {1, 2}}

    run(scenario)


@pytest.mark.parametrize("error", [TooManyLeases("full"), StorageError("broken")])
def test_a_lease_that_cannot_be_given_is_not_left_behind(error: BrokerError) -> None:
    async def scenario() -> None:
        made, store = catalogue(2)
        store.leases.refuse = error
        if isinstance(error, TooManyLeases):
            with pytest.raises(TooManyLeases):
                await made.locate_all([Range("t", 0)], lease_s=60)
        else:
            lease, found = await made.locate_all([Range("t", 0)], lease_s=60)
            assert (lease, found) == (None, [error])
        assert not store.leases.held
        with pytest.raises(LeaseNotFound):
            await made.locate_all([Range("t", 0)], lease_id="another")

    run(scenario)
