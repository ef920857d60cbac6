"""What tests of streams groups share: topologies, a group of two, and what an answer says."""

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    DescribedStreamsGroup,
    InternalTopic,
    StreamsHeartbeatResult,
    StreamsStatus,
    Subtopology,
    Task,
    Topology,
)
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.groups.streams.group import StreamsGroup
from magnetar.testing.groups import GroupDriver

# `t` is moved to its keys by `moved`, and counted with a store.
TOPOLOGY = Topology(
    0,
    (
        Subtopology("0", ("t",), sinks=("moved",)),
        Subtopology("1", repartitions=(InternalTopic("moved"),), changelogs=(InternalTopic("store"),)),
    ),
)
SMALL = Topology(0, (Subtopology("0", ("t",), changelogs=(InternalTopic("store"),)),))
AT_ONCE = GroupSettings(group_streams_initial_rebalance_delay_ms=0)


def tasks(*indexes: int, of: str = "0") -> set[Task]:
    return {(of, index) for index in indexes}


def got(result: StreamsHeartbeatResult) -> tuple[int, set[Task] | None]:
    """A member's epoch and active tasks."""
    assert result.error is GroupError.NONE, result
    return result.epoch, None if result.tasks is None else set(result.tasks.active)


def statuses(result: StreamsHeartbeatResult) -> dict[StreamsStatus, str]:
    assert result.error is GroupError.NONE, result
    return dict(result.statuses)


def described(groups: GroupDriver, group_id: str = "g") -> DescribedStreamsGroup:
    return groups.coordinator.streams.describe(group_id)


def group_of(groups: GroupDriver) -> StreamsGroup:
    found = groups.coordinator.find("g")
    assert isinstance(found, StreamsGroup)
    return found


def two_members(groups: GroupDriver) -> None:
    """`a` and `b` at epoch 3, with two tasks each."""
    assert got(groups.stream("a", 0, SMALL)) == (2, tasks(0, 1, 2, 3))
    assert got(groups.stream("b", 0, SMALL)) == (2, set())
    groups.advance(1.0)
    assert got(groups.stream("a", 2)) == (2, tasks(0, 1))
    assert got(groups.stream("a", 2, active=tasks(0, 1))) == (3, None)
    assert got(groups.stream("b", 2)) == (3, tasks(2, 3))
