"""Pulsar's compaction against a list: records of both protocols, transactions, retention, restarts, in any order."""

import asyncio
import random

import pytest

from magnetar.broker.compaction import beside
from magnetar.broker.log.model import CompactionState
from magnetar.wire.compaction import latest

from .beside_world import LogBeside


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


@pytest.mark.parametrize("seed", range(40))
def test_what_is_left_is_the_last_value_of_each_key_and_the_log_stays_as_it_is(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    # Room for the keys of a batch or two: a run takes several steps.
    monkeypatch.setattr(beside, "keys_in", lambda size: chance.choice([7, 20, 1000]))

    async def scenario() -> None:
        world = LogBeside(
            chance, entries_max=chance.choice([1, 3, 8]), cache_bytes=chance.choice([0, 2000, 1 << 20])
        )
        is_open = [False, False]
        for _ in range(chance.randint(30, 80)):
            match chance.choice(
                ["send", "send", "publish", "publish", "transaction", "run", "crash", "trim", "time"]
            ):
                case "send":
                    await world.send()
                case "publish":
                    await world.publish()
                case "transaction":
                    which = chance.randrange(2)
                    if is_open[which] and chance.random() < 0.5:
                        await world.end(which, commit=chance.random() < 0.6)
                        is_open[which] = False
                    else:
                        await world.send_in_transaction(which)
                        is_open[which] = True
                case "run":
                    stable = world.partition.last_stable_offset
                    assert await world.run() is CompactionState.SUCCESS
                    assert world.horizon >= stable or not world.rows
                    assert world.held == stable
                    await world.check()
                case "crash":
                    horizon = world.horizon
                    await world.crash()
                    assert world.horizon == horizon
                    await world.check()
                case "trim":
                    # As retention does, which the subscription holds.
                    await world.log.trim(retention_bytes=0, held_from=world.held)
                    await world.settle()
                    await world.check()
                case "time":
                    world.clock.advance(chance.choice([0.01, 1]))
        for which in range(2):
            await world.end(which, commit=True)
        await world.run()
        await world.check()
        world.compactor.close()

    asyncio.run(scenario())
