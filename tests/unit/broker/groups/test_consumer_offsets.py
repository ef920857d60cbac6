"""Offsets and epochs of the consumer protocol: who may commit and fetch what, and what outlives a restart.

The answers are those that Apache Kafka 4.3.1 gave to the same requests.
"""

import asyncio

from magnetar.broker.groups.consumer.background import EPOCHS_AT_ONCE
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    CommitRequest,
    GroupState,
    OffsetToCommit,
)
from magnetar.testing.groups import GroupDriver
from tests.unit.broker.groups.test_consumer_heartbeats import (
    commit,
    described,
    got,
    group_of,
    groups,
    two_members,
)

__all__ = ["groups"]


def test_a_member_commits_with_its_epoch_and_with_those_since_it_got_the_partition(
    groups: GroupDriver,
) -> None:
    two_members(groups)
    stale = GroupError.STALE_MEMBER_EPOCH
    assert [commit(groups, "a", epoch, 0) for epoch in (1, 2, 3, 4)] == [
        stale,
        GroupError.NONE,
        GroupError.NONE,
        stale,
    ]
    assert [commit(groups, "a", epoch, 3) for epoch in (2, 3)] == [stale, GroupError.NONE]
    assert [commit(groups, "b", epoch, 3) for epoch in (2, 3)] == [stale, GroupError.NONE]
    assert commit(groups, "a", -1, 0) is stale
    assert commit(groups, "x", 3, 0) is GroupError.UNKNOWN_MEMBER_ID
    assert commit(groups, "", -1, 0) is GroupError.UNKNOWN_MEMBER_ID
    assert commit(groups, "a", 3, 0, knows_epochs=False) is GroupError.UNSUPPORTED_VERSION


