"""Which limit a client meets, with whom it shares it, and that limits are there after a start."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.broker.quotas import client_quotas
from magnetar.broker.quotas.client_quotas import ClientQuotas
from magnetar.broker.quotas.model import DEFAULT, Entity, Limit
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

# From the closest to the one that is furthest away.
ORDER = [
    Entity("alice", "one"), Entity("alice", DEFAULT), Entity("alice", None),
    Entity(DEFAULT, "one"), Entity(DEFAULT, DEFAULT), Entity(DEFAULT, None),
    Entity(None, "one"), Entity(None, DEFAULT),
]  # fmt: skip


def run(scenario: Callable[[ClientQuotas], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(ClientQuotas(MemoryMetadataStore(), FakeClock())))


def rate(quotas: ClientQuotas, user: str, client_id: str, limit: Limit = Limit.PRODUCED) -> float | None:
    bucket = quotas.bucket(limit, user, client_id)
    return None if bucket is None else bucket.rate


def test_the_closest_limit_counts() -> None:
    async def scenario(quotas: ClientQuotas) -> None:
        assert rate(quotas, "alice", "one") is None
        for number, entity in reversed(list(enumerate(ORDER, 1))):
            await quotas.change({entity: {Limit.PRODUCED: number}})
            assert rate(quotas, "alice", "one") == number
            assert rate(quotas, "alice", "one", Limit.FETCHED) is None
        assert rate(quotas, "alice", "two") == 2
        assert rate(quotas, "bob", "one") == 4
        assert rate(quotas, "bob", "two") == 5
        for number, entity in enumerate(ORDER, 1):
            assert rate(quotas, "alice", "one") == number
            await quotas.change({entity: {}})
        assert rate(quotas, "alice", "one") is None

    run(scenario)


@pytest.mark.parametrize("entity", ORDER)
def test_who_shares_a_limit(entity: Entity) -> None:
    async def scenario(quotas: ClientQuotas) -> None:
        await quotas.change({entity: {Limit.PRODUCED: 1}})
        mine = quotas.bucket(Limit.PRODUCED, "alice", "one")
        assert mine is not None
        of_another_client = quotas.bucket(Limit.PRODUCED, "alice", "two")
        of_another_user = quotas.bucket(Limit.PRODUCED, "bob", "one")
        assert (of_another_client is mine) == (entity.client_id is None)
        assert (of_another_user is mine) == (entity.user is None)

    run(scenario)


def test_limits_are_there_after_a_start_and_gone_when_taken_away() -> None:
    async def scenario() -> None:
        metadata = MemoryMetadataStore()
        entities = [*ORDER, Entity("a/b ü=default", ""), Entity(None, "any"), Entity("", DEFAULT)]
        first = ClientQuotas(metadata, FakeClock())
        await first.change({one: {Limit.PRODUCED: 7.0, Limit.FETCHED: 8.0} for one in entities})
        second = ClientQuotas(metadata, FakeClock())
        await second.load()
        assert {entity: dict(limits) for entity, limits in second.all()} == {
            one: {Limit.PRODUCED: 7.0, Limit.FETCHED: 8.0} for one in entities
        }
        await second.change({one: {} for one in entities[1:]} | {entities[0]: {Limit.FETCHED: 1.0}})
        third = ClientQuotas(metadata, FakeClock())
        await third.load()
        assert dict(third.all()) == {entities[0]: {Limit.FETCHED: 1.0}}

    asyncio.run(scenario())


def test_names_without_end_take_room_with_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "BUCKETS_MAX", 3)

    async def scenario(quotas: ClientQuotas) -> None:
        await quotas.change({Entity(None, DEFAULT): {Limit.PRODUCED: 1}})
        kept = quotas.bucket(Limit.PRODUCED, "alice", "kept")
        for number in range(100):
            quotas.bucket(Limit.PRODUCED, "alice", f"client {number}")
            assert quotas.bucket(Limit.PRODUCED, "alice", "kept") is kept
        assert len(quotas._buckets) == 3

    run(scenario)
