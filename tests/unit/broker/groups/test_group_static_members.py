"""Static members (KIP-345, KIP-814): a member that comes back under its instance id takes its own place
again.
"""

from typing import Any

import pytest

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import GroupState, JoinResult, LeavingMember, OffsetToCommit
from magnetar.broker.groups.settings import GroupSettings
from magnetar.testing.groups import GroupDriver, Parked, subscription


def rejoin(groups: GroupDriver, instance_id: str, **changes: Any) -> Parked:
    return groups.join(groups.request(group_instance_id=instance_id, **changes))


def state(groups: GroupDriver) -> GroupState:
    return groups.coordinator.describe("g").state


def pair(groups: GroupDriver) -> tuple[JoinResult, JoinResult]:
    leader, follower = groups.stable(2, instance_ids=["i1", "i2"])
    return leader, follower


def test_a_static_member_joins_at_once_and_its_id_begins_with_its_instance_id() -> None:
    with GroupDriver() as groups:
        parked = rejoin(groups, "i1")
        groups.advance(3.0)
        assert parked.join.member_id.startswith("i1-")
        assert parked.join.error is GroupError.NONE


def test_a_follower_that_comes_back_gets_its_assignment_without_a_rebalance() -> None:
    with GroupDriver() as groups:
        leader, follower = pair(groups)
        again = rejoin(groups, "i2").join
        assert (again.error, again.generation, again.leader) == (GroupError.NONE, 1, leader.member_id)
        assert again.member_id != follower.member_id
        assert not again.skip_assignment
        assert state(groups) is GroupState.STABLE
        assert groups.sync(again, group_instance_id="i2").sync.assignment == follower.member_id.encode()
        assert groups.heartbeat(leader, "i1") is GroupError.NONE


def test_a_leader_that_comes_back_leads_on_but_is_told_to_skip_the_assignment() -> None:
    with GroupDriver() as groups:
        leader, follower = pair(groups)
        again = rejoin(groups, "i1").join
        assert again.leader == again.member_id != leader.member_id
        assert again.skip_assignment
        assert {member.member_id for member in again.members} == {again.member_id, follower.member_id}
        assert groups.sync(again).sync.assignment == leader.member_id.encode()


def test_a_leader_of_an_older_client_is_shown_its_former_id_as_the_leader() -> None:
    with GroupDriver() as groups:
        leader, _ = pair(groups)
        again = rejoin(groups, "i1", supports_skip_assignment=False).join
        assert (again.leader, again.members, again.skip_assignment) == (leader.member_id, (), False)


def test_the_former_incarnation_is_fenced_everywhere() -> None:
    with GroupDriver() as groups:
        _, follower = pair(groups)
        assert rejoin(groups, "i2").join.error is GroupError.NONE
        fenced = GroupError.FENCED_INSTANCE_ID
        assert groups.heartbeat(follower, "i2") is fenced
        assert groups.sync(follower, group_instance_id="i2").sync.error is fenced
        assert (
            groups.join(groups.request("g", follower.member_id, group_instance_id="i2")).join.error is fenced
        )
        assert groups.leave(LeavingMember(follower.member_id, "i2")) == (GroupError.NONE, [fenced])
        late = OffsetToCommit("t", 0, 5)
        committed = groups.commit(late, generation=1, member_id=follower.member_id, group_instance_id="i2")
        assert committed == [fenced]


def test_a_parked_join_of_the_former_incarnation_is_fenced() -> None:
    with GroupDriver() as groups:
        old = rejoin(groups, "i1")
        new = rejoin(groups, "i1")
        assert old.join.error is GroupError.FENCED_INSTANCE_ID
        groups.advance(6.0)
        assert new.join.error is GroupError.NONE
        assert len(new.join.members) == 1


def test_a_parked_sync_of_the_former_incarnation_is_fenced_and_the_group_rebalances() -> None:
    with GroupDriver() as groups:
        first, second = rejoin(groups, "i1"), rejoin(groups, "i2")
        groups.advance(9.0)
        old = groups.sync(second.join)
        new = rejoin(groups, "i2")
        assert old.sync.error is GroupError.FENCED_INSTANCE_ID
        assert state(groups) is GroupState.PREPARING_REBALANCE
        again = groups.join(groups.request("g", first.join.member_id, group_instance_id="i1"))
        assert {again.join.generation, new.join.generation} == {2}


