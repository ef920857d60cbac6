"""CreateAcls, DescribeAcls and DeleteAcls over their wire forms, and that what they write holds."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from magnetar.base.names import TopicName
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.policy.model import Tenant
from magnetar.broker.security import model
from magnetar.broker.security.model import (
    ANONYMOUS,
    Caller,
    Operation,
    Principal,
    ResourceType,
    group_resource,
    topic_resource,
)
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from magnetar.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from magnetar.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from magnetar.wire.kafka.messages.describe_acls import DescribeAclsRequest
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

Run = Callable[..., None]
SUPER: Final = AuthorizationSettings(frozenset({str(ANONYMOUS)}))
TOPIC, GROUP, CLUSTER, TXN = 2, 3, 4, 5
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL, READ, WRITE, DESCRIBE = 2, 3, 4, 8
DENY, ALLOW = 2, 3
EVERYTHING: Final = (ANY, None, ANY, None, None, ANY, ANY)
Row = tuple[int, str, int, str, str, int, int]


async def create(client: Any, *rows: Row) -> list[int]:
    answer = await client.ask("create_acls", 3, CreateAclsRequest([AclCreation(*row) for row in rows]))
    return [one.error_code for one in answer.results]


async def described(client: Any, *wanted: Any) -> list[Row]:
    answer = await client.ask("describe_acls", 3, DescribeAclsRequest(*(wanted or EVERYTHING)))
    assert answer.error_code == 0, answer.error_message
    return sorted(
        (
            one.resource_type,
            one.resource_name,
            one.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for one in answer.resources
        for acl in one.acls
    )


def may(client: Any, user: str, operation: Operation, full: str) -> bool:
    caller = Caller(Principal("User", user), "10.0.0.1")
    return bool(client.broker.rules.decisions.allows(caller, operation, topic_resource(full)))


def test_without_authorization_there_are_none(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        row = (TOPIC, "t", LITERAL, "User:ann", "*", READ, ALLOW)
        assert await create(client, row) == [54]
        answer = await client.ask("describe_acls", 1, DescribeAclsRequest(*EVERYTHING))
        assert answer.error_code == 54
        answer = await client.ask("delete_acls", 1, DeleteAclsRequest([DeleteAclsFilter(*EVERYTHING)]))
        assert [one.error_code for one in answer.filter_results] == [54]

    with_broker(scenario)


def test_what_is_written_is_shown_holds_and_goes(with_broker: Run) -> None:
    rows: list[Row] = [
        (TOPIC, "*", LITERAL, "User:ann", "*", READ, ALLOW),
        (TOPIC, "acme/sales/*", LITERAL, "User:eve", "*", WRITE, ALLOW),
        (TOPIC, "ord", PREFIXED, "User:bob", "*", WRITE, ALLOW),
        (TOPIC, "orders", LITERAL, "User:*", "10.0.0.1", ALL, DENY),
        (TOPIC, "persistent://acme/sales/ord", PREFIXED, "User:bob", "*", WRITE, ALLOW),
        (GROUP, "*", LITERAL, "User:ann", "*", READ, ALLOW),
        (CLUSTER, "kafka-cluster", LITERAL, "User:ann", "*", DESCRIBE, ALLOW),
        (TXN, "x", PREFIXED, "User:ann", "*", WRITE, ALLOW),
        (6, "token", LITERAL, "User:ann", "*", DESCRIBE, ALLOW),
        (7, "User:ann", LITERAL, "User:bob", "*", 13, ALLOW),
    ]

    async def scenario(client: Any) -> None:
        assert await create(client, *rows) == [0] * len(rows)
        assert await create(client, rows[0]) == [0]  # once more is no other one
        assert await described(client) == sorted(rows)
        home, away = "persistent://public/default/", "persistent://acme/sales/"
        assert may(client, "ann", Operation.READ, home + "anything")
        assert not may(client, "ann", Operation.READ, away + "anything")
        assert not may(client, "ann", Operation.READ, home + "orders")  # denied
        assert may(client, "bob", Operation.WRITE, home + "ordinary")
        assert may(client, "bob", Operation.WRITE, away + "ordinary")
        assert not may(client, "bob", Operation.WRITE, "persistent://acme/sales2/ordinary")
        assert may(client, "eve", Operation.WRITE, away + "t")
        assert not may(client, "eve", Operation.WRITE, "persistent://acme/sales2/t")
        ann = Caller(Principal("User", "ann"))
        assert client.broker.rules.decisions.allows(ann, Operation.READ, group_resource("any"))
        found = await client.ask(
            "delete_acls",
            3,
            DeleteAclsRequest(
                [
                    DeleteAclsFilter(TOPIC, "orders", MATCH, None, None, ANY, ANY),
                    DeleteAclsFilter(TOPIC, "nothing", LITERAL, None, None, ANY, ANY),
                ]
            ),
        )
        first, second = found.filter_results
        assert {one.resource_name for one in first.matching_acls} == {"*", "ord", "orders"}
        assert second.matching_acls == []
        assert len(await described(client)) == len(rows) - 3
        assert not may(client, "ann", Operation.READ, home + "anything")

    with_broker(scenario, authorization=SUPER)


def test_a_filter_lets_pass_what_kafkas_does(with_broker: Run) -> None:
    rows: list[Row] = [
        (TOPIC, name, pattern, "User:ann", "*", READ, ALLOW)
        for name, pattern in (
            ("*", LITERAL),
            ("abc", LITERAL),
            ("ab", PREFIXED),
            ("abc", PREFIXED),
            ("x", LITERAL),
        )
    ] + [(GROUP, "abc", LITERAL, "User:*", "10.0.0.1", ALL, DENY)]

    async def scenario(client: Any) -> None:
        await create(client, *rows)

        async def names(*wanted: Any) -> list[tuple[str, int]]:
            return [(row[1], row[2]) for row in await described(client, *wanted)]

        assert await names(TOPIC, "abc", MATCH, None, None, ANY, ANY) == [
            ("*", LITERAL),
            ("ab", PREFIXED),
            ("abc", LITERAL),
            ("abc", PREFIXED),
        ]
        assert await names(TOPIC, "persistent://public/default/abc", ANY, None, None, ANY, ANY) == [
            ("abc", LITERAL),
            ("abc", PREFIXED),
        ]
        assert await names(TOPIC, "acme/sales/abc", MATCH, None, None, ANY, ANY) == []
        assert await names(TOPIC, "abc", PREFIXED, None, None, ANY, ANY) == [("abc", PREFIXED)]
        assert await names(TOPIC, None, LITERAL, None, None, ANY, ANY) == [
            ("*", LITERAL),
            ("abc", LITERAL),
            ("x", LITERAL),
        ]
        assert await names(ANY, "abc", LITERAL, None, None, ANY, ANY) == [("abc", LITERAL), ("abc", LITERAL)]
        assert await names(ANY, None, ANY, "User:*", None, ANY, ANY) == [("abc", LITERAL)]
        assert await names(ANY, None, ANY, "User:*", "*", ANY, ANY) == []
        assert await names(ANY, None, ANY, None, None, ALL, ANY) == [("abc", LITERAL)]
        assert len(await names(ANY, None, ANY, None, None, READ, ALLOW)) == 5
        answer = await client.ask("describe_acls", 3, DescribeAclsRequest(0, None, ANY, None, None, ANY, ANY))
        assert answer.error_code == 42

    with_broker(scenario, authorization=SUPER)


def test_what_can_be_no_rule_is_refused_and_the_others_are_made(with_broker: Run) -> None:
    good: Row = (TOPIC, "t", LITERAL, "User:ann", "*", READ, ALLOW)
    bad: list[Row] = [
        (TOPIC, "t", LITERAL, "ann", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, ":ann", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:ann", "", READ, ALLOW),
        (TOPIC, "", LITERAL, "User:ann", "*", READ, ALLOW),
        (TOPIC, "acme/t", LITERAL, "User:ann", "*", READ, ALLOW),
        (TOPIC, "other://acme/sales/t", PREFIXED, "User:ann", "*", READ, ALLOW),
        (TOPIC, "t-partition-0", LITERAL, "User:ann", "*", READ, ALLOW),
        (CLUSTER, "other", LITERAL, "User:ann", "*", READ, ALLOW),
        (CLUSTER, "*", LITERAL, "User:ann", "*", READ, ALLOW),
        (ANY, "t", LITERAL, "User:ann", "*", READ, ALLOW),
        (TOPIC, "t", ANY, "User:ann", "*", READ, ALLOW),
        (TOPIC, "t", MATCH, "User:ann", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:ann", "*", ANY, ALLOW),
        (TOPIC, "t", LITERAL, "User:ann", "*", 24, ALLOW),
        (TOPIC, "t", LITERAL, "User:ann", "*", READ, ANY),
        (99, "t", LITERAL, "User:ann", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:" + "a" * 5000, "*", READ, ALLOW),
    ]

    async def scenario(client: Any) -> None:
        assert await create(client, *bad, good) == [42] * len(bad) + [0]
        assert await described(client) == [good]
        client.metadata.fail_next = 1
        other: Row = (TOPIC, "u", LITERAL, "User:ann", "*", READ, ALLOW)
        assert await create(client, bad[0], other) == [42, 56]
        assert await described(client) == [good]

    with_broker(scenario, authorization=SUPER)


def test_the_mode_of_a_namespace_and_roles_of_tenants_hold_at_once(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        broker = client.broker
        await create(client, (GROUP, "*", LITERAL, "User:ann", "*", READ, ALLOW))
        ann = Caller(Principal("User", "ann"))
        allows = broker.rules.decisions.allows
        assert allows(ann, Operation.READ, group_resource("g"))
        await broker.namespaces.change("public/default", lambda _: {"subscription_auth_mode": "Prefix"})
        assert not allows(ann, Operation.READ, group_resource("g"))
        assert allows(ann, Operation.READ, group_resource("ann-g"))
        topic = topic_resource("persistent://public/default/t")
        assert not allows(ann, Operation.WRITE, topic)
        await broker.namespaces.update_tenant(Tenant("public", ("ann",)))
        assert allows(ann, Operation.WRITE, topic)
        await broker.namespaces.update_tenant(Tenant("public"))
        assert not allows(ann, Operation.WRITE, topic)

    with_broker(scenario, authorization=SUPER)


def test_a_namespace_that_is_deleted_takes_its_rules_along(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        namespaces = client.broker.namespaces
        await namespaces.create_tenant(Tenant("acme"))
        await namespaces.create("acme/sales")
        kept: Row = (TOPIC, "t", LITERAL, "User:ann", "*", READ, ALLOW)
        await create(client, kept, (TOPIC, "acme/sales/*", LITERAL, "User:ann", "*", READ, ALLOW))
        await client.broker.pulsar_topics.delete_namespace("acme/sales")
        assert await described(client) == [kept]

    with_broker(scenario, authorization=SUPER)


def test_a_fetch_that_waits_is_answered_when_its_right_is_taken(with_broker: Run) -> None:
    settings = AuthorizationSettings(frozenset({"User:admin"}))

    async def scenario(client: Any) -> None:
        broker = client.broker
        await broker.topics.create([broker.topics.plan(NewTopic(TopicName.parse("t"), 1))])
        target = Target(ResourceType.TOPIC, Pattern.EVERY, scope="public/default")
        reads = Rule(str(ANONYMOUS), Operation.READ, target)
        await broker.rules.change(lambda _: ([reads], ()))
        partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=300_000,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic("t", partitions=[partition])],
        )
        waiting = asyncio.ensure_future(client.ask("fetch", 12, request))
        await asyncio.sleep(0)
        other = reads._replace(principal="User:ann")
        await broker.rules.change(lambda _: ([other], ()))
        await asyncio.sleep(0)
        assert not waiting.done()
        await broker.rules.change(lambda _: ((), [reads]))
        (row,) = (await waiting).responses[0].partitions
        assert (row.error_code, row.high_watermark, bytes(row.records or b"")) == (29, -1, b"")
        assert not client.service.fetches_waiting

    with_broker(scenario, authorization=settings)


def test_a_pattern_finds_a_topic_no_more_once_its_right_is_taken(with_broker: Run) -> None:
    settings = AuthorizationSettings(frozenset({"User:admin"}))

    async def scenario(client: Any) -> None:
        broker = client.broker
        names = [TopicName("public", "default", name) for name in ("t", "u")]
        await broker.topics.create([broker.topics.plan(NewTopic(name, 1)) for name in names])
        ids = [broker.topics.get(name).topic_id for name in names]
        sees = [
            Rule(str(ANONYMOUS), Operation.DESCRIBE, Target(ResourceType.TOPIC, Pattern.LITERAL, name.full))
            for name in names
        ]
        group = Target(ResourceType.SUBSCRIPTION, Pattern.LITERAL, "g")
        await broker.rules.change(lambda _: ([*sees, Rule(str(ANONYMOUS), Operation.READ, group)], ()))
        request = ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_regex=".*", topic_partitions=[]
        )

        async def assigned(wanted: list[bytes]) -> None:
            nonlocal request
            owned: list[TopicPartitions] = list(request.topic_partitions or ())
            while [one.topic_id for one in owned] != wanted:
                answer = await client.ask("consumer_group_heartbeat", 1, request)
                assert answer.error_code == 0
                if answer.assignment is not None:
                    given = sorted(
                        answer.assignment.topic_partitions, key=lambda one: ids.index(one.topic_id)
                    )
                    owned = [TopicPartitions(one.topic_id, one.partitions) for one in given]
                request = ConsumerGroupHeartbeatRequest("g", "m", answer.member_epoch, topic_partitions=owned)
                await asyncio.sleep(0.05)  # it is looked at once a second

        async with asyncio.timeout(60):
            await assigned(ids)
            await broker.rules.change(lambda _: ((), sees[1:]))
            await assigned(ids[:1])

    with_broker(scenario, authorization=settings)


def test_a_group_does_not_move_a_subscription_that_is_kept_for_others(with_broker: Run) -> None:
    """It may read the topic, and be in any group at home; the subscription of that name is another role's there."""
    settings = AuthorizationSettings(frozenset({"User:admin"}))

    async def scenario(client: Any) -> None:
        broker, sales = client.broker, "acme/sales"
        topic = TopicName("acme", "sales", "t")
        await broker.topics.create([broker.topics.plan(NewTopic(topic, 1))])
        kind = ResourceType.SUBSCRIPTION
        mine = [
            Rule(str(ANONYMOUS), Operation.READ, Target(ResourceType.TOPIC, Pattern.EVERY, scope=sales)),
            Rule(str(ANONYMOUS), Operation.READ, Target(kind, Pattern.EVERY, scope=sales)),
            Rule(str(ANONYMOUS), Operation.READ, Target(kind, Pattern.EVERY, scope="public/default")),
        ]
        theirs = Rule("User:ann", Operation.READ, Target(kind, Pattern.LITERAL, "billing", sales))
        await broker.rules.change(lambda _: ([*mine, theirs], ()))
        for group, code in (("billing", 30), ("own", 0)):
            partition = OffsetCommitRequestPartition(0, 0, committed_metadata="")
            request = OffsetCommitRequest(
                group, topics=[OffsetCommitRequestTopic(topic.full, partitions=[partition])]
            )
            answer = await client.ask("offset_commit", 8, request)
            assert [one.error_code for one in answer.topics[0].partitions] == [code], group
        home = TopicName("public", "default", "t")
        await broker.topics.create([broker.topics.plan(NewTopic(home, 1))])
        for name in (home, topic):
            await broker.subscription_admin.create(broker.topics.get(name).partition(0), "billing", 0)
        deletes = Rule(str(ANONYMOUS), Operation.DELETE, Target(kind, Pattern.EVERY, scope="public/default"))
        reads = Rule(str(ANONYMOUS), Operation.READ, Target(ResourceType.TOPIC, Pattern.LITERAL, home.full))
        await broker.rules.change(lambda _: ([deletes, reads], ()))
        rows = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("t", topic.full)
        ]
        answer = await client.ask("offset_delete", 0, OffsetDeleteRequest("billing", rows))
        assert answer.error_code == 0
        assert [one.error_code for row in answer.topics for one in row.partitions] == [0, 30]
        assert broker.cursors.subscription("billing").keys() == {topic.full}

    with_broker(scenario, authorization=settings)


