"""Positions of many subscriptions, stored together."""

import asyncio

import pytest

from magnetar.broker.subscriptions import stored_positions
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.subscriptions.stored_positions import SAVE_INTERVAL_S
from magnetar.ledger.cursor import Cursor

from .driver import TURNS, World

NAMES = [f"s{number}" for number in range(6)]


@pytest.mark.parametrize(("ranges_at_once", "most"), [(20_000, 6), (6, 2)])
def test_positions_of_very_many_ranges_are_written_in_turns(
    monkeypatch: pytest.MonkeyPatch, ranges_at_once: int, most: int
) -> None:
    # Each with 20,000 ranges takes five milliseconds, and all were written in one turn of the event loop.
    written = 0
    encode = Cursor.encode

    def counted(cursor: Cursor) -> bytes:
        nonlocal written
        written += 1
        return encode(cursor)

    async def main() -> None:
        nonlocal written
        world = await World().start()
        await world.publish(7)
        for name in NAMES:
            client = await world.sub(name, kind=SubscriptionType.SHARED)
            client.ack(*client.positions[1::2])
        monkeypatch.setattr(Cursor, "encode", counted)
        world.clock.advance(SAVE_INTERVAL_S)
        found: list[int] = []
        for _ in range(TURNS):
            written = 0
            await asyncio.sleep(0)
            found.append(written)
        assert (sum(found), max(found)) == (len(NAMES), most)
        await world.stop()

    monkeypatch.setattr(stored_positions, "RANGES_AT_ONCE", ranges_at_once)
    asyncio.run(main())