def test_a_return_that_changes_the_chosen_protocol_makes_the_group_rebalance() -> None:
    with GroupDriver() as groups:
        both = (("a", b""), ("b", b""))
        (first,) = groups.stable(1, instance_ids=["i1"], protocols=both)
        assert first.protocol_name == "a"
        parked = rejoin(groups, "i1", protocols=both[::-1])
        assert (parked.join.protocol_name, parked.join.generation) == ("b", 2)


def test_a_return_with_other_metadata_but_the_same_protocol_does_not() -> None:
    with GroupDriver() as groups:
        pair(groups)
        again = rejoin(groups, "i2", protocols=(("range", subscription("u")),)).join
        assert again.generation == 1
        assert state(groups) is GroupState.STABLE


def test_a_known_static_member_with_its_id_rejoins_like_any_other() -> None:
    with GroupDriver() as groups:
        _, follower = pair(groups)
        again = groups.join(groups.request("g", follower.member_id, group_instance_id="i2")).join
        assert (again.error, again.generation) == (GroupError.NONE, 1)


def test_an_instance_id_that_the_group_does_not_know_does_not_go_with_a_member_id() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        unknown = groups.join(groups.request("g", leader.member_id, group_instance_id="other"))
        assert unknown.join.error is GroupError.UNKNOWN_MEMBER_ID
        assert groups.heartbeat(leader, "other") is GroupError.UNKNOWN_MEMBER_ID


def test_a_static_member_keeps_its_place_in_a_rebalance_that_it_misses() -> None:
    with GroupDriver() as groups:
        _leader, absent = groups.stable(2, instance_ids=["i1", "i2"], session_timeout_ms=60_000)
        new = groups.join_new()
        rejoin(groups, "i1", session_timeout_ms=60_000)
        groups.advance(30.0)
        assert new.join.generation == 2
        assert len(groups.coordinator.describe("g").members) == 3
        back = rejoin(groups, "i2", session_timeout_ms=60_000)
        assert back.pending
        assert groups.heartbeat(absent, "i2") is GroupError.FENCED_INSTANCE_ID


def test_a_static_member_whose_session_ends_is_removed() -> None:
    with GroupDriver() as groups:
        leader, _ = pair(groups)
        groups.advance(5.0)
        assert groups.heartbeat(leader, "i1") is GroupError.NONE
        groups.advance(5.0)
        assert groups.heartbeat(leader, "i1") is GroupError.REBALANCE_IN_PROGRESS
        assert len(groups.coordinator.describe("g").members) == 1


def test_with_only_absent_static_members_left_the_rebalance_goes_on_waiting() -> None:
    with GroupDriver() as groups:
        (static,) = groups.stable(1, instance_ids=["i1"], session_timeout_ms=120_000)
        impatient = groups.request(
            "g", static.member_id, group_instance_id="i1", session_timeout_ms=120_000, rebalance_timeout_ms=0
        )
        groups.synced([groups.join(impatient).join])
        dynamic = groups.new_id()
        assert groups.join(groups.request("g", dynamic, rebalance_timeout_ms=0)).pending
        groups.leave(dynamic)
        groups.advance(119.0)  # not in an endless loop, though the rebalance time-out is 0
        assert state(groups) is GroupState.PREPARING_REBALANCE
        groups.advance(1.0)
        assert state(groups) is GroupState.EMPTY


def test_a_full_group_still_takes_a_static_member_back_by_its_id() -> None:
    with GroupDriver(GroupSettings(group_max_size=2)) as groups:
        leader, follower = pair(groups)
        again = groups.join(groups.request("g", follower.member_id, group_instance_id="i2")).join
        assert (again.error, again.leader) == (GroupError.NONE, leader.member_id)


@pytest.mark.parametrize("member_id", ["", "known"])
def test_an_administrator_removes_a_static_member_by_its_instance_id(member_id: str) -> None:
    with GroupDriver() as groups:
        _, follower = pair(groups)
        leaving = LeavingMember(follower.member_id if member_id else "", "i2", "gone for good")
        assert groups.leave(leaving) == (GroupError.NONE, [GroupError.NONE])
        assert [member.group_instance_id for member in groups.coordinator.describe("g").members] == ["i1"]
