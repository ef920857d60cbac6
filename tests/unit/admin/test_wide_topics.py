"""Statistics of topics with very many partitions, and lists of very many topics, beside what others ask."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.admin.context import AdminContext
from magnetar.admin.lists import NAME_BYTES, list_response
from magnetar.admin.peek import BODIES_BYTES_MAX
from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.model import ANONYMOUS, Caller
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.usecases.statistics import RANGES_SHOWN_MAX, StatisticsCases
from magnetar.ledger.cursor_store import CursorKey

from .world import N, Scenario, T, World, run

Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


@pytest.mark.parametrize("what", ["_topic", "_internal"])
def test_statistics_of_very_many_partitions_leave_turns_to_others(
    play: Play, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A thousand partitions were one turn of the event loop, of half a second."""
    looked_at: list[Any] = []
    look = getattr(StatisticsCases, what)

    async def counted(cases: StatisticsCases, partition: Partition, *options: Any) -> Any:
        looked_at.append(partition)
        return await look(cases, partition, *options)

    monkeypatch.setattr(StatisticsCases, what, counted)
    path = "partitioned-stats" if what == "_topic" else "partitioned-internalStats"

    async def scenario(world: World) -> None:
        await world.ask("PUT", "/admin/v2/persistent/public/default/wide/partitions", 300, 204)
        asking = asyncio.ensure_future(world.ask("GET", f"/admin/v2/persistent/public/default/wide/{path}"))
        while not looked_at:  # noqa: ASYNC110  turns of the loop are what is counted
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(looked_at) < 10
        assert len((await asking)["partitions"]) == 300

    play(scenario)


@pytest.mark.parametrize("what", ["clearBacklog", "unsubscribe/s"])
def test_what_is_done_to_all_subscriptions_of_a_namespace_leaves_turns_to_others(
    play: Play, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """All partitions were opened, and all subscriptions looked at for each, in one turn of the event loop."""
    looked_at: list[Partition] = []
    look = Subscriptions.names

    def counted(subscriptions: Subscriptions, partition: Partition) -> list[str]:
        looked_at.append(partition)
        return look(subscriptions, partition)

    async def scenario(world: World) -> None:
        await world.ask("PUT", "/admin/v2/persistent/public/default/wide/partitions", 300, 204)
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        await world.ask("DELETE", f"{T}/subscription/s", status=204)
        last = "/admin/v2/persistent/public/default/wider"
        await world.ask("PUT", last, {}, 204)
        monkeypatch.setattr(Subscriptions, "names", counted)
        asking = asyncio.ensure_future(world.ask("POST", f"{N}/{what}", status=204))
        while not looked_at:  # noqa: ASYNC110  turns of the loop are what is counted
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(looked_at) < 10
        assert len(world.broker.topics.get(TopicName.parse("wide")).open_partitions) < 10
        await world.ask("DELETE", last, status=204)
        await asking
        assert len(looked_at) >= 300

    play(scenario)


async def make_many(world: World, count: int) -> list[str]:
    topics = world.broker.topics
    names = [TopicName("public", "default", f"n{number:05}") for number in range(count)]
    await topics.create([topics.plan(NewTopic(name, 1)) for name in reversed(names)])
    return [name.full for name in names]


LISTS = {
    "/admin/v2/persistent/public/default": "-partition-0",
    "/admin/v2/persistent/public/default/partitioned": "",
    f"{N}/topics": "-partition-0",
    f"{N}/topics?mode=ALL": "-partition-0",
}


@pytest.mark.parametrize("path", LISTS)
def test_a_long_list_of_topics_leaves_turns_to_others(play: Play, path: str) -> None:
    """Fifty thousand topics were one turn of the event loop, of 50 ms."""

    async def scenario(world: World) -> None:
        names = await make_many(world, 5_000)
        expected = [name + LISTS[path] for name in names]
        if LISTS[path]:
            expected.append("persistent://public/default/t")
        broker, encoder = world.broker.pulsar_topics.lane, context(world).lane
        asking = asyncio.ensure_future(world.ask("GET", path))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        assert await asking == expected
        assert broker.pieces >= 10, "found and put in order"
        assert encoder.pieces >= 5
        assert turns >= broker.pieces + encoder.pieces, "a turn for each"

    play(scenario)


def context(world: World) -> AdminContext:
    app: Any = world.http._transport
    found: AdminContext = app.app.state.admin
    return found


def test_the_memory_of_a_long_list_is_counted_before_it_is_made_and_until_it_was_sent(play: Play) -> None:
    async def scenario(world: World) -> None:
        names = await make_many(world, 5_000)
        bodies, lane = context(world).bodies, world.broker.pulsar_topics.lane
        lists = [
            asyncio.ensure_future(world.ask("GET", "/admin/v2/persistent/public/default")) for _ in range(3)
        ]
        while not lane.pieces:  # noqa: ASYNC110  turns of the loop are what is counted
            await asyncio.sleep(0)
        assert bodies.bytes == 5_001 * NAME_BYTES, "one is made at a time"
        for found in await asyncio.gather(*lists):
            assert len(found) == 5_001
        assert bodies.bytes == 0
        pieces = lane.pieces
        bodies.take(BODIES_BYTES_MAX, ANONYMOUS)
        refused = await world.ask("GET", "/admin/v2/persistent/public/default", status=503)
        assert "try again" in refused["reason"]
        assert lane.pieces == pieces, "nothing was made"
        assert bodies.bytes == BODIES_BYTES_MAX
        bodies.give_back(BODIES_BYTES_MAX, ANONYMOUS)
        request: Any = SimpleNamespace(app=world.http._transport.app, scope={}, headers={})  # type: ignore[attr-defined]
        cases = world.broker.cases.pulsar_topics
        response = await list_response(request, cases.to_list(Caller(ANONYMOUS, ""), "public/default"))
        assert bodies.bytes == int(response.headers["content-length"]) > sum(map(len, names))

        async def gone(message: Any) -> None:
            raise OSError("the client has gone")

        with pytest.raises(OSError, match="gone"):
            await response({}, None, gone)  # type: ignore[arg-type]
        assert bodies.bytes == 0

    play(scenario)


def test_a_cursor_with_very_many_ranges_shows_the_first_ones(play: Play) -> None:
    """All of them were written out in one turn of the event loop, of 0.3 s for half a million."""

    async def scenario(world: World) -> None:
        await world.publish(30, batch=100)
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        key = CursorKey("s", world.partition.topic.name.full, 0)
        cursor = world.broker.cursors.get(key)
        assert cursor is not None
        changed = cursor.copy()
        for count in (3, RANGES_SHOWN_MAX + 1):
            changed.ack_individual((2 * number + 1, 2 * number + 2) for number in range(count))
            await world.broker.cursors.commit({key: changed})
            shown = (await world.ask("GET", f"{T}/internalStats"))["cursors"]["s"]
            assert shown["totalNonContiguousDeletedMessagesRange"] == count
            deleted = shown["individuallyDeletedMessages"]
            assert deleted.startswith("[[1..2),[3..4),[5..6)")
            assert deleted.count("[") - 1 == min(count, RANGES_SHOWN_MAX)
            assert deleted.endswith(",...]") is (count > RANGES_SHOWN_MAX)

    play(scenario)
