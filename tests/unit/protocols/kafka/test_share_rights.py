"""A share consumer whose client loses a right leaves its partitions at once, with the records that it holds."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.security.model import Caller, Operation, Principal, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.wire.kafka.error_codes import ErrorCode
from tests.unit.protocols.kafka.share_queue import ACCEPT, FULL, Queue

Run = Callable[..., None]
RULED: Final = AuthorizationSettings(frozenset({"User:admin"}))
ANN, MALLORY = (Caller(Principal("User", name), "127.0.0.1") for name in ("ann", "mallory"))
TARGETS: Final = {
    "topic": Target(ResourceType.TOPIC, Pattern.LITERAL, FULL),
    "group": Target(ResourceType.SUBSCRIPTION, Pattern.LITERAL, "g"),
}


def reads(caller: Caller, *names: str) -> list[Rule]:
    return [Rule(str(caller.principal), Operation.READ, TARGETS[name]) for name in names or TARGETS]


async def begun(client: Any, *sizes: int) -> Queue:
    """Both may read by the group; Mallory asks first."""
    queue = await Queue(client).begin(*sizes)
    await client.broker.rules.change(lambda _: ([*reads(ANN), *reads(MALLORY)], ()))
    client.caller = MALLORY
    return queue


async def lose(client: Any, name: str) -> None:
    await client.broker.rules.change(lambda _: ((), reads(MALLORY, name)))


@pytest.mark.parametrize("name", list(TARGETS))
def test_what_a_client_held_is_another_one_s_once_its_right_is_taken(with_broker: Run, name: str) -> None:
    """It was so only when the locks had ended, half a minute later, and counted as delivered in vain."""

    async def scenario(client: Any) -> None:
        queue = await begun(client, 3)
        assert await queue.fetch("m") == [(0, 2, 1)]
        client.caller = ANN
        assert await queue.fetch("n") == []
        waiting = asyncio.ensure_future(queue.fetch("n", max_wait_ms=120_000))
        await asyncio.sleep(0)
        await lose(client, name)
        found = await waiting or await queue.fetch("n", max_wait_ms=120_000)  # a change of rights ends a wait
        assert found == [(0, 2, 1)]
        (subscription,) = client.broker.subscriptions.of(queue.partition)
        assert len(subscription.consumers) == 1
        client.caller = MALLORY
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if name == "topic":
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await queue.acknowledge("m", [(0, 2, [ACCEPT])]) == denied
        client.caller = ANN
        assert await queue.acknowledge("n", [(0, 2, [ACCEPT])]) == ErrorCode.NONE

    with_broker(scenario, authorization=RULED)


def test_a_client_that_gets_its_right_back_goes_on_in_its_session(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await begun(client, 3)
        assert await queue.fetch("m") == [(0, 2, 1)]
        await lose(client, "topic")
        (row,) = (await queue.ask("m")).responses[0].partitions
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await client.broker.cases.standing._tasks.ended()
        await client.broker.rules.change(lambda _: (reads(MALLORY, "topic"), ()))
        assert await queue.fetch("m", max_wait_ms=120_000) == [(0, 2, 1)]

    with_broker(scenario, authorization=RULED)


def test_a_right_that_is_taken_while_a_client_connects_counts(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await begun(client, 3)
        sessions = client.broker.share_sessions
        connect = sessions.connect

        async def late(*args: Any) -> Any:
            consumer = await connect(*args)
            await lose(client, "topic")
            return consumer

        sessions.connect = late
        (row,) = (await queue.ask("m")).responses[0].partitions
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not any(one.consumers for one in client.broker.subscriptions.of(queue.partition))

    with_broker(scenario, authorization=RULED)


def test_nothing_is_kept_of_a_consumer_that_has_left(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await begun(client, 3)
        await queue.fetch("m")
        standing = client.broker.cases.standing
        assert len(standing) == 1
        queue.epochs["m"] = -1
        await queue.fetch("m")
        await asyncio.sleep(0)
        assert len(standing) == 0

    with_broker(scenario, authorization=RULED)
