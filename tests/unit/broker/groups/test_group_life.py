"""SyncGroup, Heartbeat, LeaveGroup and the time-outs behind them."""

from typing import Any

import pytest

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import GroupState, JoinResult, LeavingMember
from magnetar.testing.groups import GroupDriver, Parked


def state(groups: GroupDriver) -> GroupState:
    return groups.coordinator.describe("g").state


def joined(groups: GroupDriver, count: int) -> list[JoinResult]:
    """Members of a group in CompletingRebalance, the leader first."""
    parked = [groups.join_new() for _ in range(count)]
    groups.advance(3.0 * (count + 1))
    return [each.join for each in parked]


# SyncGroup


def test_followers_wait_for_the_leaders_assignment() -> None:
    with GroupDriver() as groups:
        leader, follower = joined(groups, 2)
        waiting = groups.sync(follower)
        assert waiting.pending
        done = groups.sync(leader, {leader.member_id: b"L", follower.member_id: b"F"})
        assert (done.sync.assignment, waiting.sync.assignment) == (b"L", b"F")
        assert (waiting.sync.protocol_type, waiting.sync.protocol_name) == ("consumer", "range")
        assert state(groups) is GroupState.STABLE


def test_a_late_follower_gets_its_assignment_from_the_stable_group() -> None:
    with GroupDriver() as groups:
        leader, follower = joined(groups, 2)
        groups.sync(leader, {follower.member_id: b"F"})
        assert groups.sync(follower).sync.assignment == b"F"


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    with GroupDriver() as groups:
        leader, follower = joined(groups, 2)
        waiting = groups.sync(follower)
        groups.sync(leader, {leader.member_id: b"L", "stranger": b"S"})
        assert (waiting.sync.error, waiting.sync.assignment) == (GroupError.NONE, b"")


def test_assignments_of_a_follower_count_for_nothing() -> None:
    with GroupDriver() as groups:
        leader, follower = joined(groups, 2)
        waiting = groups.sync(follower, {follower.member_id: b"mine"})
        groups.sync(leader, {})
        assert waiting.sync.assignment == b""


def test_a_large_assignment_arrives_as_it_was_sent() -> None:
    with GroupDriver() as groups:
        (leader,) = joined(groups, 1)
        large = bytes(range(256)) * 20_000
        assert groups.sync(leader, {leader.member_id: large}).sync.assignment == large


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, GroupError.INVALID_GROUP_ID),
        ({"group_id": "other"}, GroupError.UNKNOWN_MEMBER_ID),
        ({"member_id": "ghost"}, GroupError.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, GroupError.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, GroupError.ILLEGAL_GENERATION),
        ({"generation": 2}, GroupError.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None, "protocol_name": None}, GroupError.NONE),
    ],
)
def test_a_sync_must_come_from_a_member_of_this_generation(
    changes: dict[str, Any], error: GroupError
) -> None:
    with GroupDriver() as groups:
        (leader,) = joined(groups, 1)
        assert groups.sync(leader, **changes).sync.error is error


def test_a_sync_during_a_rebalance_is_sent_back_to_join() -> None:
    with GroupDriver() as groups:
        leader, _ = groups.stable(2)
        groups.join_new()
        assert groups.sync(leader).sync.error is GroupError.REBALANCE_IN_PROGRESS


def test_a_sync_to_an_empty_group_is_from_an_unknown_member() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.leave(leader.member_id)
        assert state(groups) is GroupState.EMPTY
        assert groups.sync(leader).sync.error is GroupError.UNKNOWN_MEMBER_ID


def test_a_retried_sync_is_answered_and_the_overtaken_one_too() -> None:
    with GroupDriver() as groups:
        leader, follower = joined(groups, 2)
        lost, retried = groups.sync(follower), groups.sync(follower)
        assert lost.sync.error is GroupError.REBALANCE_IN_PROGRESS
        groups.sync(leader, {follower.member_id: b"F"})
        assert retried.sync.assignment == b"F"


