"""Heartbeats of the consumer protocol one by one: who is fenced when, what is assigned, what outlives a restart.

The answers are those that Apache Kafka 4.3.1 gave to the same requests.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from magnetar.broker.groups.consumer.background import EPOCHS_AT_ONCE
from magnetar.broker.groups.consumer.group import ConsumerGroup
from magnetar.broker.groups.consumer.heartbeats import AT_ONCE_MAX, GROUP_NAMES_MAX
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedConsumerGroup,
    GroupState,
    LeavingMember,
    OffsetToCommit,
)
from magnetar.broker.groups.settings import MEMBER_BYTES_MAX, MEMBERS_BYTES_MAX, GroupSettings
from magnetar.testing.groups import GroupDriver, topic_id, viewer


@pytest.fixture
def groups() -> Iterator[GroupDriver]:
    with GroupDriver(GroupSettings()) as driver:
        driver.catalogue.partitions = {"t": 4, "u": 3}
        yield driver


def got(result: ConsumerHeartbeatResult) -> tuple[int, dict[str, list[int]] | None]:
    """A member's epoch and assignment."""
    assert result.error is GroupError.NONE, result
    if result.assignment is None:
        return result.epoch, None
    names = {topic_id(name): name for name in ("t", "u", "v", "w")}
    return result.epoch, {names[one]: sorted(parts) for one, parts in result.assignment.items()}


def described(groups: GroupDriver, group_id: str = "g") -> DescribedConsumerGroup:
    return groups.coordinator.consumers.describe(group_id)


def group_of(groups: GroupDriver) -> ConsumerGroup:
    found = groups.coordinator.find("g")
    assert isinstance(found, ConsumerGroup)
    return found


def two_members(groups: GroupDriver) -> None:
    """`a` and `b` at epoch 3, with two partitions of `t` each."""
    assert got(groups.beat("a", 0, "t")) == (2, {"t": [0, 1, 2, 3]})
    assert got(groups.beat("b", 0, "t")) == (2, {})
    groups.advance(1.0)
    assert got(groups.beat("a", 2)) == (2, {"t": [0, 1]})
    assert got(groups.beat("a", 2, owned={"t": [0, 1]})) == (3, None)
    assert got(groups.beat("b", 2)) == (3, {"t": [2, 3]})


def commit(groups: GroupDriver, member_id: str, epoch: int, partition: int, **more: Any) -> GroupError:
    (error,) = groups.commit(OffsetToCommit("t", partition, 5), member_id=member_id, generation=epoch, **more)
    return error


