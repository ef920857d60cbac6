"""JoinGroup: which members get in, with which id, and when the others get their answer."""

from typing import Any

import pytest

from magnetar.broker.groups import memory as memory_of_groups
from magnetar.broker.groups.configs import GROUP_ID_CHARS_MAX
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import GroupState
from magnetar.broker.groups.settings import MEMBER_BYTES_MAX, NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from magnetar.testing.groups import GroupDriver, subscription

TOO_LARGE = GroupError.MESSAGE_TOO_LARGE


def state(groups: GroupDriver, group_id: str = "g") -> GroupState:
    return groups.coordinator.describe(group_id).state


@pytest.mark.parametrize(
    ("group_id", "error"),
    [
        ("", GroupError.INVALID_GROUP_ID),
        ("g" * GROUP_ID_CHARS_MAX, GroupError.MEMBER_ID_REQUIRED),
        ("g" * (GROUP_ID_CHARS_MAX + 1), GroupError.INVALID_GROUP_ID),
    ],
)
def test_a_group_has_an_id_and_it_has_an_end(group_id: str, error: GroupError) -> None:
    """Kafka's protocol has room for 32 KiB, and what is kept of a group has its id several times."""
    with GroupDriver() as groups:
        assert groups.join(groups.request(group_id)).join.error is error


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (5_999, GroupError.INVALID_SESSION_TIMEOUT),
        (6_000, GroupError.MEMBER_ID_REQUIRED),
        (1_800_000, GroupError.MEMBER_ID_REQUIRED),
        (1_800_001, GroupError.INVALID_SESSION_TIMEOUT),
    ],
)
def test_the_session_timeout_must_be_within_the_servers_limits(timeout_ms: int, error: GroupError) -> None:
    with GroupDriver() as groups:
        assert groups.join(groups.request(session_timeout_ms=timeout_ms)).join.error is error


def test_a_member_id_of_an_unknown_group_is_refused() -> None:
    with GroupDriver() as groups:
        assert groups.join(groups.request("g", "ghost")).join.error is GroupError.UNKNOWN_MEMBER_ID
        assert groups.coordinator.listed() == []


def test_a_member_id_that_the_group_never_gave_is_refused() -> None:
    with GroupDriver() as groups:
        groups.stable()
        assert groups.join(groups.request("g", "ghost")).join.error is GroupError.UNKNOWN_MEMBER_ID


def test_a_dynamic_member_has_to_come_back_with_the_id_that_it_was_given() -> None:
    with GroupDriver() as groups:
        member_id = groups.new_id()
        assert member_id.startswith("client-")
        assert state(groups) is GroupState.EMPTY
        parked = groups.join(groups.request("g", member_id))
        assert parked.pending
        groups.advance(3.0)
        assert (parked.join.member_id, parked.join.generation) == (member_id, 1)


def test_an_old_client_joins_without_a_second_request() -> None:
    with GroupDriver() as groups:
        parked = groups.join(groups.request(require_known_member_id=False))
        groups.advance(3.0)
        assert parked.join.error is GroupError.NONE
        assert parked.join.leader == parked.join.member_id


def test_a_member_id_that_no_member_joins_with_is_forgotten_after_the_session_timeout() -> None:
    with GroupDriver() as groups:
        member_id = groups.new_id()
        groups.advance(10.0)
        assert groups.join(groups.request("g", member_id)).join.error is GroupError.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members_until_they_expire() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.new_id()
        parked = groups.join(groups.request("g", leader.member_id))
        groups.advance(9.9)
        assert parked.pending
        groups.advance(0.1)
        assert parked.join.generation == 2


def test_the_first_rebalance_waits_for_the_initial_delay() -> None:
    with GroupDriver() as groups:
        parked = groups.join_new()
        groups.advance(2.9)
        assert parked.pending
        assert state(groups) is GroupState.PREPARING_REBALANCE
        groups.advance(0.1)
        assert parked.join.generation == 1
        assert state(groups) is GroupState.COMPLETING_REBALANCE


def test_without_a_setting_the_first_member_is_assigned_while_the_clock_stands_still() -> None:
    with GroupDriver(GroupSettings()) as groups:
        parked = groups.join_new()
        groups.advance(0)
        assert parked.join.generation == 1
        assert state(groups) is GroupState.COMPLETING_REBALANCE


def test_each_new_member_extends_the_initial_delay() -> None:
    with GroupDriver() as groups:
        first = groups.join_new()
        groups.advance(2.0)
        second = groups.join_new()
        groups.advance(3.9)
        assert first.pending
        groups.advance(0.1)
        assert {first.join.generation, second.join.generation} == {1}
        assert {member.member_id for member in first.join.members} == {
            first.join.member_id,
            second.join.member_id,
        }
        assert second.join.members == ()
        assert second.join.leader == first.join.member_id


