"""Brokers over one metadata store: who serves what, and when."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.errors import BadVersion, MetadataError
from magnetar.broker.cluster.bundles import Bundle, bundles_of
from magnetar.broker.cluster.model import Node
from magnetar.broker.cluster.ownership.leader import PATIENCE_S
from magnetar.broker.cluster.ownership.membership import LOOK_AGAIN_S, RETRY_S, Membership, still_owns
from magnetar.broker.cluster.ownership.owner import Hold
from magnetar.broker.cluster.ownership.records import BROKERS, Record, first_records, put_record, record_path
from magnetar.broker.cluster.ownership.view import View
from magnetar.broker.cluster.place import Here, Place
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.metadata.store import Change, Delete, Versioned
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

LOW, HIGH = bundles_of("t/n", 2)
LOG = logging.getLogger("tests.membership")
PLACE = Place(Node(1))


def here(name: str) -> Here:
    return Here(name, PLACE)


def run(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """The tests are coroutines."""

    @wraps(test)
    def whole() -> None:
        asyncio.run(test())

    del whole.__wrapped__  # pytest would look for arguments there
    return whole


class Work:
    """Says what it is asked for; implements `BundleWork`."""

    def __init__(self, name: str, said: list[tuple[str, str, Bundle]]) -> None:
        self.name = name
        self.said = said
        self.brokers_seen = 0
        self.may_stop = asyncio.Event()
        self.may_stop.set()

    def serve(self, hold: Hold) -> None:
        self.said.append((self.name, "serve", hold.bundle))

    async def stop(self, hold: Hold) -> None:
        try:
            await self.may_stop.wait()
        except asyncio.CancelledError:
            self.said.append((self.name, "give up", hold.bundle))
            raise
        self.said.append((self.name, "stop", hold.bundle))

    def drop(self, hold: Hold) -> None:
        self.said.append((self.name, "drop", hold.bundle))

    def brokers_changed(self) -> None:
        self.brokers_seen += 1


class Tells:
    """Tells a queue what it is asked for; implements `BundleWork`."""

    def __init__(self, name: str, said: asyncio.Queue[str]) -> None:
        self._name = name
        self._said = said

    def serve(self, hold: Hold) -> None:
        self._said.put_nowait(f"{self._name} serve")

    async def stop(self, hold: Hold) -> None:
        self._said.put_nowait(f"{self._name} stop")

    def drop(self, hold: Hold) -> None:
        self._said.put_nowait(f"{self._name} drop")

    def brokers_changed(self) -> None:
        """It is not asked about this."""


class Store(MemoryMetadataStore):
    """Counts its watchers."""

    watcher_count = 0

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        end = super().watch(prefix, callback)
        self.watcher_count += 1

        def ended() -> None:
            self.watcher_count -= 1
            end()

        return ended


class Cluster:
    """Brokers, each a task, over a store with one namespace of two bundles."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.clock = FakeClock()
        self.said: list[tuple[str, str, Bundle]] = []
        self.works: dict[str, Work] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str) -> list[Membership]:
        """Begin a namespace, and these brokers."""
        await self.store.commit(first_records("t/n", 2))
        return [await self.join(name) for name in names]

    async def join(self, name: str) -> Membership:
        work = self.works[name] = Work(name, self.said)
        member = Membership(here(name), View(), self.store, self.clock, work, dict, LOG)
        self.tasks[name] = asyncio.get_running_loop().create_task(member.run())
        await self.turn()
        return member

    async def turn(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        for _ in range(30):
            await asyncio.sleep(0)

    async def end_session(self, name: str) -> None:
        await self.store.delete(BROKERS + name)
        await self.turn()

    async def record(self, bundle: Bundle) -> Record:
        stored = await self.store.get(record_path(bundle))
        assert stored is not None
        return Record.read(record_path(bundle), stored)

    def taken(self) -> list[tuple[str, str, Bundle]]:
        """What was said since the last call."""
        said = list(self.said)
        self.said.clear()
        return said


@run
async def test_a_broker_alone_serves_everything() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    assert cluster.taken() == [("b1", "serve", LOW), ("b1", "serve", HIGH)]
    assert await cluster.record(LOW) == Record(LOW, "b1", 1, 1)
    assert member.serving("t/n", HIGH.low) == Hold(await cluster.record(HIGH))
    assert member.holds == [Hold(await cluster.record(LOW)), Hold(await cluster.record(HIGH))]


def test_brokers_over_the_store_of_a_server(tmp_path: Path) -> None:
    async def served(said: asyncio.Queue[str], count: int) -> list[str]:
        async with asyncio.timeout(60):
            return [await said.get() for _ in range(count)]

    async def whole() -> None:
        store = SqliteMetadataStore(tmp_path / "metadata.db")
        await store.commit(first_records("t/n", 2))
        said: asyncio.Queue[str] = asyncio.Queue()
        tasks = []
        for name, steps in (("b1", ["b1 serve"] * 2), ("b2", ["b1 stop", "b2 serve"])):
            member = Membership(here(name), View(), store, SystemClock(), Tells(name, said), dict, LOG)
            tasks.append(asyncio.get_running_loop().create_task(member.run()))
            assert await served(said, 2) == steps
        await store.delete(f"{BROKERS}b1")
        assert sorted(await served(said, 2)) == ["b1 drop", "b2 serve"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()

    asyncio.run(whole())


@run
async def test_a_new_broker_serves_after_the_old_one_has_stopped() -> None:
    cluster = Cluster()
    await cluster.begin("b1")
    cluster.taken()
    cluster.works["b1"].may_stop.clear()
    await cluster.join("b2")
    assert cluster.taken() == []
    cluster.works["b1"].may_stop.set()
    await cluster.turn()
    assert cluster.taken() == [("b1", "stop", HIGH), ("b2", "serve", HIGH)]
    assert await cluster.record(HIGH) == Record(HIGH, "b2", 2, 2)


@run
async def test_what_a_broker_had_goes_to_another_when_its_session_ends() -> None:
    cluster = Cluster()
    member, _ = await cluster.begin("b1", "b2")
    cluster.taken()
    await cluster.end_session("b1")
    assert sorted(cluster.taken()) == [("b1", "drop", LOW), ("b2", "serve", LOW)]
    assert await cluster.record(LOW) == Record(LOW, "b2", 2, 2)
    assert member.is_over
    assert member.serving("t/n", LOW.low) is None
    assert cluster.tasks["b1"].done()


@run
async def test_a_broker_hears_which_brokers_there_are_and_where() -> None:
    cluster = Cluster()
    member, _ = await cluster.begin("b1", "b2")
    assert member.view.places == {"b1": PLACE, "b2": PLACE}
    seen = cluster.works["b1"].brokers_seen
    await cluster.end_session("b2")
    assert cluster.works["b1"].brokers_seen == seen + 1
    assert member.view.places == {"b1": PLACE}


@run
async def test_a_broker_takes_nothing_after_the_end_of_its_session() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    member.end()
    cluster.taken()
    await cluster.store.commit([put_record(LOW, "b1", 7, 1)])
    await cluster.turn(LOOK_AGAIN_S)
    assert cluster.taken() == []


@run
async def test_a_broker_that_hears_of_the_end_of_its_session_gives_everything_up_at_once() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    cluster.works["b1"].may_stop.clear()
    await member.ask(await cluster.record(LOW))
    await cluster.turn()
    cluster.taken()
    member.end()
    await cluster.turn()
    assert cluster.tasks["b1"].done()
    assert cluster.taken() == [("b1", "drop", LOW), ("b1", "drop", HIGH), ("b1", "give up", LOW)]
    assert cluster.store.watcher_count == 0


@run
async def test_a_broker_that_is_cancelled_gives_everything_up() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    cluster.taken()
    cluster.tasks["b1"].cancel()
    await cluster.turn()
    assert cluster.taken() == [("b1", "drop", LOW), ("b1", "drop", HIGH)]
    assert member.is_over


@run
async def test_an_owner_asks_the_store_whether_it_still_is_one() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    low, high = member.holds
    assert await still_owns(cluster.store, low)
    await cluster.store.commit([put_record(LOW, "", 1, 1)])
    assert not await still_owns(cluster.store, low)
    assert await still_owns(cluster.store, high)
    await cluster.end_session("b1")
    assert not await still_owns(cluster.store, high)


@run
async def test_a_wish_lets_the_owner_split_a_bundle() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    cluster.taken()
    await member.ask(await cluster.record(LOW), boundary=LOW.middle)
    await cluster.turn()
    first, second = LOW.split(LOW.middle)
    assert cluster.taken() == [("b1", "stop", LOW), ("b1", "serve", first), ("b1", "serve", second)]
    assert await cluster.store.get(record_path(LOW)) is None
    assert (await cluster.record(first)).generation == (await cluster.record(second)).generation == 2


@run
async def test_only_one_thing_is_wished_of_an_owner() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    cluster.works["b1"].may_stop.clear()
    record = await cluster.record(LOW)
    await member.ask(record)
    with pytest.raises(BadVersion):
        await member.ask(record, "b1")
    with pytest.raises(BadVersion):
        await member.ask(Record(HIGH, "b1", 0, 0))


@run
async def test_a_broker_whose_session_has_ended_wishes_nothing() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    record = await cluster.record(LOW)
    await cluster.end_session("b1")
    with pytest.raises(BadVersion):
        await member.ask(record)


@run
async def test_a_bundle_whose_owner_cannot_stop_it_is_taken_away() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    cluster.taken()
    cluster.works["b1"].may_stop.clear()
    await member.ask(await cluster.record(LOW))
    for _ in range(int(PATIENCE_S / LOOK_AGAIN_S) + 1):
        await cluster.turn(LOOK_AGAIN_S)
    assert cluster.taken() == [("b1", "drop", LOW), ("b1", "serve", LOW)]
    assert (await cluster.record(LOW)).generation == 2


@run
async def test_a_broker_that_leaves_stops_everything_before_its_session_ends() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    cluster.taken()
    work = cluster.works["b1"]
    work.may_stop.clear()
    leaving = asyncio.get_running_loop().create_task(member.leave())
    await cluster.turn()
    assert not leaving.done()
    work.may_stop.set()
    await leaving
    assert cluster.taken() == [("b1", "stop", LOW), ("b1", "stop", HIGH)]
    await cluster.end_session("b1")
    await cluster.join("b2")
    assert cluster.taken() == [("b2", "serve", LOW), ("b2", "serve", HIGH)]


@run
async def test_a_broker_that_resigns_has_stopped_everything_before_the_others_hear_of_it() -> None:
    cluster = Cluster()
    first, _ = await cluster.begin("b1", "b2")
    cluster.taken()
    await first.resign()
    await cluster.turn()
    assert cluster.taken() == [("b1", "stop", LOW), ("b2", "serve", LOW)]
    assert first.is_over
    assert cluster.tasks["b1"].done()


@run
async def test_a_broker_resigns_though_the_store_cannot_write() -> None:
    cluster = Cluster()
    (member,) = await cluster.begin("b1")
    await cluster.store.close()
    await member.resign()
    assert member.is_over


@run
async def test_a_commit_that_failed_is_tried_again() -> None:
    cluster = Cluster()
    await cluster.store.put(f"{BROKERS}b0", PLACE.encode())  # it leads at first, and does nothing
    await cluster.begin("b1")
    await cluster.store.delete(f"{BROKERS}b0")
    cluster.store.fail_next = 1
    await cluster.turn()
    assert cluster.taken() == []
    await cluster.turn(RETRY_S)
    assert cluster.taken() == [("b1", "serve", LOW), ("b1", "serve", HIGH)]


@run
async def test_a_broker_whose_registration_was_not_answered_takes_part() -> None:
    cluster = Cluster()
    await cluster.store.commit(first_records("t/n", 2))
    cluster.store.lose_answers = 1
    member = await cluster.join("b1")
    assert cluster.taken() == []
    await cluster.turn(RETRY_S)
    assert len(cluster.taken()) == 2
    assert not member.is_over


@run
async def test_a_broker_that_cannot_register_takes_part_later() -> None:
    cluster = Cluster()
    await cluster.store.commit(first_records("t/n", 2))
    cluster.store.fail_next = 1
    await cluster.join("b1")
    assert await cluster.store.get(f"{BROKERS}b1") is None
    await cluster.turn(RETRY_S)
    assert len(cluster.taken()) == 2


@run
async def test_a_session_that_ends_before_the_broker_takes_part_is_an_error() -> None:
    cluster = Cluster()
    cluster.store.fail_next = 2
    member = await cluster.join("b1")
    member.end()
    await cluster.turn(RETRY_S)
    with pytest.raises(MetadataError):
        await cluster.tasks["b1"]


class ReadsLate(Store):
    """What a scan has found arrives after changes that came later, and so does what `get` has found, once."""

    def __init__(self, *changes: Callable[["ReadsLate"], Awaitable[None]]) -> None:
        super().__init__()
        self._changes = list(changes)

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        found = await super().scan(prefix)
        await self._change()
        return found

    async def get(self, path: str) -> Versioned | None:
        found = await super().get(path)
        await self._change()
        return found

    async def _change(self) -> None:
        if self._changes:
            await self._changes.pop(0)(self)


async def split(store: ReadsLate) -> None:
    parts = LOW.split(LOW.middle)
    await store.commit([Delete(record_path(LOW), 0), *(put_record(part, "", 1) for part in parts)])


async def own(store: ReadsLate) -> None:
    await store.commit([put_record(part, "b1", 2, 0) for part in LOW.split(LOW.middle)])


async def end(store: ReadsLate) -> None:
    await store.delete(f"{BROKERS}b1")


@run
async def test_what_changes_while_a_broker_reads_is_read_again() -> None:
    cluster = Cluster(ReadsLate(split, own))
    (member,) = await cluster.begin("b1")
    low, high = LOW.split(LOW.middle)
    assert set(member.view.records) == {low, high, HIGH}
    assert sorted(cluster.taken()) == [("b1", "serve", low), ("b1", "serve", high), ("b1", "serve", HIGH)]
    assert {record.generation for record in member.view.records.values()} == {2, 1}


@run
async def test_a_broker_whose_session_ends_while_it_reads_is_over() -> None:
    cluster = Cluster(ReadsLate(end))
    (member,) = await cluster.begin("b1")
    assert member.is_over
    assert cluster.tasks["b1"].done()
    assert cluster.taken() == []
