"""What a refused request over HTTP leaves in memory: nothing that only the cycle collector can free (`circles.py`)."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.unit.circles import circles_of

from .authorized_routes import ASKS_NOTHING, MISSING, THERE
from .house import house
from .test_login import CLUSTERS, Noting, basic, bearer, with_http


@pytest.mark.parametrize(
    ("world", "denies"),
    [(THERE, True), (MISSING, True), (MISSING, False)],
    ids=["without its right", "without its right and missing", "missing"],
)
def test_a_refused_request_leaves_no_circle(tmp_path: Path, world: Mapping[str, str], denies: bool) -> None:
    async def main() -> None:
        left: dict[str, Counter[str]] = {}
        async with house(tmp_path) as found:
            found.rules.denies = denies
            for route in found.routes:
                if route in ASKS_NOTHING:
                    continue
                circles = await circles_of(partial(found.ask, route, world))
                if circles:
                    left[route] = circles
        assert not left

    asyncio.run(main())


@pytest.mark.parametrize("headers", [{}, bearer("bad"), basic(b"bad")], ids=["none", "bearer", "basic"])
def test_a_failed_login_leaves_no_circle(headers: dict[str, str]) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        assert (await http.get(CLUSTERS, headers=headers)).status_code == 401
        assert not await circles_of(partial(http.get, CLUSTERS, headers=headers))

    with_http(scenario)