def test_the_initial_delay_ends_with_the_rebalance_timeout_however_many_join() -> None:
    with GroupDriver() as groups:
        parked = []
        for _ in range(12):
            parked.append(groups.join(groups.request("g", groups.new_id(), rebalance_timeout_ms=7_000)))
            groups.advance(0.5)
        assert all(each.pending for each in parked)
        groups.advance(1.0)
        assert {each.join.generation for each in parked} == {1}


def test_a_member_that_joins_a_stable_group_makes_it_rebalance() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        second = groups.join_new()
        assert second.pending
        assert groups.heartbeat(leader) is GroupError.REBALANCE_IN_PROGRESS
        first = groups.join(groups.request("g", leader.member_id))
        assert {first.join.generation, second.join.generation} == {2}
        assert second.join.leader == leader.member_id


def test_a_member_that_does_not_rejoin_in_time_is_out() -> None:
    with GroupDriver() as groups:
        leader, other = groups.stable(2)
        parked = groups.join(groups.request("g", leader.member_id))
        for _ in range(5):
            groups.advance(5.0)
            assert groups.heartbeat(other) is GroupError.REBALANCE_IN_PROGRESS
        groups.advance(5.0)
        assert parked.join.generation == 2
        assert [member.member_id for member in parked.join.members] == [leader.member_id]
        assert groups.heartbeat(other) is GroupError.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_succeeded_by_a_member_that_has() -> None:
    with GroupDriver() as groups:
        leader, other = groups.stable(2)
        parked = groups.join(groups.request("g", other.member_id, protocols=(("range", subscription("u")),)))
        groups.advance(10.0)  # the leader's session ends
        assert parked.join.leader == other.member_id
        assert groups.heartbeat(leader) is GroupError.UNKNOWN_MEMBER_ID


def test_a_follower_that_rejoins_a_stable_group_unchanged_gets_the_current_generation() -> None:
    with GroupDriver() as groups:
        leader, follower = groups.stable(2)
        again = groups.join(groups.request("g", follower.member_id)).join
        assert (again.error, again.generation, again.leader) == (GroupError.NONE, 1, leader.member_id)
        assert again.members == ()
        assert state(groups) is GroupState.STABLE
        assert groups.sync(again).sync.assignment == follower.member_id.encode()


def test_a_follower_that_rejoins_with_other_metadata_makes_the_group_rebalance() -> None:
    with GroupDriver() as groups:
        _, follower = groups.stable(2)
        request = groups.request("g", follower.member_id, protocols=(("range", subscription("u")),))
        assert groups.join(request).pending
        assert state(groups) is GroupState.PREPARING_REBALANCE


def test_a_leader_that_rejoins_a_stable_group_unchanged_makes_it_rebalance() -> None:
    with GroupDriver() as groups:
        leader, _ = groups.stable(2)
        assert groups.join(groups.request("g", leader.member_id)).pending
        assert state(groups) is GroupState.PREPARING_REBALANCE


def test_a_join_whose_answer_was_lost_is_answered_the_same_again() -> None:
    with GroupDriver() as groups:
        parked = [groups.join_new() for _ in range(2)]
        groups.advance(9.0)
        for each in parked:
            assert groups.join(groups.request("g", each.join.member_id)).join == each.join
        assert state(groups) is GroupState.COMPLETING_REBALANCE


def test_other_metadata_while_assignments_are_made_start_a_rebalance_and_wake_waiting_members() -> None:
    with GroupDriver() as groups:
        leader, follower = (groups.join_new() for _ in range(2))
        groups.advance(9.0)
        waiting = groups.sync(follower.join)
        changed = groups.request("g", leader.join.member_id, protocols=(("range", subscription("u")),))
        assert groups.join(changed).pending
        assert waiting.sync.error is GroupError.REBALANCE_IN_PROGRESS
        assert state(groups) is GroupState.PREPARING_REBALANCE


def test_a_retried_join_is_answered_and_the_overtaken_one_too() -> None:
    with GroupDriver() as groups:
        member_id = groups.new_id()
        lost = groups.join(groups.request("g", member_id))
        retried = groups.join(groups.request("g", member_id))
        assert lost.join.error is GroupError.REBALANCE_IN_PROGRESS
        groups.advance(6.0)
        assert retried.join.error is GroupError.NONE
        assert len(groups.coordinator.describe("g").members) == 1


def test_a_new_member_whose_client_has_given_up_is_dropped_after_five_minutes() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable(rebalance_timeout_ms=600_000)
        lost = groups.join(groups.request("g", groups.new_id(), rebalance_timeout_ms=600_000))
        for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000 - 1):
            groups.advance(5.0)
            assert groups.heartbeat(leader) is GroupError.REBALANCE_IN_PROGRESS
        assert lost.pending
        groups.advance(5.0)
        assert lost.join.error is GroupError.UNKNOWN_MEMBER_ID


def test_a_new_member_outlives_its_session_timeout_while_its_join_is_parked() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        parked = groups.join_new()
        for _ in range(4):
            groups.advance(6.0)
            groups.heartbeat(leader)
        assert parked.pending
        groups.advance(6.0)
        assert parked.join.error is GroupError.NONE


# protocols


