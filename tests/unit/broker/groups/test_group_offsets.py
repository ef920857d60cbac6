"""OffsetCommit, OffsetFetch, OffsetDelete: which clients may move a group's offsets, and what is kept of them."""

from typing import Any

import pytest

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import JoinResult, OffsetToCommit
from magnetar.broker.groups.settings import GroupSettings
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.metadata.path_parts import escape
from magnetar.testing.groups import GroupDriver

AT_5 = OffsetToCommit("t", 0, 5)


def member(joined: JoinResult, **changes: Any) -> dict[str, Any]:
    return {"member_id": joined.member_id, "generation": joined.generation} | changes


def completing(groups: GroupDriver) -> JoinResult:
    parked = groups.join_new()
    groups.advance(3.0)
    return parked.join


# which clients may commit


def test_a_client_outside_of_the_group_protocol_commits_to_a_group_without_members() -> None:
    with GroupDriver() as groups:
        assert groups.commit(AT_5) == [GroupError.NONE]
        assert groups.committed("t", 0) == 5
        assert groups.commit(OffsetToCommit("t", 0, 3)) == [GroupError.NONE]
        assert groups.committed("t", 0) == 3  # backwards too
        assert groups.commit(AT_5, group_id="") == [GroupError.NONE]
        assert groups.committed("t", 0, "") == 5


def test_it_may_not_while_the_group_has_members() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        assert groups.commit(AT_5) == [GroupError.UNKNOWN_MEMBER_ID]
        assert groups.committed("t", 0) is None
        groups.leave(leader.member_id)
        assert groups.commit(AT_5) == [GroupError.NONE]


