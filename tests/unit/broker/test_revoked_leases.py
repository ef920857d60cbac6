"""A lease ends with the right that it was taken by."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from magnetar.base.errors import BrokerError, LeaseNotFound, TooManyLeases
from magnetar.base.names import TopicName
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.history.model import Range
from magnetar.broker.security.model import Caller, Operation, Principal, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.usecases import history
from magnetar.broker.usecases.history import HistoryCases
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.testing.pulsar import PulsarDoor, running_door
from tests.unit.admin.world import World

LEASE_S: Final = 60
ANN, BOB = Caller(Principal("User", "ann"), "127.0.0.1"), Caller(Principal("User", "bob"), "127.0.0.1")


def reads(caller: Caller, topic: str) -> Rule:
    target = Target(ResourceType.TOPIC, Pattern.LITERAL, TopicName.parse(topic).full)
    return Rule(str(caller.principal), Operation.READ, target)


RULES: Final = [reads(caller, topic) for caller in (ANN, BOB) for topic in ("a", "b")]


class Readers:
    """Topics a and b, whose records are in files, and the leases on them."""

    def __init__(self, door: PulsarDoor) -> None:
        self.door = door
        self.history: HistoryCases = door.broker.cases.history

    async def furnish(self) -> None:
        nothing: Any = None
        for name in ("a", "b"):
            await self.door.broker.pulsar_topics.create(TopicName.parse(name))
            partition = self.door.broker.topics.get(TopicName.parse(name)).partition(0)
            await World(self.door, nothing).publish(3, partition=partition)
        await self.store.checkpoint()

    @property
    def store(self) -> LocalLedgerStore:
        assert isinstance(self.door.broker.store, LocalLedgerStore)
        return self.door.broker.store

    async def change(self, *added: Rule, removed: Sequence[Rule] = ()) -> None:
        """Rules, and what that ends."""
        assert self.door.broker.rules is not None
        await self.door.broker.rules.change(lambda _: (added, removed))
        await self.door.broker.cases.standing._tasks.ended()

    async def take(self, caller: Caller, *topics: str, lease: str | None = None) -> str:
        wanted = [Range(topic, 0) for topic in topics]
        found, located = await self.history.locate(caller, wanted, lease, LEASE_S)
        assert not any(isinstance(one, BrokerError) for one in located)
        assert found is not None
        return found

    async def holds(self, lease: str) -> bool:
        try:
            await self.history.renew_lease(lease, None)
        except LeaseNotFound:
            return False
        return True


def run(folder: Path, scenario: Any, *, with_rules: bool = True) -> None:
    async def main() -> None:
        authorization = AuthorizationSettings(frozenset()) if with_rules else None
        settings = BrokerSettings(
            data_dir=str(folder), entry_cache_bytes=1 << 20, authorization=authorization
        )
        async with running_door(folder, settings) as door:
            readers = Readers(door)
            work: Coroutine[Any, Any, None] = scenario(readers)
            await work

    asyncio.run(main())


def test_a_lease_ends_with_the_right_to_one_of_its_topics(tmp_path: Path) -> None:
    async def scenario(readers: Readers) -> None:
        await readers.furnish()
        await readers.change(*RULES)
        both, other, bobs = (
            await readers.take(ANN, "a", "b"),
            await readers.take(ANN, "b"),
            await readers.take(BOB, "a"),
        )
        await readers.change(reads(ANN, "c"))
        assert [await readers.holds(one) for one in (both, other, bobs)] == [True] * 3
        await readers.change(removed=[reads(ANN, "a")])
        assert [await readers.holds(one) for one in (both, other, bobs)] == [False, True, True]
        assert len(readers.door.broker.cases.standing) == 2

    run(tmp_path, scenario)


@pytest.mark.parametrize("second", [ANN, BOB])
def test_a_lease_that_was_extended_ends_with_a_right_of_either_time(tmp_path: Path, second: Caller) -> None:
    async def scenario(readers: Readers) -> None:
        await readers.furnish()
        await readers.change(*RULES)
        for gone in (reads(ANN, "a"), reads(second, "b")):
            lease = await readers.take(ANN, "a")
            assert await readers.take(second, "b", lease=lease) == lease
            await readers.change(removed=[gone])
            assert not await readers.holds(lease)
            await readers.change(gone)

    run(tmp_path, scenario)


def test_a_right_that_goes_while_files_are_looked_up_ends_the_lease(tmp_path: Path) -> None:
    async def scenario(readers: Readers) -> None:
        await readers.furnish()
        await readers.change(*RULES)
        segments = readers.history._segments
        locate_all = segments.locate_all

        async def slow(*asked: Any) -> Any:
            found = await locate_all(*asked)
            await readers.change(removed=[reads(ANN, "a")])
            return found

        segments.locate_all = slow  # type: ignore[assignment, method-assign]
        assert not await readers.holds(await readers.take(ANN, "a"))
        assert len(readers.door.broker.cases.standing) == 0

    run(tmp_path, scenario)


def test_leases_of_an_earlier_process_end_when_any_right_changes(tmp_path: Path) -> None:
    given: list[str] = []

    async def before(readers: Readers) -> None:
        await readers.furnish()
        await readers.change(*RULES)
        given.append(await readers.take(ANN, "a"))

    async def after(readers: Readers) -> None:
        (found,) = given
        await readers.furnish()
        assert await readers.holds(found)
        await readers.change(*RULES)
        assert not await readers.holds(found)
        lease = await readers.take(ANN, "a")
        await readers.change(reads(ANN, "c"))
        assert await readers.holds(lease)

    run(tmp_path, before)
    run(tmp_path, after)


def test_nothing_is_kept_of_leases_that_have_ended(tmp_path: Path) -> None:
    async def scenario(readers: Readers) -> None:
        await readers.furnish()
        await readers.change(*RULES)
        standing = readers.door.broker.cases.standing
        await readers.history.end_lease(await readers.take(ANN, "a"))
        assert len(standing) == 0
        lapsed = await readers.take(ANN, "a")
        readers.door.clock.advance(LEASE_S + 1)
        assert not await readers.holds(lapsed)
        await readers.take(ANN, "a")
        assert len(standing) == len(readers.history._leases) == 1

    run(tmp_path, scenario)


def test_without_rules_nothing_is_kept(tmp_path: Path) -> None:
    async def scenario(readers: Readers) -> None:
        await readers.furnish()
        assert await readers.holds(await readers.take(ANN, "a"))
        assert not readers.history._leases

    run(tmp_path, scenario, with_rules=False)


def test_one_principal_does_not_take_all_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_LEASES_OF_ONE_MAX", 2)

    async def scenario(readers: Readers) -> None:
        await readers.furnish()
        await readers.change(*RULES)
        first, second = [await readers.take(ANN, "a") for _ in range(2)]
        with pytest.raises(TooManyLeases, match="User:ann"):
            await readers.take(ANN, "b")
        await readers.take(ANN, "b", lease=first)
        await readers.take(BOB, "a")
        await readers.history.end_lease(second)
        await readers.take(ANN, "b")

    run(tmp_path, scenario)
