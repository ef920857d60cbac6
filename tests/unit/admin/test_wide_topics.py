"""Statistics of topics with very many partitions, beside what others ask."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.usecases.statistics import StatisticsCases

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
