"""Requests and answers with very many rows: others have turns of the event loop meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from magnetar.admin.rows import ROWS_MAX
from magnetar.base.lane import Lane
from magnetar.base.names import TopicName
from magnetar.broker.topics.model import NewTopic

from .world import NAME, World, run

COUNT = 500
POSITIONS = "/magnetar/v1/positions"


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[Lane]:
    """The lanes in which something has let others have a turn."""
    found: list[Lane] = []
    original = Lane.rest

    async def rest(lane: Lane) -> None:
        found.append(lane)
        await original(lane)

    monkeypatch.setattr(Lane, "rest", rest)
    return found


@pytest.mark.parametrize("topic", [NAME.full, "missing"])
@pytest.mark.parametrize(
    ("path", "name", "columns"),
    [
        (POSITIONS, "positions", {"offset": 0}),
        ("/magnetar/v1/admissions", "partitions", {"from_offset": 0, "to_offset": 0}),
        ("/magnetar/v1/segments", "partitions", {}),
    ],
)
def test_a_request_with_very_many_rows_leaves_turns_to_others(
    tmp_path: Path, rests: list[Lane], topic: str, path: str, name: str, columns: dict[str, Any]
) -> None:
    """Ten thousand rows, also of topics that are not there, held the loop for a tenth of a second and more."""

    async def scenario(world: World) -> None:
        rows = [{"topic": topic, "partition": 0, **columns}] * COUNT
        assert COUNT <= ROWS_MAX
        answer = await world.ask("POST", path, {"subscription": "s", name: rows})
        assert len(answer[name]) == COUNT
        assert {one["error"] for one in answer[name]} == {None if topic == NAME.full else "UNKNOWN_TOPIC"}
        assert len(rests) >= COUNT // 100

    run(tmp_path, scenario)


def test_positions_in_very_many_partitions_are_found_in_turns(tmp_path: Path, rests: list[Lane]) -> None:
    async def scenario(world: World) -> None:
        name, topics = TopicName.parse("wide"), world.broker.topics
        await topics.create([topics.plan(NewTopic(name, COUNT))])
        rows = [{"topic": name.full, "partition": index, "offset": 0} for index in range(COUNT)]
        await world.ask("POST", POSITIONS, {"subscription": "s", "positions": rows})
        rests.clear()
        answer = await world.ask("GET", f"{POSITIONS}?subscription=s")
        assert [one["partition"] for one in answer["positions"]] == list(range(COUNT))
        assert len(rests) == COUNT // 100

    run(tmp_path, scenario)


def test_a_topic_that_is_deleted_meanwhile_is_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        async def rest(lane: Lane) -> None:
            topic = world.broker.topics.find(NAME)
            if topic is not None:
                await world.broker.delete_topic(topic)

        name, topics = TopicName.parse("other"), world.broker.topics
        await topics.create([topics.plan(NewTopic(name, 1))])
        first, others = {"topic": NAME.full}, [{"topic": name.full}] * COUNT
        rows = [{**one, "partition": 0, "offset": 0} for one in (first, *others)]
        monkeypatch.setattr(Lane, "rest", rest)
        answer = await world.ask("POST", POSITIONS, {"subscription": "s", "positions": rows})
        assert [one["error"] for one in answer["positions"]] == ["UNKNOWN_TOPIC", *[None] * COUNT]
        (left,) = (await world.ask("GET", f"{POSITIONS}?subscription=s"))["positions"]
        assert left["full"] == name.full

    run(tmp_path, scenario)