def test_another_tenants_subscription_outlives_a_group_of_its_name(with_broker: Run) -> None:
    """Nor does it keep the group from being deleted; and nor is it dropped where the subscription is dropped everywhere
    over REST.
    """
    settings = AuthorizationSettings(frozenset({"User:admin"}))
    mine = Rule(str(ANONYMOUS), Operation.ALL, Target(ResourceType.SUBSCRIPTION, Pattern.EVERY))
    home, theirs = TopicName("public", "default", "t"), TopicName("acme", "sales", "t")
    reads = Rule(str(ANONYMOUS), Operation.READ, Target(ResourceType.TOPIC, Pattern.LITERAL, home.full))

    async def scenario(client: Any) -> None:
        broker = client.broker
        await broker.topics.create([broker.topics.plan(NewTopic(name, 1)) for name in (home, theirs)])
        await broker.rules.change(lambda _: ([mine, reads], ()))

        async def subscribed(*names: TopicName) -> None:
            for name in names:
                await broker.subscription_admin.create(broker.topics.get(name).partition(0), "g", 0)

        async def deleted() -> list[int]:
            answer = await client.ask("delete_groups", 2, DeleteGroupsRequest(["g"]))
            return [one.error_code for one in answer.results]

        await subscribed(home, theirs)
        assert await deleted() == [0]
        assert broker.cursors.subscription("g").keys() == {theirs.full}
        assert await deleted() == [69], "it is no group to one that may not see it"
        await subscribed(home)
        caller = Caller(ANONYMOUS, "10.0.0.1")
        assert await broker.cases.positions.drop(caller, "g") == 1
        assert broker.cursors.subscription("g").keys() == {theirs.full}
        admin = Caller(Principal("User", "admin"), "10.0.0.1")
        assert await broker.cases.positions.drop(admin, "g") == 1
        await subscribed(home)
        await broker.rules.change(lambda _: ((), [reads]))
        assert await deleted() == [0]
        await subscribed(theirs)
        cluster = Target(ResourceType.CLUSTER, Pattern.LITERAL, model.CLUSTER.name)
        sees = Rule(str(ANONYMOUS), Operation.DESCRIBE, cluster)
        await broker.rules.change(lambda _: ([sees], ()))
        assert await deleted() == [30], "who sees that it is there is told why it stays"
        assert broker.cursors.subscription("g").keys() == {theirs.full}

    with_broker(scenario, authorization=settings)