@pytest.mark.parametrize(
    "changes",
    [{"protocol_type": ""}, {"protocols": ()}],
    ids=["no type", "no protocol"],
)
def test_the_first_member_must_name_a_type_and_a_protocol(changes: dict[str, Any]) -> None:
    with GroupDriver() as groups:
        assert groups.join(groups.request(**changes)).join.error is GroupError.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "changes",
    [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}],
    ids=["other type", "no common protocol"],
)
def test_a_member_must_share_the_groups_type_and_a_protocol_of_all(changes: dict[str, Any]) -> None:
    with GroupDriver() as groups:
        groups.stable()
        assert groups.join(groups.request(**changes)).join.error is GroupError.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_may_change_its_type_once_it_is_empty() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.leave(leader.member_id)
        parked = groups.join(groups.request("g", groups.new_id(), protocol_type="connect"))
        groups.advance(6.0)
        assert (parked.join.protocol_type, parked.join.generation) == ("connect", 3)


def test_the_protocol_with_most_votes_among_those_that_all_support_wins() -> None:
    wishes = [("a", "b", "c"), ("b", "a"), ("c", "a", "b"), ("a", "b")]
    with GroupDriver() as groups:
        parked = [groups.join_new(protocols=tuple((name, b"") for name in names)) for names in wishes]
        groups.advance(15.0)
        # Not all support c, so the third votes for a.
        assert {each.join.protocol_name for each in parked} == {"a"}
        parked_again = [
            groups.join(groups.request("g", each.join.member_id, protocols=(("b", b"B"), ("a", b"A"))))
            for each in parked
        ]
        assert {each.join.protocol_name for each in parked_again} == {"b"}
        assert {member.metadata for member in parked_again[0].join.members} == {b"B"}


def test_a_protocol_becomes_common_when_the_member_without_it_leaves() -> None:
    with GroupDriver() as groups:
        only_a = groups.join_new(protocols=(("a", b""),))
        both = groups.join_new(protocols=(("b", b""), ("a", b"")))
        groups.advance(9.0)
        assert both.join.protocol_name == "a"
        refused = groups.join(groups.request("g", protocols=(("b", b""),)))
        assert refused.join.error is GroupError.INCONSISTENT_GROUP_PROTOCOL
        groups.leave(only_a.join.member_id)
        assert groups.new_id(protocols=(("b", b""),))


# group.max.size


def test_a_full_group_turns_new_members_away() -> None:
    with GroupDriver(GroupSettings(group_max_size=2)) as groups:
        groups.stable(2)
        refused = groups.join(groups.request()).join
        assert (refused.error, refused.member_id) == (GroupError.GROUP_MAX_SIZE_REACHED, "")


def test_a_full_group_keeps_its_members_through_a_rebalance() -> None:
    with GroupDriver(GroupSettings(group_max_size=2)) as groups:
        leader, follower = groups.stable(2)
        parked = groups.join(groups.request("g", leader.member_id))
        again = groups.join(groups.request("g", follower.member_id))
        assert {parked.join.error, again.join.error} == {GroupError.NONE}


def test_more_candidates_than_places_in_a_rebalance_leaves_the_last_one_out() -> None:
    with GroupDriver(GroupSettings(group_max_size=2)) as groups:
        ids = [groups.new_id() for _ in range(3)]
        first, second, third = (groups.join(groups.request("g", member_id)) for member_id in ids)
        assert third.join.error is GroupError.GROUP_MAX_SIZE_REACHED
        groups.advance(9.0)
        assert {first.join.error, second.join.error} == {GroupError.NONE}


def test_a_member_may_say_so_much_of_itself_and_no_more() -> None:
    # 20 members of 20 MiB were kept for as long as their sessions lasted, whatever the server's memory was limited to.
    with GroupDriver() as groups:
        for size, error in (
            (MEMBER_BYTES_MAX - 5, GroupError.MEMBER_ID_REQUIRED),
            (MEMBER_BYTES_MAX, TOO_LARGE),
        ):
            request = groups.request("g", protocols=(("range", bytes(size)),))
            assert groups.join(request).join.error is error


def test_all_members_together_leave_room_for_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_of_groups, "MEMBERS_BYTES_MAX", 100_000)
    large = (("range", bytes(20_000)),)
    with GroupDriver() as groups:
        memory = groups.coordinator._memory
        for number in range(2):
            groups.join(groups.request(f"g{number}", protocols=large, require_known_member_id=False))
        refused = groups.join(groups.request("more", protocols=large, require_known_member_id=False))
        assert refused.join.error is GroupError.COORDINATOR_NOT_AVAILABLE
        assert groups.join(groups.request("small")).join.error is GroupError.MEMBER_ID_REQUIRED
        assert memory.used > 40_000
        groups.advance(1_000)  # all of them have failed
        assert memory.used == 0


def test_what_is_kept_of_members_is_given_back() -> None:
    with GroupDriver() as groups:
        memory = groups.coordinator._memory
        members = groups.stable()
        assert memory.used > 0
        groups.advance(1_000)
        assert memory.used == 0, members