def test_a_member_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    with GroupDriver() as groups:
        leader, silent = joined(groups, 2)
        groups.sync(leader, {})
        for _ in range(5):
            groups.advance(5.0)
            assert groups.heartbeat(leader) is GroupError.NONE
            assert groups.heartbeat(silent) is GroupError.NONE
        groups.advance(5.0)
        assert groups.heartbeat(silent) is GroupError.UNKNOWN_MEMBER_ID
        assert groups.heartbeat(leader) is GroupError.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_removed_and_the_waiting_are_sent_back_to_join() -> None:
    with GroupDriver() as groups:
        leader, follower = joined(groups, 2)
        waiting = groups.sync(follower)
        for _ in range(6):
            assert waiting.pending
            groups.heartbeat(leader)
            groups.advance(5.0)
        assert waiting.sync.error is GroupError.REBALANCE_IN_PROGRESS
        again = groups.join(groups.request("g", follower.member_id)).join
        assert (again.leader, again.generation) == (follower.member_id, 2)


def test_a_group_whose_members_all_never_sync_ends_up_empty() -> None:
    with GroupDriver() as groups:
        for member in joined(groups, 2):
            assert groups.heartbeat(member) is GroupError.NONE
        groups.advance(30.0)
        assert state(groups) is GroupState.EMPTY


def test_a_follower_that_waits_for_the_leader_outlives_its_session_timeout() -> None:
    with GroupDriver() as groups:
        leader, follower = joined(groups, 2)
        waiting = groups.sync(follower)
        for _ in range(4):
            groups.advance(6.0)
            groups.heartbeat(leader)
        assert waiting.pending
        groups.sync(leader, {follower.member_id: b"F"})
        assert waiting.sync.assignment == b"F"
        groups.advance(9.9)
        assert groups.heartbeat(follower) is GroupError.NONE


# Heartbeat


def test_heartbeats_keep_a_member_and_silence_ends_it() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        for _ in range(10):
            groups.advance(9.9)
            assert groups.heartbeat(leader) is GroupError.NONE
        groups.advance(10.0)
        assert groups.heartbeat(leader) is GroupError.UNKNOWN_MEMBER_ID
        assert state(groups) is GroupState.EMPTY


def test_a_heartbeat_while_assignments_are_made_is_fine() -> None:
    with GroupDriver() as groups:
        leader, follower = joined(groups, 2)
        assert groups.heartbeat(leader) is GroupError.NONE
        assert groups.heartbeat(follower) is GroupError.NONE


def test_a_heartbeat_must_come_from_a_member_of_this_generation() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        beat = groups.coordinator.heartbeat
        assert beat("", leader.member_id, 1) is GroupError.INVALID_GROUP_ID
        assert beat("other", leader.member_id, 1) is GroupError.UNKNOWN_MEMBER_ID
        assert beat("g", "ghost", 1) is GroupError.UNKNOWN_MEMBER_ID
        assert beat("g", leader.member_id, 0) is GroupError.ILLEGAL_GENERATION
        assert beat("g", leader.member_id, 2) is GroupError.ILLEGAL_GENERATION


def test_a_member_that_dies_makes_the_others_rebalance() -> None:
    with GroupDriver() as groups:
        leader, _dead = groups.stable(2)
        groups.advance(5.0)
        assert groups.heartbeat(leader) is GroupError.NONE
        groups.advance(5.0)
        assert groups.heartbeat(leader) is GroupError.REBALANCE_IN_PROGRESS
        again = groups.join(groups.request("g", leader.member_id)).join
        assert [member.member_id for member in again.members] == [leader.member_id]


def test_a_longer_session_timeout_given_on_rejoining_counts() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        again = groups.join(groups.request("g", leader.member_id, session_timeout_ms=60_000)).join
        groups.sync(again, {})
        groups.advance(59.0)
        assert groups.heartbeat(again) is GroupError.NONE


def test_a_shorter_session_timeout_given_on_rejoining_counts() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable(session_timeout_ms=60_000)
        again = groups.join(groups.request("g", leader.member_id)).join
        groups.sync(again, {})
        groups.advance(10.0)
        assert groups.heartbeat(again) is GroupError.UNKNOWN_MEMBER_ID


# LeaveGroup


def test_the_last_member_leaves_the_group_empty_at_once() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        assert groups.leave(leader.member_id) == (GroupError.NONE, [GroupError.NONE])
        assert state(groups) is GroupState.EMPTY
        assert groups.heartbeat(leader) is GroupError.UNKNOWN_MEMBER_ID


