"""Heartbeats of the streams protocol one by one: topics, tasks, who is fenced when.

The rules and the sentences of statuses are those of Apache Kafka 4.3.1's coordinator.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from magnetar.broker.groups.consumer.heartbeats import AT_ONCE_MAX
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    EndpointPartitions,
    GroupState,
    InternalTopic,
    StreamsStatus,
    Subtopology,
    Task,
    Topology,
)
from magnetar.broker.groups.settings import MEMBERS_BYTES_MAX, GroupSettings
from magnetar.broker.groups.streams.group import NOTHING, Held, StreamsGroup, StreamsMember
from magnetar.broker.policy.model import AlterOperation, ConfigChange
from magnetar.testing.groups import GroupDriver
from tests.unit.broker.groups.streams_groups import (
    AT_ONCE,
    SMALL,
    TOPOLOGY,
    described,
    got,
    group_of,
    statuses,
    tasks,
    two_members,
)


@pytest.fixture
def groups() -> Iterator[GroupDriver]:
    with GroupDriver(AT_ONCE) as driver:
        driver.catalogue.partitions = {"t": 4, "moved": 4, "store": 4}
        yield driver


def test_a_group_of_two_goes_through_all_states(groups: GroupDriver) -> None:
    del groups.catalogue.partitions["store"]
    groups.stream("a", 0, SMALL)
    assert described(groups).state is GroupState.NOT_READY
    groups.catalogue.partitions["store"] = 4
    groups.advance(1.0)
    groups.stream("a", 2)
    assert described(groups).state is GroupState.STABLE
    groups.stream("b", 0, SMALL)
    assert described(groups).state is GroupState.ASSIGNING
    groups.advance(1.0)
    groups.stream("a", 3)
    assert described(groups).state is GroupState.RECONCILING
    groups.stream("a", 3, active=tasks(0, 1))
    groups.stream("b", 3)
    found = described(groups)
    assert (found.state, found.epoch, found.assignment_epoch) == (GroupState.STABLE, 4, 4)
    groups.stream("a", -1)
    groups.stream("b", -1)
    assert (described(groups).state, described(groups).epoch) == (GroupState.EMPTY, 6)


def test_a_member_has_no_tasks_until_all_topics_are_there(groups: GroupDriver) -> None:
    groups.catalogue.partitions = {"t": 4}
    joined = groups.stream("a", 0, TOPOLOGY)
    assert got(joined) == (2, set())
    assert statuses(joined) == {
        StreamsStatus.MISSING_INTERNAL_TOPICS: "Internal topics are missing: moved, store"
    }
    assert [(topic.name, topic.partitions) for topic in joined.missing] == [("moved", 4), ("store", 4)]
    groups.catalogue.partitions |= {"moved": 4, "store": 4}
    groups.advance(1.0)
    ready = groups.stream("a", 2)
    assert got(ready) == (3, tasks(0, 1, 2, 3) | tasks(0, 1, 2, 3, of="1"))
    assert (statuses(ready), ready.missing) == ({}, ())


def test_members_lose_their_tasks_when_a_source_is_gone(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    del groups.catalogue.partitions["t"]
    groups.advance(1.0)
    told = groups.stream("a", 2)
    assert got(told) == (2, set())
    assert statuses(told) == {StreamsStatus.MISSING_SOURCE_TOPICS: "Source topics t are missing."}
    assert got(groups.stream("a", 2, active=())) == (3, None)


def test_a_source_that_grows_has_more_tasks(groups: GroupDriver) -> None:
    groups.catalogue.partitions = {"t": 2, "store": 2}
    assert got(groups.stream("a", 0, SMALL)) == (2, tasks(0, 1))
    groups.catalogue.partitions = {"t": 4, "store": 4}
    groups.advance(1.0)
    assert got(groups.stream("a", 2)) == (3, tasks(0, 1, 2, 3))


def test_a_new_group_waits_for_more_members_before_it_assigns() -> None:
    with GroupDriver(GroupSettings()) as groups:
        groups.catalogue.partitions = {"t": 4, "store": 4}
        first = groups.stream("a", 0, SMALL)
        assert got(first) == (1, set())
        assert statuses(first) == {
            StreamsStatus.ASSIGNMENT_DELAYED: "Assignment delayed due to the configured initial rebalance delay."
        }
        groups.advance(2.9)
        assert got(groups.stream("b", 0, SMALL)) == (1, set())
        assert got(groups.stream("a", 1)) == (1, None)
        groups.advance(0.2)
        assert got(groups.stream("a", 1)) == (3, tasks(0, 2))
        assert got(groups.stream("b", 1)) == (3, tasks(1, 3))


def test_the_next_assignment_waits_for_its_interval(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    told = groups.stream("b", 0, SMALL)
    assert statuses(told) == {
        StreamsStatus.ASSIGNMENT_DELAYED: "Assignment delayed due to the configured assignment interval."
    }


def test_a_task_is_given_to_another_only_when_it_was_given_back(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    groups.stream("b", 0, SMALL)
    groups.advance(1.0)
    assert got(groups.stream("a", 2)) == (2, tasks(0, 1))
    assert got(groups.stream("b", 2)) == (3, None)
    assert got(groups.stream("a", 2, active=tasks(0, 1, 2))) == (2, tasks(0, 1))
    assert got(groups.stream("b", 3)) == (3, None)
    assert got(groups.stream("a", 2, active=tasks(0, 1))) == (3, None)
    assert got(groups.stream("b", 3)) == (3, tasks(2, 3))


def test_a_member_that_joins_again_has_given_everything_back(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    groups.stream("b", 0, SMALL)
    groups.advance(1.0)
    assert got(groups.stream("a", 2)) == (2, tasks(0, 1))
    assert got(groups.stream("a", 0, SMALL)) == (3, tasks(0, 1))
    assert got(groups.stream("b", 2)) == (3, tasks(2, 3))


def test_a_task_is_at_one_member_of_a_process_only() -> None:
    """The members of a process share the folder of its state."""
    group = StreamsGroup("g", 0)
    a, b, other = (StreamsMember(name) for name in ("a", "b", "other"))
    a.process_id = b.process_id = "process"
    task = ("0", 0)
    group.hold(a, Held({}, {task}), NOTHING)
    assert not group.is_free(task, b, as_active=True)
    assert not group.is_free(task, b, as_active=False)
    assert group.is_free(task, other, as_active=True)
    assert group.is_free(task, other, as_active=False)
    group.hold(a, Held({task: 1}, frozenset()), NOTHING)
    assert not group.is_free(task, b, as_active=False)
    assert not group.is_free(task, other, as_active=True)
    assert group.is_free(task, other, as_active=False)
    group.hold(a, NOTHING, Held({task: 1}, frozenset()))  # it has yet to give it back
    assert not group.is_free(task, b, as_active=False)
    group.hold(a, NOTHING, NOTHING)
    assert group.is_free(task, b, as_active=True)


def test_a_member_that_does_not_give_back_keeps_its_tasks_until_its_time_is_up(groups: GroupDriver) -> None:
    groups.stream("a", 0, SMALL)
    groups.stream("b", 0, SMALL)
    groups.advance(1.0)
    assert got(groups.stream("a", 2)) == (2, tasks(0, 1))
    groups.stream("b", 2)
    for _ in range(5):
        groups.advance(5.0)
        assert got(groups.stream("a", 2)) == (2, None)
        assert got(groups.stream("b", 3)) == (3, None)
    groups.advance(5.0)  # its rebalance time-out
    assert groups.stream("a", 2).error is GroupError.UNKNOWN_MEMBER_ID
    assert got(groups.stream("b", 3)) == (4, tasks(0, 1, 2, 3))


def test_a_silent_member_is_out_when_its_session_ends(groups: GroupDriver) -> None:
    two_members(groups)
    groups.advance(44.0)
    groups.stream("b", 3)
    groups.advance(1.5)
    assert groups.stream("a", 3).error is GroupError.UNKNOWN_MEMBER_ID
    assert got(groups.stream("b", 3)) == (4, tasks(0, 1, 2, 3))


@pytest.mark.parametrize(
    ("epoch", "active", "error"),
    [
        (3, None, GroupError.NONE),
        (4, None, GroupError.FENCED_MEMBER_EPOCH),
        (2, tasks(0, 1), GroupError.NONE),
        (2, None, GroupError.FENCED_MEMBER_EPOCH),
        (2, tasks(0, 1, 2), GroupError.FENCED_MEMBER_EPOCH),
        (1, tasks(0, 1), GroupError.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_member_is_fenced_by_its_epoch(
    groups: GroupDriver, epoch: int, active: set[Task] | None, error: GroupError
) -> None:
    two_members(groups)
    assert groups.stream("a", epoch, active=active).error is error


def test_a_member_that_has_not_heard_what_it_has_is_told_again(groups: GroupDriver) -> None:
    two_members(groups)
    assert got(groups.stream("b", 3)) == (3, None)
    assert got(groups.stream("b", 3, active=tasks(2))) == (3, tasks(2, 3))
    assert got(groups.stream("b", 0, SMALL)) == (3, tasks(2, 3))


def test_standbys_are_at_another_process_and_come_with_the_groups_own_setting(groups: GroupDriver) -> None:
    two_members(groups)
    change = ConfigChange("streams.num.standby.replicas", AlterOperation.SET, "1")
    groups.wait(groups.coordinator.configs.change("g", groups.coordinator.configs.after("g", [change])))
    groups.advance(1.0)
    a, b = groups.stream("a", 3), groups.stream("b", 3)
    assert a.tasks is not None
    assert b.tasks is not None
    assert (set(a.tasks.active), set(a.tasks.standby)) == (tasks(0, 1), tasks(2, 3))
    assert (set(b.tasks.active), set(b.tasks.standby)) == (tasks(2, 3), tasks(0, 1))


def test_a_standby_takes_over_from_a_member_that_is_gone(groups: GroupDriver) -> None:
    test_standbys_are_at_another_process_and_come_with_the_groups_own_setting(groups)
    groups.stream("a", -1)
    groups.advance(1.0)
    told = groups.stream("b", 4, active=tasks(2, 3), standby=tasks(0, 1))
    assert told.tasks is not None
    assert (set(told.tasks.active), set(told.tasks.standby)) == (tasks(2, 3), set())
    assert got(groups.stream("b", 4, active=tasks(2, 3))) == (5, tasks(0, 1, 2, 3))


def test_topologies_cannot_be_changed_but_older_ones_are_told(groups: GroupDriver) -> None:
    groups.stream("a", 0, replace(SMALL, epoch=1))
    refused = groups.stream("b", 0, replace(SMALL, epoch=2))
    assert refused.error is GroupError.INVALID_REQUEST
    assert refused.message.startswith("Topology updates are not supported yet")
    assert groups.stream("c", 0, replace(TOPOLOGY, epoch=1)).error is GroupError.INVALID_REQUEST
    stale = groups.stream("d", 0, SMALL)
    assert statuses(stale)[StreamsStatus.STALE_TOPOLOGY] == (
        "The member's topology epoch 0 is behind the group's topology epoch 1."
    )
    assert sorted(group_of(groups).members) == ["a", "d"]


def test_one_member_can_have_all_shut_down(groups: GroupDriver) -> None:
    two_members(groups)
    text = "Streams group member a encountered a fatal error and requested a shutdown for the entire application."
    groups.stream("a", -1, shuts_down=True)
    assert statuses(groups.stream("b", 3))[StreamsStatus.SHUTDOWN_APPLICATION] == text
    groups.stream("b", -1)
    assert StreamsStatus.SHUTDOWN_APPLICATION not in statuses(groups.stream("b", 0, SMALL))


def test_members_with_endpoints_learn_where_all_tasks_are(groups: GroupDriver) -> None:
    first = groups.stream("a", 0, SMALL, endpoint=("a.example", 80))
    assert first.endpoints == [EndpointPartitions("a.example", 80, [("t", [0, 1, 2, 3])], [])]
    assert groups.stream("a", 2, endpoint_epoch=first.endpoint_epoch).endpoints is None
    groups.stream("b", 0, SMALL, endpoint=("b.example", 80))
    groups.advance(1.0)
    groups.stream("a", 2)
    groups.stream("a", 2, active=tasks(0, 1))
    told = groups.stream("b", 2, endpoint_epoch=first.endpoint_epoch)
    assert told.endpoints == [
        EndpointPartitions("a.example", 80, [("t", [0, 1])], []),
        EndpointPartitions("b.example", 80, [("t", [2, 3])], []),
    ]
    assert groups.stream("b", 3, endpoint_epoch=told.endpoint_epoch).endpoints is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": ""}, "The member id must not be empty."),
        ({"group_id": " "}, "The group id must not be empty."),
        ({"rack_id": ""}, "The rack id must not be empty."),
        ({"process_id": "p" * 5000}, "The process id is longer than 4096 letters."),
        ({"tags": (("k", "v" * 5000),)}, "The tags and the endpoint together are longer than 4096 letters."),
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"has_offsets": True}, "TaskOffsets are not supported yet."),
        ({"warmup": frozenset(tasks(1))}, "WarmupTasks are not supported yet."),
        ({"rebalance_timeout_ms": -1}, "A member that joins must give its rebalance time-out."),
        ({"active": frozenset(tasks(1))}, "A member that joins must not have tasks."),
        ({"topology": None}, "A member that joins must give its topology."),
        ({"epoch": 1}, "Only a member that joins can give its topology."),
        ({"epoch": -3}, "There is no such member epoch."),
        ({"epoch": -2}, "A member without an instance id cannot leave for now."),
        (
            {"topology": Topology(0, (Subtopology("0", source_patterns=("a.*",)),))},
            "Regular expressions for source topics are not supported yet.",
        ),
        (
            {"epoch": 1, "topology": None, "active": frozenset()},
            "A member must say of all kinds of tasks which it has, or of none.",
        ),
    ],
)
def test_a_heartbeat_that_says_what_it_must_not_is_refused(
    groups: GroupDriver, changes: dict[str, Any], message: str
) -> None:
    request = replace(groups.stream_request("a", 0, SMALL), **changes)
    refused = groups.wait(groups.streaming(request))
    assert (refused.error, refused.message) == (GroupError.INVALID_REQUEST, message)
    assert groups.coordinator.find("g") is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((Subtopology("0", ("t",)),) * 2, "Two subtopologies have the same id."),
        (
            (Subtopology("0", ("t",), changelogs=(InternalTopic("store", 3),)),),
            "Changelog topic store must have an undefined partition count, but it is set to 3.",
        ),
        (
            (Subtopology("0", ("t",), repartitions=(InternalTopic("moved", -1),)),),
            "A repartition topic of subtopology 0 has a negative partition count.",
        ),
        ((Subtopology("0", ("t" * (1 << 20),)),), "The topology is larger than the server keeps."),
        ((Subtopology("0"),), "No source topics found for subtopology 0"),
    ],
)
def test_a_topology_that_cannot_be_is_refused(
    groups: GroupDriver, parts: tuple[Subtopology, ...], message: str
) -> None:
    refused = groups.stream("a", 0, Topology(0, parts))
    assert (refused.error, refused.message) == (GroupError.STREAMS_INVALID_TOPOLOGY, message)
    assert groups.coordinator.find("g") is None


def test_a_member_can_only_have_tasks_that_there_are(groups: GroupDriver) -> None:
    two_members(groups)
    wrong = groups.stream("a", 3, active=tasks(0, of="7"))
    assert wrong.message == "Subtopology 7 does not exist in the topology."
    wrong = groups.stream("a", 3, active=tasks(4))
    assert wrong.error is GroupError.INVALID_REQUEST
    assert wrong.message.endswith("Number of tasks for this subtopology: 4")


def test_there_is_a_limit_for_members() -> None:
    settings = replace(AT_ONCE, group_streams_max_size=1)
    with GroupDriver(settings) as groups:
        groups.stream("a", 0, SMALL)
        assert groups.stream("b", 0, SMALL).error is GroupError.GROUP_MAX_SIZE_REACHED
        assert groups.stream("a", 0, SMALL).error is GroupError.NONE


def test_there_is_a_limit_for_memory_and_what_is_gone_is_free_again(groups: GroupDriver) -> None:
    memory = groups.coordinator._memory
    before = memory.used
    two_members(groups)
    memory.used += MEMBERS_BYTES_MAX
    assert groups.stream("c", 0, SMALL).error is GroupError.COORDINATOR_NOT_AVAILABLE
    memory.used -= MEMBERS_BYTES_MAX
    groups.stream("a", -1)
    groups.stream("b", -1)
    groups.wait(groups.coordinator.delete("g"))
    assert memory.used == before


def test_a_large_group_is_assigned_beside_the_loop(groups: GroupDriver) -> None:
    count = AT_ONCE_MAX + 1
    groups.catalogue.partitions = {"t": count, "store": count}
    assert got(groups.stream("a", 0, SMALL)) == (1, set())
    groups.wait(groups.coordinator.consumers.settled())
    epoch, active = got(groups.stream("a", 1))
    assert epoch == 2
    assert active is not None
    assert len(active) == count
