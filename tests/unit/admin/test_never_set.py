"""Policies that nothing here acts on: they read as not set, can be removed, and cannot be set."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from magnetar.admin.routes.policies import NAMESPACE_NEVER, TOPIC_NEVER

from .world import N, Scenario, T, World, run

Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


@pytest.mark.parametrize("base", [N, T])
def test_they_read_as_not_set_and_cannot_be_set(play: Play, base: str) -> None:
    async def scenario(world: World) -> None:
        for path, unset in (NAMESPACE_NEVER if base == N else TOPIC_NEVER).items():
            found = (await world.http.get(f"{base}/{path}")).text
            assert found == ("" if unset is None else str(unset).lower()), path
            await world.ask("POST", f"{base}/{path}", {}, 501)
            await world.ask("GET", f"{base}x/{path}", status=404)

    play(scenario)


@pytest.mark.parametrize(
    "path",
    [
        *(f"{N}/{one}" for one in ("persistence", "entryFilters", "antiAffinity", "removeOffloadPolicies")),
        *(f"{T}/{one}" for one in TOPIC_NEVER),
    ],
)
def test_removing_one_changes_nothing(play: Play, path: str) -> None:
    async def scenario(world: World) -> None:
        await world.ask("DELETE", path, status=204)
        parts = path.split("/")
        parts[-2] += "x"
        await world.ask("DELETE", "/".join(parts), status=404)

    play(scenario)
