"""What members of groups in which the server assigns get of topics that their client may not describe."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.groups.consumer.embedded import assigned
from magnetar.broker.security.model import ANONYMOUS, Caller, Operation, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from magnetar.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from magnetar.wire.kafka.messages.sync_group import SyncGroupRequest
from tests.unit.broker.groups.test_group_migration import says

Run = Callable[..., None]
RULES: Final = AuthorizationSettings(frozenset({"User:admin"}))
NAMES: Final = [TopicName("public", "default", name) for name in ("t", "u")]
SEES: Final = [
    Rule(str(ANONYMOUS), Operation.DESCRIBE, Target(ResourceType.TOPIC, Pattern.LITERAL, name.full))
    for name in NAMES
]
IN_GROUP: Final = Rule(
    str(ANONYMOUS), Operation.READ, Target(ResourceType.SUBSCRIPTION, Pattern.LITERAL, "g")
)


async def made(client: Any, *rules: Rule) -> list[bytes]:
    """The ids of both topics, once these rules hold."""
    broker = client.broker
    await broker.topics.create([broker.topics.plan(NewTopic(name, 3)) for name in NAMES])
    await broker.rules.change(lambda _: ([IN_GROUP, *rules], ()))
    return [broker.topics.get(name).topic_id for name in NAMES]


def test_a_classic_member_gets_no_topic_that_it_may_not_describe(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, SEES[0])
        beat = ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        assert (await client.ask("consumer_group_heartbeat", 1, beat)).error_code == ErrorCode.NONE
        join = JoinGroupRequest(
            "g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", says("u"))]
        )
        join.member_id = (await client.ask("join_group", 9, join)).member_id
        joined = await client.ask("join_group", 9, join)
        assert joined.error_code == ErrorCode.NONE
        sync = SyncGroupRequest("g", joined.generation_id, join.member_id, None, "consumer", "range")
        synced = await client.ask("sync_group", 5, sync)
        assert (synced.error_code, assigned(synced.assignment, str)) == (ErrorCode.NONE, {})

    with_broker(scenario, authorization=RULES)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_member_loses_a_topic_that_it_names_once_its_right_is_taken(with_broker: Run, kind: str) -> None:
    async def scenario(client: Any) -> None:
        ids = await made(client, *SEES)
        owned: list[bytes] = []
        epoch = 0

        async def beat() -> None:
            nonlocal owned, epoch
            names = ["t", "u"] if epoch == 0 else None
            if kind == "share":
                answer = await client.ask(
                    "share_group_heartbeat", 1, ShareGroupHeartbeatRequest("g", "m", epoch, None, names)
                )
            else:
                request = ConsumerGroupHeartbeatRequest(
                    "g",
                    "m",
                    epoch,
                    rebalance_timeout_ms=1000 if epoch == 0 else -1,
                    subscribed_topic_names=names,
                    topic_partitions=[TopicPartitions(one, [0, 1, 2]) for one in owned],
                )
                answer = await client.ask("consumer_group_heartbeat", 1, request)
            assert answer.error_code == ErrorCode.NONE
            epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = sorted((one.topic_id for one in answer.assignment.topic_partitions), key=ids.index)

        async def until(wanted: list[bytes]) -> None:
            while owned != wanted:
                await beat()
                await asyncio.sleep(0.05)  # it is looked at once a second

        async with asyncio.timeout(60):
            await until(ids)
            await client.broker.rules.change(lambda _: ((), SEES[1:]))
            await until(ids[:1])

    with_broker(scenario, authorization=RULES)


def test_hosts_count_where_rules_name_them(with_broker: Run) -> None:
    """Elsewhere members of one principal share what is found for them, wherever they are."""

    async def scenario(client: Any) -> None:
        groups = client.broker.cases.groups
        here, there = Caller(ANONYMOUS, "10.0.0.1"), Caller(ANONYMOUS, "10.0.0.2")
        before = groups.viewer(here)
        assert before.key == groups.viewer(there).key
        assert before.is_current()
        await client.broker.rules.change(lambda _: ([SEES[0]._replace(host=here.host)], ()))
        assert groups.viewer(here).key != groups.viewer(there).key
        assert groups.viewer(here).is_current()
        assert not before.is_current()

    with_broker(scenario, authorization=RULES)


def test_members_at_two_hosts_get_by_a_pattern_what_rules_let_each_of_them_see(with_broker: Run) -> None:
    owned: dict[str, dict[bytes, list[int]]] = {"10.0.0.1": {}, "10.0.0.2": {}}
    epochs = dict.fromkeys(owned, 0)

    async def beat(client: Any, host: str) -> None:
        client.caller = Caller(ANONYMOUS, host)
        request = ConsumerGroupHeartbeatRequest(
            "g",
            f"at {host}",
            epochs[host],
            rebalance_timeout_ms=-1 if epochs[host] else 1000,
            subscribed_topic_regex=None if epochs[host] else "u",
            topic_partitions=[TopicPartitions(*one) for one in owned[host].items()],
        )
        answer = await client.ask("consumer_group_heartbeat", 1, request)
        assert answer.error_code == ErrorCode.NONE
        epochs[host] = answer.member_epoch
        if answer.assignment is not None:
            owned[host] = {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}

    async def scenario(client: Any) -> None:
        _, u = await made(client, *SEES, SEES[1]._replace(allow=False, host="10.0.0.2"))
        async with asyncio.timeout(60):
            while 0 in epochs.values() or sum(len(one.get(u, ())) for one in owned.values()) < 3:
                for host in owned:
                    await beat(client, host)
                await asyncio.sleep(0.05)  # topics are looked at once a second
        assert owned == {"10.0.0.1": {u: [0, 1, 2]}, "10.0.0.2": {}}

    with_broker(scenario, authorization=RULES)
