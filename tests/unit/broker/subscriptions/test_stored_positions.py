"""Positions of many subscriptions, stored together."""

import asyncio

import pytest

from magnetar.broker.subscriptions import stored_positions
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.subscriptions.stored_positions import SAVE_INTERVAL_S, SAVE_INTERVAL_S_MAX
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey

from .driver import TURNS, World

NAMES = [f"s{number}" for number in range(6)]


@pytest.mark.parametrize(
    ("ranges_at_once", "saves_at_once", "most"), [(20_000, 200, 6), (6, 200, 2), (20_000, 4, 4)]
)
@pytest.mark.parametrize("leave", [False, True])
def test_positions_of_very_many_ranges_or_subscriptions_are_written_in_turns(
    monkeypatch: pytest.MonkeyPatch, ranges_at_once: int, saves_at_once: int, most: int, leave: bool
) -> None:
    # Each with 20,000 ranges takes five milliseconds, and all were written in one turn of the event loop; so were
    # those of ten thousand subscriptions, which takes half a second.
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
        clients = [await world.sub(name, kind=SubscriptionType.SHARED) for name in NAMES]
        for client in clients:
            client.ack(*client.positions[1::2])
        monkeypatch.setattr(Cursor, "encode", counted)
        if leave:
            for client in clients:
                world.broker.subscriptions.leave_later(client.member)
        else:
            world.clock.advance(SAVE_INTERVAL_S)
        found: list[int] = []
        for _ in range(TURNS):
            written = 0
            await asyncio.sleep(0)
            found.append(written)
        assert (sum(found), max(found)) == (len(NAMES), most)
        await world.stop()

    monkeypatch.setattr(stored_positions, "RANGES_AT_ONCE", ranges_at_once)
    monkeypatch.setattr(stored_positions, "SAVES_AT_ONCE", saves_at_once)
    asyncio.run(main())


@pytest.mark.parametrize(
    ("took_s", "rests_s"),
    [
        (0.002, SAVE_INTERVAL_S),
        (0.012, 0.3),  # of which it is 4 %
        (0.5, SAVE_INTERVAL_S_MAX),
    ],
)
def test_positions_are_stored_soon_and_less_often_where_that_takes_long(
    monkeypatch: pytest.MonkeyPatch, took_s: float, rests_s: float
) -> None:
    async def main() -> None:
        world = await World().start()
        await world.publish(200)
        client = await world.sub("s", kind=SubscriptionType.SHARED)
        stored_at_s: list[float] = []
        save = world.broker.cursors.save

        async def slow_save(key: CursorKey) -> None:
            stored_at_s.append(world.clock.monotonic())
            await save(key)
            world.clock.advance(took_s)

        monkeypatch.setattr(world.broker.cursors, "save", slow_save)
        began_s = world.clock.monotonic()
        for position in client.positions:
            client.ack(position)
            world.clock.advance(SAVE_INTERVAL_S / 10)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        first_s, second_s = stored_at_s[:2]
        late_s = SAVE_INTERVAL_S / 5
        assert SAVE_INTERVAL_S <= first_s - began_s <= SAVE_INTERVAL_S + late_s
        rested_s = second_s - first_s - took_s
        assert rests_s - 1e-9 <= rested_s <= rests_s + SAVE_INTERVAL_S + late_s  # the job looks at intervals
        await world.stop()

    asyncio.run(main())
