"""Compaction against a list: records of both protocols, transactions, tombstones, restarts, in any order."""

import asyncio
import random

import pytest

from magnetar.broker.compaction import compactor
from magnetar.wire.compaction import latest

from .world import RETAIN_MS, CompactedLog


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


@pytest.mark.parametrize("seed", range(60))
def test_a_compacted_log_holds_the_last_record_of_each_key_and_what_is_not_compacted_yet(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    # Room for the keys of a batch or two: a run ends early, in the middle of a ledger.
    monkeypatch.setattr(compactor, "keys_in", lambda size: chance.choice([7, 20, 1000]))

    async def scenario() -> None:
        world = CompactedLog(
            chance,
            config={"segment.bytes": chance.choice(["1048576", str(1 << 30)])},
            entries_max=chance.choice([1, 3, 8]),
            cache_bytes=chance.choice([0, 2000, 1 << 20]),
        )
        is_open = [False, False]
        for _ in range(chance.randint(30, 90)):
            match chance.choice(
                ["send", "send", "publish", "idempotent", "transaction", "compact", "crash", "time"]
            ):
                case "send":
                    await world.send()
                case "publish":
                    await world.publish()
                case "idempotent":
                    await world.send(producer=chance.choice([7, 8]))
                case "transaction":
                    which = chance.randrange(2)
                    if is_open[which] and chance.random() < 0.5:
                        await world.end(which, commit=chance.random() < 0.6)
                        is_open[which] = False
                    else:
                        await world.send_in_transaction(which)
                        is_open[which] = True
                case "compact":
                    await world.compact()
                    await world.check()
                case "crash":
                    producers = world.memory()
                    await world.crash()
                    assert world.memory() == producers
                    await world.check()
                case "time":
                    world.clock.advance(chance.choice([1, RETAIN_MS / 1000]))
        for which in range(2):
            await world.end(which, commit=True)
        for _ in range(3):
            world.clock.advance(RETAIN_MS / 1000 + 1)
            await world.send()
            while await world.compact():
                await world.check()
        await world.check_markers()
        world.compactor.close()

    asyncio.run(scenario())
