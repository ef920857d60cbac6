"""A function runs while its owner may run functions in its namespace, as the broker's rules say."""

import asyncio
from pathlib import Path
from typing import Final

from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.security.model import Caller, Operation, Principal, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.broker.settings import BrokerSettings
from magnetar.testing.pulsar import running_door

ANN: Final = Caller(Principal("User", "ann"), "127.0.0.1")
RULE: Final = Rule(
    str(ANN.principal), Operation.FUNCTIONS, Target(ResourceType.TOPIC, Pattern.EVERY, scope="public/default")
)


def test_what_runs_functions_hears_at_once_of_a_right_that_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(
            data_dir=str(tmp_path),
            entry_cache_bytes=1 << 20,
            authorization=AuthorizationSettings(frozenset()),
            functions_enabled=True,
        )
        async with running_door(tmp_path, settings) as door:
            rules, functions = door.broker.rules, door.broker.functions
            assert rules is not None
            await rules.change(lambda _: ((RULE,), ()))
            config = {"className": "f.process", "inputs": ["in"]}
            await door.broker.cases.functions.create(ANN, "public", "default", "f", config, "f.py", b"code")
            assert len(functions.wanted()) == 1
            waiting = asyncio.create_task(functions.wait_for_change(3600))
            await asyncio.sleep(0)
            await rules.change(lambda _: ((), (RULE,)))
            await asyncio.sleep(0)
            assert waiting.done()
            assert functions.wanted() == []

    asyncio.run(main())
