"""StreamsGroupHeartbeat and StreamsGroupDescribe from a request's bytes to a response's bytes."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.security.authorizer import AllowAll
from magnetar.broker.security.model import Caller, Operation, Resource, ResourceType
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from magnetar.wire.kafka.messages.list_groups import ListGroupsRequest
from magnetar.wire.kafka.messages.streams_group_describe import StreamsGroupDescribeRequest
from magnetar.wire.kafka.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)

Run = Callable[..., None]
HEARTBEAT, DESCRIBE = "streams_group_heartbeat", "streams_group_describe"
AT_ONCE = GroupSettings(group_streams_initial_rebalance_delay_ms=0, group_streams_assignment_interval_ms=0)
MISSING_INTERNAL = 3


def topology() -> Topology:
    """`in` is moved to its keys by `moved`, and counted with a store."""
    moved = TopicInfo(
        "app-moved", 0, 0, [KeyValue("cleanup.policy", "delete"), KeyValue("retention.ms", "-1")]
    )
    store = TopicInfo("app-store", 0, 0, [KeyValue("cleanup.policy", "compact")])
    return Topology(
        0,
        [
            Subtopology("0", ["in"], [], [], ["app-moved"], []),
            Subtopology("1", [], [], [store], [], [moved], [CopartitionGroup([], [], [0])]),
        ],
    )


def joins(member_id: str = "m", **changes: Any) -> StreamsGroupHeartbeatRequest:
    said: dict[str, Any] = {
        "rebalance_timeout_ms": 30_000,
        "topology": topology(),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": f"process of {member_id}",
        **changes,
    }
    return StreamsGroupHeartbeatRequest("app", member_id, **said)


def beats(member_id: str, epoch: int, **changes: Any) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest("app", member_id, epoch, **changes)


async def make(client: Any, *names: str) -> None:
    request = CreateTopicsRequest([CreatableTopic(name, 2, 1) for name in names])
    answer = await client.ask("create_topics", 7, request)
    assert [row.error_code for row in answer.topics] == [ErrorCode.NONE] * len(names)


async def ready(client: Any) -> Any:
    """The second answer to a member: the first had the topics created."""
    await make(client, "in")
    first = await client.ask(HEARTBEAT, 0, joins())
    assert first.error_code == ErrorCode.NONE, first
    client.broker.groups.find("app").known_at_s -= 10  # as if a second were over
    return await client.ask(HEARTBEAT, 0, beats("m", first.member_epoch))


def rows(tasks: list[TaskIds]) -> dict[str, list[int]]:
    return {row.subtopology_id: row.partitions for row in tasks}


def test_the_first_member_has_the_topics_created_and_gets_all_tasks_then(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "in")
        first = await client.ask(HEARTBEAT, 0, joins())
        assert (first.error_code, first.member_id, first.member_epoch) == (0, "m", 2)
        assert first.heartbeat_interval_ms == 5000
        assert [(one.status_code, one.status_detail) for one in first.status] == [
            (MISSING_INTERNAL, "Internal topics are missing: app-moved, app-store")
        ]
        assert (first.active_tasks, first.standby_tasks, first.warmup_tasks) == ([], [], [])
        made = {name: client.broker.kafka_topics.get(name) for name in ("app-moved", "app-store")}
        assert {name: topic.partition_count for name, topic in made.items()} == {
            "app-moved": 2,
            "app-store": 2,
        }
        assert dict(made["app-store"].overrides) == {"cleanup.policy": "compact"}
        assert dict(made["app-moved"].overrides) == {"cleanup.policy": "delete", "retention.ms": "-1"}
        client.broker.groups.find("app").known_at_s -= 10
        second = await client.ask(HEARTBEAT, 0, beats("m", 2))
        assert rows(second.active_tasks) == {"0": [0, 1], "1": [0, 1]}
        assert (second.member_epoch, second.status) == (3, [])
        third = await client.ask(HEARTBEAT, 0, beats("m", 3))
        assert (third.active_tasks, third.standby_tasks, third.warmup_tasks) == (None, None, None)

    with_broker(scenario, groups=AT_ONCE)


def test_a_group_is_described_listed_and_deleted(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await ready(client)
        beat = beats(
            "m", 3, rack_id="r", user_endpoint=Endpoint("host", 80), client_tags=[KeyValue("zone", "a")]
        )
        told = await client.ask(HEARTBEAT, 0, beat)
        assert (told.member_epoch, told.active_tasks) == (4, None)
        request = StreamsGroupDescribeRequest(["app", "other", ""], True)
        group, other, nameless = (await client.ask(DESCRIBE, 0, request)).groups
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert (group.group_epoch, group.assignment_epoch) == (4, 4)
        assert group.authorized_operations > 0
        assert group.topology.epoch == 0
        first, second = group.topology.subtopologies
        assert (first.subtopology_id, first.source_topics, first.repartition_sink_topics) == (
            "0",
            ["in"],
            ["app-moved"],
        )
        (store,), (moved,) = second.state_changelog_topics, second.repartition_source_topics
        assert (store.name, store.partitions, moved.name, moved.partitions) == (
            "app-store",
            2,
            "app-moved",
            2,
        )
        assert [(one.key, one.value) for one in store.topic_configs] == [("cleanup.policy", "compact")]
        (member,) = group.members
        assert (member.member_id, member.member_epoch, member.rack_id) == ("m", 4, "r")
        assert (member.client_id, member.client_host, member.process_id) == (
            "test",
            "/127.0.0.1",
            "process of m",
        )
        assert (member.user_endpoint.host, member.user_endpoint.port) == ("host", 80)
        assert [(one.key, one.value) for one in member.client_tags] == [("zone", "a")]
        assert not member.is_classic
        for assignment in (member.assignment, member.target_assignment):
            assert rows(assignment.active_tasks) == {"0": [0, 1], "1": [0, 1]}
            assert (assignment.standby_tasks, assignment.warmup_tasks) == ([], [])
        assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
        listed = (await client.ask("list_groups", 5, ListGroupsRequest([], ["streams"]))).groups
        assert [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed] == [
            ("app", "streams", "Stable", "streams")
        ]
        (kept,) = (await client.ask("delete_groups", 2, DeleteGroupsRequest(["app"]))).results
        assert kept.error_code == ErrorCode.NON_EMPTY_GROUP
        left = await client.ask(HEARTBEAT, 0, beats("m", -1))
        assert (left.error_code, left.member_epoch) == (0, -1)
        (gone,) = (await client.ask("delete_groups", 2, DeleteGroupsRequest(["app"]))).results
        assert gone.error_code == ErrorCode.NONE

    with_broker(scenario, groups=AT_ONCE)


def test_endpoints_are_told_with_what_is_there(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await ready(client)
        await client.ask(HEARTBEAT, 0, beats("m", -1))
        told = await client.ask(HEARTBEAT, 0, joins(user_endpoint=Endpoint("host", 80)))
        (one,) = told.partitions_by_user_endpoint
        assert (one.user_endpoint.host, one.user_endpoint.port) == ("host", 80)
        assert {row.topic: row.partitions for row in one.active_partitions} == {
            "in": [0, 1],
            "app-moved": [0, 1],
        }
        assert one.standby_partitions == []
        again = beats("m", told.member_epoch, endpoint_information_epoch=told.endpoint_information_epoch)
        assert (await client.ask(HEARTBEAT, 0, again)).partitions_by_user_endpoint is None

    with_broker(scenario, groups=AT_ONCE)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
        ({"task_offsets": [TaskOffset("0", 0, 5)]}, ErrorCode.INVALID_REQUEST),
        ({"task_end_offsets": []}, ErrorCode.INVALID_REQUEST),
        ({"warmup_tasks": [TaskIds("0", [0])]}, ErrorCode.INVALID_REQUEST),
        ({"topology": Topology(0, [Subtopology("0", [], ["a.*"])])}, ErrorCode.INVALID_REQUEST),
        (
            {"topology": Topology(0, [Subtopology("0", ["__consumer_offsets"])])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        ({"topology": Topology(0, [Subtopology("0", ["no/name"])])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": Topology(0, [Subtopology("0", [])])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"member_epoch": 7, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_does_not_hold_is_refused_and_leaves_nothing(
    with_broker: Run, changes: dict[str, Any], code: ErrorCode
) -> None:
    async def scenario(client: Any) -> None:
        request = joins()
        for name, value in changes.items():
            setattr(request, name, value)
        answer = await client.ask(HEARTBEAT, 0, request)
        assert answer.error_code == code, answer
        assert answer.error_message
        assert client.broker.groups.find("app") is None

    with_broker(scenario, groups=AT_ONCE)


class Without(AllowAll):
    """All but one operation on topics whose name ends so, and on the cluster."""

    def __init__(self, operation: Operation, name: str) -> None:
        self._operation = operation
        self._name = name

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        is_meant = resource.name.endswith(self._name) or resource.type is ResourceType.CLUSTER
        return not (is_meant and operation is self._operation)


def test_a_member_that_may_not_create_topics_is_told_so_and_none_is_created(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "in")
        answer = await client.ask(HEARTBEAT, 0, joins())
        assert answer.error_code == ErrorCode.NONE
        assert [(one.status_code, one.status_detail) for one in answer.status] == [
            (
                MISSING_INTERNAL,
                "Internal topics are missing: app-moved, app-store; Unauthorized to CREATE on topics app-store.",
            )
        ]
        assert client.broker.kafka_topics.find("app-moved") is None

    with_broker(scenario, groups=AT_ONCE, authorizer=Without(Operation.CREATE, "/app-store"))


def test_a_member_that_may_not_describe_a_topic_is_refused(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "in")
        answer = await client.ask(HEARTBEAT, 0, joins())
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert client.broker.groups.find("app") is None

    with_broker(scenario, groups=AT_ONCE, authorizer=Without(Operation.DESCRIBE, "/app-store"))


def test_a_group_of_topics_that_the_caller_may_not_describe_is_not_shown(with_broker: Run) -> None:
    denied = Without(Operation.DESCRIBE, "/nothing yet")

    async def scenario(client: Any) -> None:
        await ready(client)
        denied._name = "/app-store"
        (group,) = (await client.ask(DESCRIBE, 0, StreamsGroupDescribeRequest(["app"]))).groups
        assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (group.topology, group.members) == (None, [])
        assert "app-" not in group.error_message

    with_broker(scenario, groups=AT_ONCE, authorizer=denied)


def test_a_member_whose_right_is_taken_learns_nothing_more_of_the_topics_and_may_leave(
    with_broker: Run,
) -> None:
    denied = Without(Operation.DESCRIBE, "/nothing yet")

    async def scenario(client: Any) -> None:
        epoch = (await ready(client)).member_epoch
        asks = beats("m", epoch, endpoint_information_epoch=-1, user_endpoint=Endpoint("host", 1))
        shown = await client.ask(HEARTBEAT, 0, asks)
        (told,) = shown.partitions_by_user_endpoint
        assert {one.topic for one in told.active_partitions} == {"in", "app-moved"}
        denied._name = "/in"
        answer = await client.ask(HEARTBEAT, 0, beats("m", shown.member_epoch, endpoint_information_epoch=-1))
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (answer.partitions_by_user_endpoint, "/in" in answer.error_message) == (None, False)
        assert (await client.ask(HEARTBEAT, 0, beats("m", -1))).error_code == ErrorCode.NONE

    with_broker(scenario, groups=AT_ONCE, authorizer=denied)


def test_an_older_topology_of_its_own_shows_a_member_nothing_of_the_groups(with_broker: Run) -> None:
    """A group takes members with any older topology: the answer named the topics of the group's."""
    denied = Without(Operation.DESCRIBE, "/nothing yet")
    newer = topology()
    newer.epoch = 1
    own = Topology(0, [Subtopology("0", ["own"], [], [], [], [], [])])

    async def scenario(client: Any) -> None:
        await make(client, "own")
        first = await client.ask(
            HEARTBEAT, 0, joins(topology=newer)
        )  # `in` is missing, which its status says
        assert first.error_code == ErrorCode.NONE
        denied._name = "/in"
        answer = await client.ask(HEARTBEAT, 0, joins("other", topology=own))
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not answer.status
        assert list(client.broker.groups.find("app").members) == ["m"]

    with_broker(scenario, groups=AT_ONCE, authorizer=denied)


def test_a_topic_that_cannot_be_created_is_told_in_the_status(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "in")
        wanted = topology()
        wanted.subtopologies[1].state_changelog_topics[0].replication_factor = 3
        answer = await client.ask(HEARTBEAT, 0, joins(topology=wanted))
        (status,) = answer.status
        assert status.status_code == MISSING_INTERNAL
        assert "; Creation failed: app-store (" in status.status_detail
        assert client.broker.kafka_topics.find("app-moved") is None

    with_broker(scenario, groups=AT_ONCE)


def test_created_topics_are_in_the_audit_log(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await ready(client)
        created = [line["resource"] for line in client.audit.take() if line["operation"] == "topic.create"]
        assert sorted(name.rpartition("/")[2] for name in created) == ["app-moved", "app-store", "in"]

    with_broker(scenario, groups=AT_ONCE)
