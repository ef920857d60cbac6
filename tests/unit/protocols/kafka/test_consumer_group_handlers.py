"""The APIs of the consumer group protocol from a request's bytes to a response's bytes, in every version."""

from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.security.authorizer import AllowAll
from magnetar.broker.security.model import Caller, Operation, Resource
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE
from magnetar.testing.groups import GroupDriver
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from magnetar.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from magnetar.wire.kafka.messages.list_groups import ListGroupsRequest
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.unit.protocols.kafka.test_group_handlers import PREFIX, TOPIC_ID, Door, versions

HEARTBEAT, DESCRIBE = "consumer_group_heartbeat", "consumer_group_describe"


@pytest.fixture
def door() -> Iterator[Door]:
    with GroupDriver(GroupSettings()) as driver:
        made = Door(driver)
        driver.catalogue.ids = {PREFIX + "t": TOPIC_ID}
        yield made


def joins(member_id: str = "m", **changes: Any) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(
        "g", member_id, 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_a_member_joins_beats_and_leaves_in_every_version(door: Door, version: int) -> None:
    joined = door.ask(HEARTBEAT, version, joins("" if version == 0 else "m"))
    assert (joined.error_code, joined.error_message) == (ErrorCode.NONE, None)
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (2, 5000)
    assert [(one.topic_id, one.partitions) for one in joined.assignment.topic_partitions] == [
        (TOPIC_ID, list(range(8)))
    ]
    beat = ConsumerGroupHeartbeatRequest("g", joined.member_id, 2)
    beaten = door.ask(HEARTBEAT, version, beat)
    assert (beaten.error_code, beaten.member_epoch, beaten.assignment) == (ErrorCode.NONE, 2, None)
    beat.topic_partitions = [TopicPartitions(TOPIC_ID, [0])]
    assert door.ask(HEARTBEAT, version, beat).assignment is not None  # it lacks seven
    left = door.ask(HEARTBEAT, version, ConsumerGroupHeartbeatRequest("g", joined.member_id, -1))
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    gone = door.ask(HEARTBEAT, version, beat)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert gone.error_message


def test_a_bad_heartbeat_is_told_why(door: Door) -> None:
    answer = door.ask(HEARTBEAT, 1, joins(server_assignor="nope"))
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in answer.error_message


def test_very_many_names_leave_turns_to_others(door: Door) -> None:
    names = ["t", *(f"x{n}" for n in range(2 * ELEMENTS_AT_ONCE))]
    before = door.large.turns
    answer = door.ask(HEARTBEAT, 1, joins(subscribed_topic_names=names))
    assert answer.error_code == ErrorCode.NONE
    assert door.large.turns - before > 10
    assert door.large.elements_in_turn_max <= 100
    (group,) = door.ask(DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"])).groups
    assert group.members[0].subscribed_topic_names == names


def test_a_member_may_name_and_own_more_than_any_other_request_may_have(door: Door) -> None:
    # The connection of a consumer with 18,000 partitions was closed with each heartbeat that told of them.
    names = ["t", *(f"x{number}" for number in range(19_000))]
    assert door.ask(HEARTBEAT, 1, joins(subscribed_topic_names=names)).error_code == ErrorCode.NONE
    before = door.large.turns
    beat = ConsumerGroupHeartbeatRequest("g", "m", 2)
    others = [TopicPartitions(number.to_bytes(16, "big"), []) for number in range(100, 19_100)]
    beat.topic_partitions = [TopicPartitions(TOPIC_ID, list(range(8))), *others]
    answer = door.ask(HEARTBEAT, 1, beat)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 2, None)
    assert door.large.turns - before > 100
    assert door.large.elements_in_turn_max <= 100
    beat.topic_partitions = [TopicPartitions(TOPIC_ID, list(range(7))), *others]
    assert door.ask(HEARTBEAT, 1, beat).assignment is not None, "it lacks one"


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_a_group_is_described_in_every_version(door: Door, version: int) -> None:
    door.ask(HEARTBEAT, 1, joins(instance_id="i", rack_id="r"))
    request = ConsumerGroupDescribeRequest(["g", "other", ""], True)
    group, other, nameless = door.ask(DESCRIBE, version, request).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (2, 2)
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 2)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
    for assignment in (member.assignment, member.target_assignment):
        (row,) = assignment.topic_partitions
        assert (row.topic_id, row.topic_name, row.partitions) == (TOPIC_ID, "t", list(range(8)))
    assert member.member_type == (1 if version >= 1 else -1)
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


