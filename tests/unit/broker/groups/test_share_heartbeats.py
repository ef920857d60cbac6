"""Heartbeats of share groups: how members that start together come to share a topic's partitions.

Apache Kafka 4.3.1 does so, too: a topic's partitions are assigned once their state is initialized, which takes a
heartbeat or more, and by then the members are there.
"""

from collections.abc import Awaitable, Iterator

import pytest

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import ConsumerHeartbeatResult, ShareHeartbeat
from magnetar.broker.groups.settings import GroupSettings
from magnetar.testing.groups import GroupDriver, topic_id, viewer

INTERVAL_MS = 5_000


@pytest.fixture
def groups() -> Iterator[GroupDriver]:
    with GroupDriver(GroupSettings()) as driver:
        driver.catalogue.partitions = {"t": 4}
        yield driver


def beat(groups: GroupDriver, member_id: str, epoch: int) -> ConsumerHeartbeatResult:
    topics = ("t",) if epoch == 0 else ()
    request = ShareHeartbeat("g", member_id, epoch, names=topics or None, topics=topics, viewer=viewer())

    async def beating() -> ConsumerHeartbeatResult:
        answer = groups.coordinator.sharing.heartbeat(request)
        return await answer if isinstance(answer, Awaitable) else answer

    result = groups.wait(beating())
    assert result.error is GroupError.NONE, result
    return result


def partitions(result: ConsumerHeartbeatResult) -> list[int]:
    return sorted((result.assignment or {}).get(topic_id("t"), ()))


def test_members_that_start_together_share_the_partitions(groups: GroupDriver) -> None:
    first = beat(groups, "a", 0)
    assert (partitions(first), first.heartbeat_interval_ms) == ([], 1000)
    groups.advance(0.25)
    second = beat(groups, "b", 0)
    assert (partitions(second), second.heartbeat_interval_ms) == ([], 750)
    groups.advance(0.75)
    one, other = beat(groups, "a", first.epoch), beat(groups, "b", second.epoch)
    assert (len(partitions(one)), len(partitions(other))) == (2, 2)
    assert sorted(partitions(one) + partitions(other)) == [0, 1, 2, 3]
    assert one.heartbeat_interval_ms == other.heartbeat_interval_ms == INTERVAL_MS


def test_a_member_alone_has_all_after_one_interval(groups: GroupDriver) -> None:
    first = beat(groups, "a", 0)
    groups.advance(1.0)
    assert partitions(beat(groups, "a", first.epoch)) == [0, 1, 2, 3]


def test_a_group_that_has_had_members_waits_for_nobody(groups: GroupDriver) -> None:
    first = beat(groups, "a", 0)
    beat(groups, "a", -1)
    groups.advance(1.0)
    again = beat(groups, "b", 0)
    assert first.assignment == {}
    assert (partitions(again), again.heartbeat_interval_ms) == ([0, 1, 2, 3], INTERVAL_MS)


def test_a_group_waits_for_nobody_after_a_restart(groups: GroupDriver) -> None:
    beat(groups, "a", 0)
    groups.restart()
    assert partitions(beat(groups, "a", 0)) == [0, 1, 2, 3]