def test_a_member_of_the_current_generation_commits_and_that_proves_that_it_lives() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        for offset in range(1, 6):
            groups.advance(9.0)
            assert groups.commit(OffsetToCommit("t", 0, offset), **member(leader)) == [GroupError.NONE]
        assert groups.heartbeat(leader) is GroupError.NONE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation": 0}, GroupError.ILLEGAL_GENERATION),
        ({"generation": 2}, GroupError.ILLEGAL_GENERATION),
        ({"generation": -1}, GroupError.ILLEGAL_GENERATION),
        ({"member_id": "ghost"}, GroupError.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, GroupError.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, GroupError.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_must_come_from_a_member_of_this_generation(
    changes: dict[str, Any], error: GroupError
) -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        assert groups.commit(AT_5, AT_5, **member(leader, **changes)) == [error, error]
        assert groups.committed("t", 0) is None


def test_a_commit_with_a_generation_to_an_unknown_group_is_of_another_time() -> None:
    with GroupDriver() as groups:
        assert groups.commit(AT_5, member_id="m", generation=1, knows_epochs=False) == [
            GroupError.ILLEGAL_GENERATION
        ]
        assert groups.commit(AT_5, member_id="m", generation=1) == [GroupError.GROUP_ID_NOT_FOUND]
        assert groups.coordinator.listed() == []


def test_a_commit_while_assignments_are_made_is_sent_back_to_join() -> None:
    with GroupDriver() as groups:
        assert groups.commit(AT_5, **member(completing(groups))) == [GroupError.REBALANCE_IN_PROGRESS]


def test_a_commit_during_a_rebalance_is_taken() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.join_new()
        assert groups.commit(AT_5, **member(leader)) == [GroupError.NONE]


def test_a_fenced_static_member_cannot_commit() -> None:
    with GroupDriver() as groups:
        (old,) = groups.stable(1, instance_ids=["i"])
        groups.join(groups.request(group_instance_id="i"))
        late = groups.commit(AT_5, **member(old, group_instance_id="i"))
        assert late == [GroupError.FENCED_INSTANCE_ID]


# what is committed


def test_each_offset_of_a_request_has_its_own_answer() -> None:
    with GroupDriver() as groups:
        errors = groups.commit(
            AT_5,
            OffsetToCommit("nowhere", 0, 5),
            OffsetToCommit("t", 8, 5),
            OffsetToCommit("t", -1, 5),
            OffsetToCommit("t", 2, 5, "m" * 4096),
            OffsetToCommit("t", 3, 5, "m" * 4097),
            OffsetToCommit("t", 4, 5, "é" * 2049),
        )
        unknown, large = GroupError.UNKNOWN_TOPIC_OR_PARTITION, GroupError.OFFSET_METADATA_TOO_LARGE
        none = GroupError.NONE
        assert errors == [none, unknown, unknown, unknown, none, large, large]
        assert [groups.committed("t", partition) for partition in range(5)] == [5, None, 5, None, None]


def test_a_negative_offset_is_given_back_until_something_is_committed() -> None:
    # kafkajs commits -2 where its position was out of range, and asks again for "earliest" when it reads that.
    with GroupDriver() as groups:
        for offset in (-2, 5, -1, 3):
            assert groups.commit(OffsetToCommit("t", 0, offset)) == [GroupError.NONE]
            assert groups.committed("t", 0) == offset


def test_all_offsets_of_a_request_are_one_write_and_none_is_kept_when_it_fails() -> None:
    with GroupDriver() as groups:
        before = groups.store.commit_count
        offsets = [OffsetToCommit("t", partition, 7) for partition in range(8)]
        assert groups.commit(*offsets) == [GroupError.NONE] * 8
        assert groups.store.commit_count == before + 1
        groups.store.fail_next = 1
        failed = groups.commit(
            OffsetToCommit("nowhere", 0, 1), *[OffsetToCommit("t", p, 9) for p in range(8)]
        )
        assert failed == [GroupError.UNKNOWN_TOPIC_OR_PARTITION] + [GroupError.COORDINATOR_NOT_AVAILABLE] * 8
        assert {groups.committed("t", partition) for partition in range(8)} == {7}


def test_metadata_epoch_and_time_are_kept_through_a_restart() -> None:
    with GroupDriver() as groups:
        groups.commit(OffsetToCommit("t", 0, 5, "who", 3), retention_ms=1_000)
        now_ms = groups.clock.now_ms()
        groups.restart()
        _, (cursor,) = groups.coordinator.offsets.fetch("g", [("t", 0)])
        assert cursor == Cursor(5, "who", 3, now_ms, now_ms + 1_000)


def test_a_commit_of_one_member_leaves_those_of_the_others_alone() -> None:
    with GroupDriver() as groups:
        one, other = groups.stable(2)
        groups.commit(OffsetToCommit("t", 0, 1), **member(one))
        groups.commit(OffsetToCommit("t", 1, 2), **member(other))
        groups.commit(OffsetToCommit("t", 0, 3), **member(one))
        groups.restart()
        assert [groups.committed("t", 0), groups.committed("t", 1)] == [3, 2]


def test_a_kafka_commit_on_a_subscription_that_holds_data_leaves_it_holding() -> None:
    key = CursorKey("g", "t", 0)
    with GroupDriver() as groups:
        held = Cursor(2, holds_data=True, properties={"made": "by pulsar"})
        held.ack_individual([(5, 7)])
        groups.wait(groups.cursors.commit({key: held}))
        assert groups.commit(AT_5) == [GroupError.NONE]
        assert groups.cursors.held_from("t", 0) == 7  # 5 and 6 were acknowledged one by one
        cursor = groups.cursors.get(key)
        assert cursor is not None
        assert cursor.properties == {"made": "by pulsar"}


def test_damaged_offsets_are_an_error_and_not_an_invitation_to_start_over() -> None:
    with GroupDriver() as groups:
        groups.commit(AT_5)
        path = f"/cursors/g/{escape('t')}/0"
        groups.wait(groups.store.put(path, b"\xc5 damaged beyond recognition, and long enough"))
        groups.restart()
        storage = GroupError.KAFKA_STORAGE_ERROR
        assert groups.coordinator.offsets.fetch("g", [("t", 0)]) == (storage, [])
        assert groups.coordinator.offsets.fetch_all("g") == (storage, {})
        assert groups.commit(AT_5) == [storage]
        assert groups.wait(groups.coordinator.expire()) == 0
        assert groups.wait(groups.coordinator.offsets.delete("g", [("t", 0)])) == (storage, [])
        assert groups.wait(groups.coordinator.delete("g")) is GroupError.NONE
        assert groups.commit(AT_5) == [GroupError.NONE]


# OffsetFetch


def test_what_was_never_committed_is_nothing_and_no_error() -> None:
    with GroupDriver() as groups:
        groups.commit(AT_5)
        fetch = groups.coordinator.offsets.fetch
        assert fetch("g", [("t", 1), ("nowhere", 0)]) == (GroupError.NONE, [None, None])
        assert fetch("other", [("t", 0)]) == (GroupError.NONE, [None])
        assert groups.coordinator.offsets.fetch_all("other") == (GroupError.NONE, {})


def test_all_offsets_of_a_group_can_be_had_at_once() -> None:
    with GroupDriver() as groups:
        groups.commit(AT_5, OffsetToCommit("u", 2, 6))
        groups.commit(OffsetToCommit("u", 3, 7), group_id="other")
        _, found = groups.coordinator.offsets.fetch_all("g")
        seen = {topic: {p: cursor.mark_delete for p, cursor in rows.items()} for topic, rows in found.items()}
        assert seen == {"t": {0: 5}, "u": {2: 6}}


# OffsetDelete


def test_offsets_of_topics_that_the_group_consumes_cannot_be_deleted() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.commit(AT_5, OffsetToCommit("u", 0, 6), **member(leader))
        top, errors = groups.wait(
            groups.coordinator.offsets.delete("g", [("t", 0), ("u", 0), ("u", 1), ("nowhere", 0)])
        )
        assert top is GroupError.NONE
        assert errors == [
            GroupError.GROUP_SUBSCRIBED_TO_TOPIC,
            GroupError.NONE,
            GroupError.NONE,
            GroupError.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (groups.committed("t", 0), groups.committed("u", 0)) == (5, None)


def test_a_group_of_consumers_with_unreadable_subscriptions_is_taken_to_consume_everything() -> None:
    with GroupDriver() as groups:
        groups.stable(protocols=(("range", b"\x00"),))
        _, errors = groups.wait(groups.coordinator.offsets.delete("g", [("u", 0)]))
        assert errors == [GroupError.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_an_empty_group_can_be_deleted_even_after_a_restart() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.commit(AT_5, **member(leader))
        groups.leave(leader.member_id)
        groups.restart()
        assert groups.wait(groups.coordinator.offsets.delete("g", [("t", 0)])) == (
            GroupError.NONE,
            [GroupError.NONE],
        )
        assert groups.committed("t", 0) is None


def test_offset_delete_needs_a_group_and_for_other_protocol_types_an_empty_one() -> None:
    with GroupDriver() as groups:
        delete = groups.coordinator.offsets.delete
        assert groups.wait(delete("g", [("t", 0)])) == (GroupError.GROUP_ID_NOT_FOUND, [])
        groups.stable(protocol_type="connect")
        assert groups.wait(delete("g", [("t", 0)])) == (GroupError.NON_EMPTY_GROUP, [])


def test_a_failing_store_leaves_the_offsets() -> None:
    with GroupDriver() as groups:
        groups.commit(AT_5)
        groups.store.fail_next = 1
        assert groups.wait(groups.coordinator.offsets.delete("g", [("t", 0)])) == (
            GroupError.COORDINATOR_NOT_AVAILABLE,
            [],
        )
        assert groups.committed("t", 0) == 5


# expiry (KIP-211)

MINUTES_10 = GroupSettings(offsets_retention_minutes=10, offsets_retention_check_interval_ms=1 << 40)
EVERY_MINUTE = GroupSettings(offsets_retention_minutes=10, offsets_retention_check_interval_ms=60_000)


def expire_at(groups: GroupDriver, seconds: float) -> int:
    groups.advance(seconds)
    return groups.wait(groups.coordinator.expire())


def test_offsets_of_a_simple_group_expire_each_by_its_own_commit() -> None:
    with GroupDriver(MINUTES_10) as groups:
        groups.commit(AT_5)
        groups.advance(300.0)
        groups.commit(OffsetToCommit("t", 1, 5))
        assert expire_at(groups, 299.0) == 0
        assert expire_at(groups, 1.0) == 1
        assert (groups.committed("t", 0), groups.committed("t", 1)) == (None, 5)
        assert expire_at(groups, 300.0) == 1
        assert groups.coordinator.listed() == []


def test_offsets_that_are_consumed_never_expire() -> None:
    with GroupDriver(MINUTES_10) as groups:
        (leader,) = groups.stable(session_timeout_ms=1_800_000)
        groups.commit(AT_5, OffsetToCommit("u", 0, 5), **member(leader))
        assert expire_at(groups, 1_700.0) == 1  # that of a topic which the group does not consume
        assert groups.committed("t", 0) == 5
        assert groups.committed("u", 0) is None


def test_offsets_of_an_empty_group_expire_by_the_time_when_it_became_empty() -> None:
    with GroupDriver(MINUTES_10) as groups:
        (leader,) = groups.stable(session_timeout_ms=1_800_000)
        groups.commit(AT_5, **member(leader))
        groups.advance(1_000.0)
        groups.leave(leader.member_id)
        assert expire_at(groups, 590.0) == 0
        assert expire_at(groups, 10.0) == 1
        assert groups.coordinator.listed() == []


def test_a_restart_remembers_when_a_group_became_empty() -> None:
    with GroupDriver(MINUTES_10) as groups:
        (leader,) = groups.stable(session_timeout_ms=1_800_000)
        groups.commit(AT_5, **member(leader))
        groups.advance(1_000.0)
        groups.leave(leader.member_id)
        groups.advance(400.0)
        groups.restart()
        assert expire_at(groups, 190.0) == 0
        assert expire_at(groups, 10.0) == 1


def test_a_group_that_was_active_when_the_process_ended_is_empty_since_the_next_start() -> None:
    with GroupDriver(MINUTES_10) as groups:
        (leader,) = groups.stable(session_timeout_ms=1_800_000)
        groups.commit(AT_5, **member(leader))
        groups.advance(1_000.0)
        groups.restart()
        assert groups.heartbeat(leader) is GroupError.UNKNOWN_MEMBER_ID
        groups.advance(300.0)
        groups.restart()  # a second one does not start the time again
        assert expire_at(groups, 299.0) == 0
        assert expire_at(groups, 1.0) == 1


def test_a_retention_that_a_client_asked_for_counts_instead() -> None:
    with GroupDriver(MINUTES_10) as groups:
        groups.commit(AT_5, retention_ms=60_000)
        groups.commit(OffsetToCommit("t", 1, 5), retention_ms=3_600_000)
        assert expire_at(groups, 59.0) == 0
        assert expire_at(groups, 1.0) == 1
        assert expire_at(groups, 3_539.0) == 0
        assert expire_at(groups, 1.0) == 1


def test_a_subscription_that_holds_data_never_expires() -> None:
    with GroupDriver(MINUTES_10) as groups:
        groups.wait(groups.cursors.commit({CursorKey("g", "t", 0): Cursor(5, holds_data=True)}))
        assert expire_at(groups, 1e6) == 0
        assert groups.committed("t", 0) == 5


def test_cursors_of_a_topic_that_is_gone_go_too() -> None:
    with GroupDriver(MINUTES_10) as groups:
        groups.commit(AT_5)
        del groups.catalogue.partitions["t"]
        assert expire_at(groups, 1.0) == 1


def test_an_offset_that_is_being_committed_does_not_expire_under_its_commit() -> None:
    with GroupDriver(MINUTES_10) as groups:
        groups.commit(AT_5)
        groups.advance(599.0)
        groups.store.hold()
        late = groups.call(groups.cursors.submit, {CursorKey("g", "t", 0): Cursor(9, commit_timestamp_ms=1)})
        assert expire_at(groups, 1.0) == 0
        groups.store.release()
        groups.wait(finish(late))
        assert groups.committed("t", 0) == 9


async def finish(future: Any) -> None:
    await future


def test_a_failing_store_puts_expiry_off_until_the_next_pass() -> None:
    with GroupDriver(EVERY_MINUTE) as groups:
        groups.commit(AT_5)
        for _ in range(9):
            groups.advance(60.0)
        groups.store.fail_next = 1
        groups.advance(60.0)
        assert groups.store.fail_next == 0
        assert groups.committed("t", 0) == 5
        groups.advance(60.0)
        assert groups.committed("t", 0) is None


def test_a_group_that_a_member_is_about_to_join_is_not_forgotten() -> None:
    with GroupDriver(MINUTES_10) as groups:
        member_id = groups.new_id()
        assert expire_at(groups, 1.0) == 0
        assert groups.join(groups.request("g", member_id)).pending


def test_contradicting_settings_are_one_clear_sentence() -> None:
    contradictions: tuple[dict[str, Any], ...] = (
        {"group_min_session_timeout_ms": 10, "group_max_session_timeout_ms": 9},
        {"offset_metadata_max_bytes": 1 << 20},
        {"group_max_size": 0},
        {"offsets_retention_minutes": 0},
    )
    for changes in contradictions:
        with pytest.raises(Exception, match=r"\w") as caught:
            GroupSettings(**changes)
        assert not isinstance(caught.value, BrokerError)


# One position with a Pulsar subscription of the same name


class PulsarSubscription:
    """What owns a live cursor, as the group sees it."""

    is_in_use = True

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def replaced(self, cursor: Cursor | None) -> None:
        self.cursor = cursor or Cursor()


def test_what_pulsar_consumers_acknowledge_is_the_committed_offset_at_once() -> None:
    with GroupDriver() as groups:
        owner = PulsarSubscription(Cursor(3, holds_data=True))
        groups.cursors.attach(CursorKey("g", "t", 0), owner)
        owner.cursor.ack_cumulative(8)
        assert groups.committed("t", 0) == 8


def test_no_kafka_client_commits_or_deletes_what_connected_pulsar_consumers_hold() -> None:
    with GroupDriver() as groups:
        groups.commit(AT_5)
        owner = PulsarSubscription(Cursor(5))
        groups.cursors.attach(CursorKey("g", "t", 0), owner)
        assert groups.commit(OffsetToCommit("t", 0, 9)) == [GroupError.UNKNOWN_MEMBER_ID]
        deleted = groups.wait(groups.coordinator.offsets.delete("g", [("t", 0), ("t", 1)]))
        assert deleted == (GroupError.NONE, [GroupError.GROUP_SUBSCRIBED_TO_TOPIC, GroupError.NONE])
        assert groups.wait(groups.coordinator.delete("g")) is GroupError.NON_EMPTY_GROUP
        owner.is_in_use = False
        assert groups.commit(OffsetToCommit("t", 0, 9)) == [GroupError.NONE]
        assert owner.cursor.mark_delete == 9


def test_a_group_consumes_what_its_members_subscribe_to() -> None:
    with GroupDriver() as groups:
        assert not groups.coordinator.consumes("g", "t")
        groups.stable()
        assert groups.coordinator.consumes("g", "t")
        assert not groups.coordinator.consumes("g", "u")