def test_a_member_commits_what_it_is_giving_back(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    groups.beat("b", 0, "t", "u")
    groups.advance(1.0)
    groups.beat("a", 2)
    group = group_of(groups)
    group.members["a"].epoch = 3  # as if it had got on: what it has yet to give back is its own all the same
    assert commit(groups, "a", 2, 3) is GroupError.NONE


def test_administrators_commit_where_there_are_no_members(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    groups.beat("a", -1)
    assert commit(groups, "", -1, 0) is GroupError.NONE
    assert commit(groups, "a", 2, 0) is GroupError.UNKNOWN_MEMBER_ID


def test_a_transaction_of_a_stale_member_is_refused_in_words_that_its_client_knows(
    groups: GroupDriver,
) -> None:
    two_members(groups)
    offsets = groups.coordinator.offsets

    def check(member_id: str, epoch: int, partition: int = 0) -> GroupError:
        wanted = [OffsetToCommit("t", partition, 5)]
        request = CommitRequest("g", wanted, member_id, epoch, knows_epochs=False)
        (error,), good = groups.wait(offsets.check_transactional(request))
        assert len(good) == (error is GroupError.NONE)
        return error

    assert check("a", 3) is GroupError.NONE
    assert check("a", 4) is GroupError.ILLEGAL_GENERATION
    assert check("a", 2, 3) is GroupError.ILLEGAL_GENERATION
    assert check("x", 3) is GroupError.UNKNOWN_MEMBER_ID
    assert check("", -1) is GroupError.NONE


def test_a_member_fetches_offsets_with_its_own_epoch_only(groups: GroupDriver) -> None:
    two_members(groups)
    check = groups.coordinator.offsets.check_fetch
    assert check("g", "a", 3) is GroupError.NONE
    assert check("g", "a", 2) is check("g", "a", 4) is check("g", "a", -1) is GroupError.STALE_MEMBER_EPOCH
    assert check("g", "x", 3) is check("g", "", -1) is check("g", None, 3) is GroupError.UNKNOWN_MEMBER_ID
    assert check("g", None, -1) is GroupError.NONE
    assert check("other", "a", 3) is GroupError.NONE


def test_offsets_of_what_members_consume_are_not_deleted(groups: GroupDriver) -> None:
    two_members(groups)
    commit(groups, "a", 3, 0)
    _, errors = groups.wait(groups.coordinator.offsets.delete("g", [("t", 0), ("u", 0)]))
    assert errors == [GroupError.GROUP_SUBSCRIBED_TO_TOPIC, GroupError.NONE]
    assert groups.wait(groups.coordinator.delete("g")) is GroupError.NON_EMPTY_GROUP
    assert groups.coordinator.consumes("g", "t")
    assert not groups.coordinator.consumes("g", "u")


def test_offsets_that_are_consumed_do_not_expire_and_others_do(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    groups.commit(OffsetToCommit("t", 0, 5), OffsetToCommit("u", 0, 5), member_id="a", generation=2)
    for _ in range(8 * 24):
        for _ in range(90):
            groups.clock.step(40.0)
        groups.advance(40.0)
        groups.beat("a", 2)
    assert (groups.committed("t", 0), groups.committed("u", 0)) == (5, None)


# restarts


def test_epochs_go_on_above_all_that_were_given_before_a_restart(groups: GroupDriver) -> None:
    two_members(groups)
    commit(groups, "a", 3, 0)
    groups.restart()
    assert [(one.group_type, one.state) for one in groups.coordinator.listed()] == [
        ("consumer", GroupState.EMPTY)
    ]
    assert groups.beat("a", 3).error is GroupError.UNKNOWN_MEMBER_ID
    assert commit(groups, "a", 3, 0) is GroupError.UNKNOWN_MEMBER_ID
    epoch, parts = got(groups.beat("a", 0, "t"))
    assert epoch > EPOCHS_AT_ONCE
    assert parts == {"t": [0, 1, 2, 3]}
    assert commit(groups, "a", 3, 0) is GroupError.STALE_MEMBER_EPOCH
    assert groups.committed("t", 0) == 5


def test_no_epoch_is_given_before_it_is_stored(groups: GroupDriver) -> None:
    groups.store.fail_next = 1
    assert groups.beat("a", 0, "t").error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert group_of(groups).members == {}
    assert groups.beat("a", 0, "t").error is GroupError.NONE


def test_a_member_that_joins_in_the_very_step_in_which_epochs_are_stored_is_answered(
    groups: GroupDriver,
) -> None:
    async def together() -> list[tuple[int, dict[str, list[int]] | None]]:
        groups.store.hold()
        first = asyncio.ensure_future(groups.beating(groups.heartbeat_request("a", 0, "t")))
        for _ in range(8):
            await asyncio.sleep(0)
        # The write ends in the next turn of the loop, and this heartbeat is behind it in the same turn: in front of
        # whatever is called when the write has ended.
        groups.store.release()
        second = asyncio.ensure_future(groups.beating(groups.heartbeat_request("b", 0, "t")))
        return [got(each) for each in await asyncio.gather(first, second)]

    # It once asked for ever whether the epochs were there, and nothing else in the process went on.
    assert groups.wait(together()) == [(2, {}), (2, {"t": [0, 1, 2, 3]})]


def test_epochs_are_stored_ahead_so_that_changes_do_not_wait(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    epoch = 2
    names = (("t",), ("t", "u"))
    for turn in range(EPOCHS_AT_ONCE + 10):
        groups.advance(1.0)
        result = groups.beat("a", epoch, *names[turn % 2], owned={})
        assert result.error is GroupError.NONE
        epoch = result.epoch
    group = group_of(groups)
    assert epoch <= group.epoch < group.epochs_stored
    assert group.epoch > EPOCHS_AT_ONCE


def test_a_group_that_has_run_out_of_epochs_takes_the_next_one_when_it_is_stored(
    groups: GroupDriver,
) -> None:
    two_members(groups)
    group = group_of(groups)
    group.epochs_stored = group.epochs_asked = group.epoch
    groups.advance(44.0)
    groups.beat("b", 3)
    group.epochs_stored = group.epoch
    groups.call(groups.clock.advance, 1.5)  # a is out
    assert (group.epoch, described(groups).state) == (3, GroupState.ASSIGNING)
    assert got(groups.beat("b", 3)) == (4, {"t": [0, 1, 2, 3]})


# one group, two protocols
