"""Where a group is in a topic of another namespace is told to callers that may describe its subscription there.

A role with `consume` in the namespace of Kafka's clients has READ on every group, and one that may only produce to a
topic may describe it: the two together told it how far others have read there, by any name that it guessed.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.security.model import ANONYMOUS, CLUSTER, Caller, Operation, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.broker.subscriptions.errors import SubscriptionNotFound
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
    RequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

Run = Callable[..., None]

RULES_ON: Final = AuthorizationSettings(frozenset({"User:admin"}))
HOME, SALES = "public/default", "acme/sales"
OWN, THEIRS = TopicName("public", "default", "t"), TopicName("acme", "sales", "t")
GROUP = "billing"

_EVERY_GROUP = Target(ResourceType.SUBSCRIPTION, Pattern.EVERY, scope=HOME)
_OWN_TOPICS = Target(ResourceType.TOPIC, Pattern.EVERY, scope=HOME)
_SALES_TOPICS = Target(ResourceType.TOPIC, Pattern.EVERY, scope=SALES)
_SALES_GROUPS = Target(ResourceType.SUBSCRIPTION, Pattern.EVERY, scope=SALES)
CONSUMES_AT_HOME = [Rule(str(ANONYMOUS), Operation.READ, one) for one in (_EVERY_GROUP, _OWN_TOPICS)]
PRODUCES_THERE = Rule(str(ANONYMOUS), Operation.WRITE, _SALES_TOPICS)
CONSUMES_THERE = [Rule(str(ANONYMOUS), Operation.READ, one) for one in (_SALES_GROUPS, _SALES_TOPICS)]
SEES_CLUSTER = Rule(
    str(ANONYMOUS), Operation.DESCRIBE, Target(ResourceType.CLUSTER, Pattern.LITERAL, CLUSTER.name)
)
ME: Final = Caller(ANONYMOUS, "10.0.0.1")


async def _begin(client: Any) -> None:
    """The group has begun in a topic at home and in one of another tenant."""
    broker = client.broker
    await broker.topics.create([broker.topics.plan(NewTopic(name, 1)) for name in (OWN, THEIRS)])
    for name in (OWN, THEIRS):
        await broker.subscription_admin.create(broker.topics.get(name).partition(0), GROUP, 0)
    await broker.rules.change(lambda _: ([*CONSUMES_AT_HOME, PRODUCES_THERE], ()))


async def _fetched(client: Any, version: int, *names: str) -> dict[str, int]:
    """The committed offsets of the group, of these topics or of all."""
    ids = {name: client.broker.topics.get(TopicName.parse(name)).topic_id for name in names}
    wanted = [OffsetFetchRequestTopics(name, ids[name], [0]) for name in names] if names else None
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=wanted)])
    (group,) = (await client.ask("offset_fetch", version, request)).groups
    assert group.error_code == ErrorCode.NONE
    known = {one.topic_id: one.name for one in client.broker.topics}
    found = {}
    for topic in group.topics:
        (row,) = topic.partitions
        assert row.error_code == ErrorCode.NONE
        full = known[topic.topic_id] if version >= 10 else TopicName.parse(topic.name)
        found[full.full] = row.committed_offset
    return found


@pytest.mark.parametrize("version", [9, 10])
def test_a_producer_does_not_learn_how_far_others_have_read(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        await _begin(client)
        rules = client.broker.rules
        assert await _fetched(client, version) == {OWN.full: 0}
        nothing = {OWN.full: 0, THEIRS.full: -1}
        assert await _fetched(client, version, OWN.full, THEIRS.full) == nothing
        # Neither does a consumer there learn of what is kept for others.
        kept = Rule(
            "User:ann", Operation.READ, Target(ResourceType.SUBSCRIPTION, Pattern.LITERAL, GROUP, SALES)
        )
        await rules.change(lambda _: ([*CONSUMES_THERE, kept], ()))
        assert await _fetched(client, version) == {OWN.full: 0}
        assert await _fetched(client, version, THEIRS.full) == {THEIRS.full: -1}
        every = {OWN.full: 0, THEIRS.full: 0}
        await rules.change(lambda _: ((), [kept]))
        assert await _fetched(client, version) == every
        await rules.change(lambda _: ([SEES_CLUSTER], CONSUMES_THERE))
        assert await _fetched(client, version) == await _fetched(client, version, *every) == every

    with_broker(scenario, authorization=RULES_ON)


def test_a_share_group_of_the_name_tells_no_more(with_broker: Run) -> None:
    """Whoever may read by every group may make one of any name."""

    async def described(client: Any, *names: str) -> dict[str, int]:
        wanted = [RequestTopic(name, [0]) for name in names] if names else None
        request = DescribeShareGroupOffsetsRequest([RequestGroup(GROUP, wanted)])
        (group,) = (await client.ask("describe_share_group_offsets", 1, request)).groups
        assert group.error_code == ErrorCode.NONE
        return {topic.topic_name: topic.partitions[0].start_offset for topic in group.topics}

    async def scenario(client: Any) -> None:
        await _begin(client)
        joining = ShareGroupHeartbeatRequest(GROUP, "m", 0, subscribed_topic_names=["t"])
        async with asyncio.timeout(30):
            assert (await client.ask("share_group_heartbeat", 1, joining)).error_code == ErrorCode.NONE
        assert await described(client) == {"t": 0}
        assert await described(client, THEIRS.full) == {THEIRS.full: -1}
        await client.broker.rules.change(lambda _: (CONSUMES_THERE, ()))
        assert await described(client) == {"t": 0, THEIRS.full: 0}
        assert await described(client, THEIRS.full) == {THEIRS.full: 0}

    with_broker(scenario, authorization=RULES_ON)


def test_nor_do_positions_over_http(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await _begin(client)
        read = client.broker.cases.positions.read
        assert [one.topic for one in await read(ME, GROUP)] == [OWN]
        with pytest.raises(SubscriptionNotFound):
            await read(ME, GROUP, [THEIRS.full])
        await client.broker.rules.change(lambda _: (CONSUMES_THERE, ()))
        assert {one.topic for one in await read(ME, GROUP)} == {OWN, THEIRS}

    with_broker(scenario, authorization=RULES_ON)
