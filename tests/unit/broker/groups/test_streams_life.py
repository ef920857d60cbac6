"""Streams groups beside restarts and groups of other kinds, and the offsets that their members may commit."""

from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    GroupState,
    OffsetToCommit,
)
from magnetar.testing.groups import GroupDriver
from tests.unit.broker.groups.streams_groups import (
    AT_ONCE,
    SMALL,
    TOPOLOGY,
    described,
    got,
    group_of,
    tasks,
    two_members,
)


@pytest.fixture
def groups() -> Iterator[GroupDriver]:
    with GroupDriver(AT_ONCE) as driver:
        driver.catalogue.partitions = {"t": 4, "moved": 4, "store": 4}
        yield driver


def test_members_begin_anew_after_a_restart_and_epochs_go_on(groups: GroupDriver) -> None:
    two_members(groups)
    epoch = group_of(groups).epoch
    groups.restart()
    assert described(groups).state is GroupState.EMPTY
    assert groups.stream("a", 3).error is GroupError.UNKNOWN_MEMBER_ID
    assert groups.stream("a", 0, SMALL).epoch > epoch


def test_a_topology_outlives_a_restart_and_goes_with_its_group(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    groups.stream("a", -1)
    groups.restart()
    assert described(groups).topology == SMALL
    refused = groups.stream("b", 0, TOPOLOGY)
    assert refused.message.startswith("Topology updates are not supported yet")
    assert groups.wait(groups.coordinator.delete("g")) is GroupError.NONE
    groups.restart()
    assert described(groups).error is GroupError.GROUP_ID_NOT_FOUND
    assert groups.stream("b", 0, TOPOLOGY).error is GroupError.NONE


def test_a_damaged_topology_is_brought_anew(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    groups.stream("a", -1)
    (path,) = [path for path, _ in groups.wait(groups.store.scan("/group-topologies/"))]
    groups.wait(groups.store.put(path, b"no topology"))
    groups.restart()
    assert described(groups).topology is None
    assert groups.stream("a", 3).error is GroupError.UNKNOWN_MEMBER_ID
    assert groups.stream("a", 0, TOPOLOGY).error is GroupError.NONE
    groups.restart()
    assert described(groups).topology == TOPOLOGY


def test_a_group_with_members_is_not_deleted(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    assert groups.wait(groups.coordinator.delete("g")) is GroupError.NON_EMPTY_GROUP


def test_the_described_topology_has_the_numbers_that_were_decided(groups: GroupDriver) -> None:
    groups.stream("a", 0, TOPOLOGY)
    found = described(groups).topology
    assert found is not None
    assert [topic.partitions for part in found.subtopologies for topic in part.internal_topics] == [4, 4]


def test_a_streams_group_takes_the_place_of_an_empty_classic_one_and_back(groups: GroupDriver) -> None:
    groups.commit(OffsetToCommit("t", 0, 5))
    assert got(groups.stream("a", 0, SMALL))[1] == tasks(0, 1, 2, 3)
    assert groups.committed("t", 0) == 5
    parked = groups.join(groups.request())
    assert parked.join.error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    groups.stream("a", -1)
    assert groups.stable()[0].error is GroupError.NONE
    assert groups.wait(groups.store.scan("/group-topologies/")) == []
    refused = groups.stream("a", 0, SMALL)
    assert (refused.error, refused.message) == (
        GroupError.GROUP_ID_NOT_FOUND,
        "The group is no streams group.",
    )


def test_a_group_of_another_kind_stays_what_it_is(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    assert groups.beat("c", 0, "t").error is GroupError.GROUP_ID_NOT_FOUND
    groups.stream("a", -1)
    assert groups.beat("c", 0, "t").error is GroupError.GROUP_ID_NOT_FOUND
    groups.beat("c", 0, "t", group_id="consumers")
    assert groups.stream("a", 0, SMALL, group_id="consumers").error is GroupError.GROUP_ID_NOT_FOUND
    assert groups.stream("a", 1, group_id="nobody").error is GroupError.GROUP_ID_NOT_FOUND


def test_streams_groups_are_listed_with_their_type_and_state(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    (listed,) = groups.coordinator.listed(types=["Streams"])
    assert (listed.group_type, listed.protocol_type, listed.state) == (
        "streams",
        "streams",
        GroupState.STABLE,
    )
    groups.restart()
    (listed,) = groups.coordinator.listed(types=["streams"])
    assert (listed.group_type, listed.protocol_type, listed.state) == ("streams", "streams", GroupState.EMPTY)


# --- offsets ---------------------------------------------------------------------------------------------------------


def commit(groups: GroupDriver, member_id: str, epoch: int, partition: int, **more: Any) -> GroupError:
    (error,) = groups.commit(OffsetToCommit("t", partition, 5), member_id=member_id, generation=epoch, **more)
    return error


@pytest.mark.parametrize(
    ("member_id", "epoch", "partition", "error"),
    [
        ("a", 3, 0, GroupError.NONE),
        ("a", 4, 0, GroupError.STALE_MEMBER_EPOCH),
        ("a", 2, 0, GroupError.NONE),  # it has had the task since then
        ("b", 2, 2, GroupError.STALE_MEMBER_EPOCH),
        ("a", 2, 2, GroupError.STALE_MEMBER_EPOCH),
        ("", -1, 0, GroupError.UNKNOWN_MEMBER_ID),
        ("c", 3, 0, GroupError.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_commit_for_the_tasks_that_they_have(
    groups: GroupDriver, member_id: str, epoch: int, partition: int, error: GroupError
) -> None:
    two_members(groups)
    assert commit(groups, member_id, epoch, partition) is error


def test_old_requests_cannot_commit_for_members(groups: GroupDriver) -> None:
    two_members(groups)
    assert commit(groups, "a", 3, 0, knows_epochs=False) is GroupError.UNSUPPORTED_VERSION


def test_tools_set_offsets_when_nobody_is_there(groups: GroupDriver) -> None:
    two_members(groups)
    groups.stream("a", -1)
    groups.stream("b", -1)
    assert commit(groups, "", -1, 0) is GroupError.NONE
    assert groups.committed("t", 0) == 5


def test_members_fetch_offsets_with_their_epoch(groups: GroupDriver) -> None:
    two_members(groups)
    check = groups.coordinator.offsets.check_fetch
    assert check("g", "a", 3) is GroupError.NONE
    assert check("g", "a", 2) is GroupError.STALE_MEMBER_EPOCH
    assert check("g", "c", 3) is GroupError.UNKNOWN_MEMBER_ID
    assert check("g", None, -1) is GroupError.NONE


def test_offsets_of_a_topic_that_is_read_are_not_deleted(groups: GroupDriver) -> None:
    two_members(groups)
    commit(groups, "a", 3, 0)
    delete = groups.coordinator.offsets.delete
    partitions = [("t", 0)]
    assert groups.wait(delete("g", partitions)) == (
        GroupError.NONE,
        [GroupError.GROUP_SUBSCRIBED_TO_TOPIC],
    )
    assert groups.wait(delete("g", [("store", 0)])) == (GroupError.NONE, [GroupError.NONE])
    groups.stream("a", -1)
    groups.stream("b", -1)
    assert groups.wait(delete("g", partitions)) == (GroupError.NONE, [GroupError.NONE])