def test_many_leave_in_one_request_each_with_its_own_answer() -> None:
    with GroupDriver() as groups:
        leader, second, third = groups.stable(3)
        pending = groups.new_id()
        top, errors = groups.leave(
            LeavingMember(second.member_id, None, "done"), "ghost", pending, LeavingMember(third.member_id)
        )
        assert top is GroupError.NONE
        assert errors == [GroupError.NONE, GroupError.UNKNOWN_MEMBER_ID, GroupError.NONE, GroupError.NONE]
        again = groups.join(groups.request("g", leader.member_id)).join
        assert len(again.members) == 1
        assert again.generation == 2


def test_leaving_needs_a_group_that_is_known() -> None:
    with GroupDriver() as groups:
        assert groups.leave("m", group_id="") == (GroupError.INVALID_GROUP_ID, [])
        assert groups.leave("m", "n") == (GroupError.NONE, [GroupError.UNKNOWN_MEMBER_ID] * 2)


def test_leaving_by_an_unknown_instance_id_or_by_nothing_is_refused() -> None:
    with GroupDriver() as groups:
        groups.stable()
        _, errors = groups.leave(LeavingMember("", "i9"), LeavingMember(""))
        assert errors == [GroupError.UNKNOWN_MEMBER_ID] * 2
        assert state(groups) is GroupState.STABLE


def test_the_last_one_missing_leaves_and_the_rebalance_completes() -> None:
    with GroupDriver() as groups:
        leader, missing = groups.stable(2)
        parked = groups.join(groups.request("g", leader.member_id))
        assert parked.pending
        groups.leave(missing.member_id)
        assert parked.join.generation == 2


def test_a_pending_member_that_leaves_no_longer_holds_up_the_rebalance() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        pending = groups.new_id()
        parked = groups.join(groups.request("g", leader.member_id))
        assert parked.pending
        groups.leave(pending)
        assert parked.join.generation == 2


def leave_while_joining(groups: GroupDriver) -> Parked:
    leader, _ = groups.stable(2)
    parked = groups.join(groups.request("g", leader.member_id))
    groups.leave(leader.member_id)
    return parked


def leave_while_syncing(groups: GroupDriver) -> Parked:
    _, follower = joined(groups, 2)
    parked = groups.sync(follower)
    groups.leave(follower.member_id)
    return parked


@pytest.mark.parametrize("leave", [leave_while_joining, leave_while_syncing])
def test_what_a_leaving_member_had_parked_is_answered(leave: Any) -> None:
    with GroupDriver() as groups:
        parked = leave(groups)
        assert [result.error for result in (*parked.joined, *parked.synced)] == [GroupError.UNKNOWN_MEMBER_ID]


def test_all_members_leaving_during_the_initial_delay_leave_an_empty_group() -> None:
    with GroupDriver() as groups:
        parked = groups.join_new()
        member_id = groups.coordinator.describe("g").members[0].member_id
        groups.leave(member_id)
        assert parked.join.error is GroupError.UNKNOWN_MEMBER_ID
        groups.advance(3.0)
        assert state(groups) is GroupState.EMPTY


def test_cooperative_clients_rebalance_twice_and_keep_their_ids() -> None:
    """Nothing here is special to them: they rejoin at once with what they gave up."""
    with GroupDriver() as groups:
        (leader,) = groups.stable(protocols=(("cooperative-sticky", b"owns 0,1"),))
        new = groups.join_new(protocols=(("cooperative-sticky", b"owns nothing"),))
        first = groups.join(
            groups.request("g", leader.member_id, protocols=(("cooperative-sticky", b"owns 0,1"),))
        )
        groups.synced([first.join, new.join])
        again = groups.join(
            groups.request("g", leader.member_id, protocols=(("cooperative-sticky", b"owns 0"),))
        )
        assert groups.heartbeat(new.join) is GroupError.REBALANCE_IN_PROGRESS
        new_again = groups.join(
            groups.request("g", new.join.member_id, protocols=(("cooperative-sticky", b"owns nothing"),))
        )
        groups.synced([again.join, new_again.join])
        assert again.join.generation == 3
        assert again.join.member_id == leader.member_id
