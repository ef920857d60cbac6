"""A scenario against a Pulsar door without sockets."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.security.authorizer import Authorizer
from magnetar.broker.settings import BrokerSettings
from magnetar.testing.pulsar import PulsarDoor, running_door

Scenario = Callable[[PulsarDoor], Coroutine[Any, Any, None]]


@pytest.fixture
def with_door(tmp_path: Path) -> Callable[..., None]:
    """`with_door(scenario, pulsar={...}, authorizer=..., **settings)` runs the scenario against a fresh broker."""

    def run(
        scenario: Scenario,
        pulsar: dict[str, Any] | None = None,
        authorizer: Authorizer | None = None,
        **settings: Any,
    ) -> None:
        async def main() -> None:
            wanted = BrokerSettings(data_dir=str(tmp_path), entry_cache_bytes=1 << 20, **settings)
            async with running_door(tmp_path, wanted, pulsar, authorizer) as door:
                await scenario(door)

        asyncio.run(main())

    return run