class NotForEyes(AllowAll):
    """All but describing the topic `secret`."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return not (resource.name.endswith("/secret") and operation is Operation.DESCRIBE)


def test_members_of_topics_that_the_caller_may_not_describe_are_not_shown() -> None:
    with GroupDriver(GroupSettings()) as driver:
        Door(driver).ask(HEARTBEAT, 1, joins(subscribed_topic_names=["t", "secret"]))
        Door(driver).ask(HEARTBEAT, 1, joins(group_id="open"))
        door = Door(driver, authorizer=NotForEyes())
        secret, group = door.ask(DESCRIBE, 1, ConsumerGroupDescribeRequest(["g", "open"])).groups
        assert (secret.error_code, secret.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        assert "secret" not in secret.error_message, "the caller has not named the topic"
        assert (group.error_code, len(group.members)) == (ErrorCode.NONE, 1)
        refused = door.ask(HEARTBEAT, 1, joins("n", subscribed_topic_names=["t", "secret"]))
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_large_group_is_described_in_turns(door: Door) -> None:
    for number in range(600):
        door.ask(HEARTBEAT, 1, joins(f"m{number}"))
    before = door.large.turns
    (group,) = door.ask(DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"])).groups
    assert [member.member_id for member in group.members] == [f"m{n}" for n in range(600)]
    assert door.large.turns - before > 30


def test_groups_of_both_protocols_are_listed_by_type_and_state(door: Door) -> None:
    door.ask(HEARTBEAT, 1, joins(group_id="consumer-group"))
    door.stable()

    def listed(types: list[str], states: list[str]) -> list[tuple[str, str, str]]:
        rows = door.ask("list_groups", 5, ListGroupsRequest(states, types)).groups
        return sorted((row.group_id, row.group_state, row.group_type) for row in rows)

    consumer, classic = ("consumer-group", "Stable", "consumer"), ("g", "Stable", "classic")
    assert listed([], []) == listed(["Consumer", "classic"], ["stable"]) == [consumer, classic]
    assert listed(["consumer"], []) == [consumer]
    assert listed(["classic"], []) == [classic]
    assert listed([], ["Reconciling"]) == []


def test_what_describes_classic_groups_does_not_know_a_consumer_group(door: Door) -> None:
    door.ask(HEARTBEAT, 1, joins())
    (row,) = door.ask("describe_groups", 6, DescribeGroupsRequest(["g"])).groups
    assert (row.error_code, row.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (10, 2, ErrorCode.NONE),
        (9, 2, ErrorCode.NONE),
        (9, 1, ErrorCode.STALE_MEMBER_EPOCH),
        (8, 2, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_member_commits_by_its_epoch(door: Door, version: int, epoch: int, code: ErrorCode) -> None:
    door.ask(HEARTBEAT, 1, joins())
    by_id = version >= 10
    topic = OffsetCommitRequestTopic(
        "" if by_id else "t", TOPIC_ID if by_id else bytes(16), [OffsetCommitRequestPartition(0, 5)]
    )
    answer = door.ask("offset_commit", version, OffsetCommitRequest("g", epoch, "m", topics=[topic]))
    assert answer.topics[0].partitions[0].error_code == code


def test_a_member_fetches_by_its_epoch(door: Door) -> None:
    door.ask(HEARTBEAT, 1, joins())

    def fetch(member_id: str | None, epoch: int) -> int:
        topics = [OffsetFetchRequestTopics("t", bytes(16), [0])]
        group = OffsetFetchRequestGroup("g", member_id, epoch, topics)
        code: int = door.ask("offset_fetch", 9, OffsetFetchRequest(groups=[group])).groups[0].error_code
        return code

    assert fetch("m", 2) == fetch(None, -1) == ErrorCode.NONE
    assert fetch("m", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("x", 2) == ErrorCode.UNKNOWN_MEMBER_ID
