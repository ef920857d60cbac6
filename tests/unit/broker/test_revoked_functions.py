"""A function runs while its owner may run functions in its namespace, as the broker's rules say."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.jobs.errors import InvalidFunction
from magnetar.broker.jobs.model import FunctionName
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
            await door.broker.cases.functions.create(
                ANN, FunctionName("public", "default", "f"), config, "f.py", b"code"
            )
            assert len(functions.wanted()) == 1
            waiting = asyncio.create_task(functions.wait_for_change(3600))
            await asyncio.sleep(0)
            await rules.change(lambda _: ((), (RULE,)))
            await asyncio.sleep(0)
            assert waiting.done()
            assert functions.wanted() == []

    asyncio.run(main())


@pytest.mark.parametrize("deduplication", [False, True])
def test_who_may_not_write_to_a_topic_does_not_learn_its_policies_by_a_guarantee(
    tmp_path: Path, deduplication: bool
) -> None:
    output = "persistent://acme/sales/t"
    writes = Rule(str(ANN.principal), Operation.WRITE, Target(ResourceType.TOPIC, Pattern.LITERAL, output))
    config = {
        "className": "f.process",
        "inputs": ["in"],
        "output": output,
        "processingGuarantees": "EFFECTIVELY_ONCE",
    }

    async def main() -> None:
        settings = BrokerSettings(
            data_dir=str(tmp_path),
            entry_cache_bytes=1 << 20,
            authorization=AuthorizationSettings(frozenset()),
            functions_enabled=True,
        )
        async with running_door(tmp_path, settings) as door:
            broker = door.broker
            assert broker.rules is not None
            await broker.namespaces.ensure(["acme/sales"])
            await broker.namespaces.change("acme/sales", lambda _: {"deduplicationEnabled": deduplication})
            await broker.rules.change(lambda _: ((RULE,), ()))

            async def create() -> str:
                try:
                    await broker.cases.functions.create(
                        ANN, FunctionName("public", "default", "f"), config, "f.py", b"code"
                    )
                except InvalidFunction as refusal:
                    return str(refusal)
                return ""

            assert await create() == "EFFECTIVELY_ONCE needs the right to write to the output's topic"
            await broker.rules.change(lambda _: ((writes,), ()))
            assert ("needs deduplication" in await create()) is not deduplication
            if deduplication:  # a process that starts after the right was taken is refused in the same words
                await broker.rules.change(lambda _: ((), (writes,)))
                with pytest.raises(InvalidFunction, match="needs the right to write"):
                    broker.functions.let_in(broker.functions.get("public", "default", "f"))

    asyncio.run(main())