def test_a_group_of_two_goes_through_all_states(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    assert described(groups).state is GroupState.STABLE
    groups.beat("b", 0, "t")
    assert described(groups).state is GroupState.ASSIGNING
    groups.advance(1.0)
    groups.beat("a", 2)
    assert described(groups).state is GroupState.RECONCILING
    groups.beat("a", 2, owned={"t": [0, 1]})
    groups.beat("b", 2)
    found = described(groups)
    assert (found.state, found.epoch, found.assignment_epoch) == (GroupState.STABLE, 3, 3)
    groups.beat("a", -1)
    groups.beat("b", -1)
    assert (described(groups).state, described(groups).epoch) == (GroupState.EMPTY, 5)


def test_a_member_that_does_not_give_back_keeps_its_partitions_until_its_time_is_up(
    groups: GroupDriver,
) -> None:
    groups.beat("a", 0, "t")
    groups.beat("b", 0, "t")
    groups.advance(1.0)
    assert got(groups.beat("a", 2)) == (2, {"t": [0, 1]})
    groups.beat("b", 2)
    for _ in range(5):
        groups.advance(5.0)
        assert got(groups.beat("a", 2)) == (2, None)
        assert got(groups.beat("b", 3)) == (3, None)
    groups.advance(5.0)  # its rebalance time-out
    assert groups.beat("a", 2).error is GroupError.UNKNOWN_MEMBER_ID
    assert got(groups.beat("b", 3)) == (4, {"t": [0, 1, 2, 3]})


def test_a_new_revocation_has_its_own_time(groups: GroupDriver) -> None:
    two_members(groups)
    groups.beat("c", 0, "t")
    groups.advance(1.0)
    assert got(groups.beat("a", 3)) == (3, {"t": [0]}) or got(groups.beat("b", 3)) == (3, {"t": [2]})
    groups.advance(20.0)
    assert got(groups.beat("a", 3, owned={"t": [0]}))[0] == 4
    groups.advance(20.0)
    assert groups.beat("a", 4).error is GroupError.NONE


def test_a_silent_member_is_out_when_its_session_ends(groups: GroupDriver) -> None:
    two_members(groups)
    groups.advance(44.0)
    groups.beat("b", 3)
    groups.advance(1.5)
    assert groups.beat("a", 3).error is GroupError.UNKNOWN_MEMBER_ID
    assert got(groups.beat("b", 3)) == (4, {"t": [0, 1, 2, 3]})


@pytest.mark.parametrize("epoch", [1, 2, 4, 99])
def test_a_member_with_another_epoch_is_fenced(groups: GroupDriver, epoch: int) -> None:
    two_members(groups)
    assert groups.beat("a", epoch).error is GroupError.FENCED_MEMBER_EPOCH
    assert groups.beat("a", 3).error is GroupError.NONE


def test_a_member_whose_answer_was_lost_goes_on_if_it_owns_no_more_than_it_was_given(
    groups: GroupDriver,
) -> None:
    two_members(groups)
    assert groups.beat("b", 1, owned={}).error is GroupError.FENCED_MEMBER_EPOCH
    assert groups.beat("b", 2, owned={"t": [1]}).error is GroupError.FENCED_MEMBER_EPOCH
    assert groups.beat("b", 2, owned={"u": [2]}).error is GroupError.FENCED_MEMBER_EPOCH
    assert got(groups.beat("b", 2, owned={})) == (3, {"t": [2, 3]})


def test_a_member_that_joins_again_is_given_all_of_its_assignment(groups: GroupDriver) -> None:
    two_members(groups)
    assert got(groups.beat("a", 0, "t")) == (3, {"t": [0, 1]})


def test_a_member_that_says_all_is_told_all(groups: GroupDriver) -> None:
    two_members(groups)
    full = groups.beat("a", 3, "t", owned={"t": [0, 1]}, rebalance_timeout_ms=10)
    assert got(full) == (3, {"t": [0, 1]})
    assert got(groups.beat("a", 3, owned={"t": [0, 1]})) == (3, None)


def test_a_joining_member_has_an_id_or_gets_one_where_its_version_does_not_make_one(
    groups: GroupDriver,
) -> None:
    assert groups.beat("", 0, "t").error is GroupError.INVALID_REQUEST
    result = groups.beat("", 0, "t", has_own_id=False)
    assert result.member_id
    assert groups.beat(result.member_id, 2, has_own_id=False).error is GroupError.NONE
    assert groups.beat("", 2, has_own_id=False).error is GroupError.INVALID_REQUEST


@pytest.mark.parametrize(
    "changes",
    [
        {"group_id": ""},
        {"group_id": "x" * 5000},
        {"member_id": "x" * 5000},
        {"instance_id": " "},
        {"rack_id": ""},
        {"epoch": -3},
        {"epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": {topic_id("t"): frozenset({1})}},
        {"names": None},
        {"names": tuple(map(str, range(MEMBER_BYTES_MAX // 400)))},
        {"assignor": "nope"},
    ],
)
def test_a_bad_heartbeat_is_refused_and_makes_no_group(
    groups: GroupDriver, changes: Mapping[str, Any]
) -> None:
    good = ConsumerHeartbeat(
        "g", "a", 0, rebalance_timeout_ms=1, names=("t",), topics=("t",), owned={}, viewer=viewer()
    )
    result = groups.beat_with(replace(good, **changes))
    expected = GroupError.UNSUPPORTED_ASSIGNOR if "assignor" in changes else GroupError.INVALID_REQUEST
    assert (result.error, bool(result.message)) == (expected, True)
    assert groups.coordinator.listed() == []


def test_members_of_unknown_groups_are_told_so(groups: GroupDriver) -> None:
    for epoch in (5, -1):
        assert groups.beat("a", epoch).error is GroupError.GROUP_ID_NOT_FOUND
    groups.beat("b", 0, "t")
    for epoch in (5, -1):
        assert groups.beat("a", epoch).error is GroupError.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more(groups: GroupDriver) -> None:
    with GroupDriver(GroupSettings(group_consumer_max_size=1)) as small:
        assert small.beat("a", 0, "t").error is GroupError.NONE
        assert small.beat("b", 0, "t").error is GroupError.GROUP_MAX_SIZE_REACHED
        assert small.beat("a", 0, "t").error is GroupError.NONE


# static members


def test_a_static_member_that_leaves_for_now_keeps_its_partitions_for_the_next_one(
    groups: GroupDriver,
) -> None:
    groups.beat("a", 0, "t", instance_id="i")
    assert groups.beat("b", 0, "t", instance_id="i").error is GroupError.UNRELEASED_INSTANCE_ID
    assert groups.beat("b", -2, instance_id="i").error is GroupError.FENCED_INSTANCE_ID
    assert groups.beat("a", -2, instance_id="i").epoch == -2
    assert groups.beat("a", 2, instance_id="i").error is GroupError.FENCED_MEMBER_EPOCH
    assert got(groups.beat("b", 0, "t", instance_id="i")) == (2, {"t": [0, 1, 2, 3]})
    assert described(groups).epoch == 2
    assert groups.beat("a", 2, instance_id="i").error is GroupError.FENCED_INSTANCE_ID
    assert commit(groups, "a", 2, 0) is GroupError.UNKNOWN_MEMBER_ID
    assert commit(groups, "b", 2, 0) is GroupError.NONE


def test_a_static_member_that_does_not_come_back_is_out(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t", instance_id="i")
    groups.beat("a", -2, instance_id="i")
    groups.advance(45.0)
    assert described(groups).state is GroupState.EMPTY
    assert groups.beat("b", -1, instance_id="i").error is GroupError.UNKNOWN_MEMBER_ID


def test_what_a_static_member_had_to_give_back_is_free_when_it_leaves_for_now(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t", instance_id="i")
    groups.beat("b", 0, "t")
    groups.advance(1.0)
    groups.beat("a", 2, instance_id="i")  # it is to give two back
    groups.beat("a", -2, instance_id="i")
    assert got(groups.beat("b", 2)) == (3, {"t": [2, 3]})


# assignments


def test_partitions_and_topics_that_come_are_assigned(groups: GroupDriver) -> None:
    assert got(groups.beat("a", 0, "t", "v")) == (2, {"t": [0, 1, 2, 3]})
    groups.catalogue.partitions |= {"t": 5, "v": 2}
    groups.advance(1.0)
    assert got(groups.beat("a", 2)) == (3, {"t": [0, 1, 2, 3, 4], "v": [0, 1]})


def test_partitions_of_deleted_topics_are_taken_back(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t", "u")
    del groups.catalogue.partitions["u"]
    groups.advance(1.0)
    assert got(groups.beat("a", 2)) == (2, {"t": [0, 1, 2, 3]})
    assert got(groups.beat("a", 2, owned={"t": [0, 1, 2, 3]})) == (3, None)


def test_the_assignor_that_most_members_ask_for_is_used(groups: GroupDriver) -> None:
    groups.catalogue.partitions = {"t": 3, "u": 3}
    groups.beat("a", 0, "t", "u", assignor="range")
    groups.beat("b", 0, "t", "u")
    assert described(groups).assignor == "range"
    groups.advance(1.0)
    assert got(groups.beat("a", 2)) == (2, {"t": [0, 1], "u": [0, 1]})
    groups.beat("c", 0, "t", "u", assignor="uniform")
    assert described(groups).assignor == "uniform"  # as many ask for it, and it stands first


def test_targets_are_computed_at_most_once_in_the_interval(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    groups.beat("b", 0, "t")
    groups.advance(0.9)
    assert got(groups.beat("a", 2)) == (2, None)
    groups.advance(0.1)
    assert got(groups.beat("a", 2)) == (2, {"t": [0, 1]})


def test_targets_of_large_groups_are_computed_beside_the_loop(groups: GroupDriver) -> None:
    groups.catalogue.partitions["t"] = AT_ONCE_MAX
    assert got(groups.beat("a", 0, "t")) == (1, {})
    assert described(groups).state is GroupState.ASSIGNING
    group = group_of(groups)

    async def assigned() -> None:
        await groups.coordinator.consumers.settled()

    groups.wait(assigned())
    assert group.assignment_epoch == 2
    epoch, parts = got(groups.beat("a", 1))
    assert (epoch, parts) == (2, {"t": list(range(AT_ONCE_MAX))})


# offsets


def test_a_group_without_members_changes_its_protocol(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    joined = groups.join(groups.request(protocol_type="connect"))
    assert joined.join.error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    epoch = described(groups).epoch
    groups.beat("a", -1)
    (leader,) = groups.stable()
    assert leader.generation > epoch
    assert described(groups).error is GroupError.GROUP_ID_NOT_FOUND
    groups.leave(leader.member_id)
    assert got(groups.beat("a", 0, "t"))[0] > leader.generation
    assert groups.coordinator.describe("g").error is GroupError.GROUP_ID_NOT_FOUND


def test_members_of_one_protocol_are_unknown_to_requests_of_the_other(groups: GroupDriver) -> None:
    two_members(groups)
    assert groups.coordinator.heartbeat("g", "a", 3) is GroupError.UNKNOWN_MEMBER_ID
    _, errors = groups.leave("x", "a", LeavingMember("", "nobody"), LeavingMember("b", "i"))
    assert errors == [
        GroupError.UNKNOWN_MEMBER_ID,
        GroupError.NONE,
        GroupError.UNKNOWN_MEMBER_ID,
        GroupError.FENCED_INSTANCE_ID,
    ]
    assert groups.beat("a", 3).error is GroupError.UNKNOWN_MEMBER_ID


# memory


def test_all_memory_is_given_back(groups: GroupDriver) -> None:
    memory = group_memory(groups)
    before = memory.used
    two_members(groups)
    groups.beat("a", 3, "t", "u", owned={})
    groups.beat("c", 0, "u", instance_id="i")
    assert memory.used > before
    for member_id, instance_id in (("a", None), ("b", None), ("c", "i")):
        assert groups.beat(member_id, -1, instance_id=instance_id).error is GroupError.NONE
    assert groups.wait(groups.coordinator.delete("g")) is GroupError.NONE
    assert memory.used == before


def group_memory(groups: GroupDriver) -> Any:
    return groups.coordinator._memory


def test_members_that_say_the_same_share_it(groups: GroupDriver) -> None:
    names = tuple(f"topic-{n}" for n in range(1000))
    groups.beat("a", 0, *names)
    one = group_memory(groups).used
    groups.beat("b", 0, *names)
    assert group_memory(groups).used - one < 10_000


def test_subscriptions_are_bounded_for_each_group_and_for_all(groups: GroupDriver) -> None:
    def names(n: int) -> tuple[str, ...]:
        return tuple(f"{n}-{k}" for k in range(15_000))

    taken = 0
    while groups.beat(f"m{taken}", 0, *names(taken)).error is GroupError.NONE:
        taken += 1
    assert taken == GROUP_NAMES_MAX // 15_000
    others = 0
    while (result := groups.beat("m", 0, *names(0), group_id=f"g{others}")).error is GroupError.NONE:
        others += 1
    assert result.error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert group_memory(groups).used <= MEMBERS_BYTES_MAX
    assert groups.beat("m", 0, "t", group_id="small").error is GroupError.NONE


def test_endless_groups_are_bounded(groups: GroupDriver) -> None:
    group_memory(groups).used = MEMBERS_BYTES_MAX - 1000
    assert groups.beat("m", 0, "t", group_id="one-more").error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert groups.coordinator.listed() == []
    group_memory(groups).used = 0


# what was found by changing one place at a time


def test_a_group_that_was_empty_assigns_at_once(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    groups.beat("a", -1)
    assert got(groups.beat("b", 0, "t"))[1] == {"t": [0, 1, 2, 3]}


def test_members_that_left_while_a_target_was_computed_get_nothing_of_it(groups: GroupDriver) -> None:
    groups.catalogue.partitions["t"] = AT_ONCE_MAX
    groups.beat("a", 0, "t")
    groups.beat("b", 0, "t")
    groups.beat("a", -1)
    groups.wait(groups.coordinator.consumers.settled())
    assert "a" not in group_of(groups).target


def test_a_group_that_has_come_from_the_classic_protocol_stores_its_epochs(groups: GroupDriver) -> None:
    groups.stable()
    assert groups.beat("a", 0, "t").error is GroupError.NONE
    groups.restart()
    assert groups.beat("a", 0, "t").epoch > EPOCHS_AT_ONCE


def test_the_next_epochs_are_stored_before_the_last_ones_are_used(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    group = group_of(groups)
    group.epoch = group.assignment_epoch = group.members["a"].epoch = group.epochs_stored - 5
    groups.beat("a", group.epoch)
    groups.advance(1.0)
    assert group.epochs_stored - group.epoch > EPOCHS_AT_ONCE // 2
