"""Groups that go from one protocol to the other while they have members, and groups of both."""

import asyncio
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from magnetar.broker.groups import migration
from magnetar.broker.groups.consumer.embedded import EMBEDDED_BYTES_MAX, assigned, assignment
from magnetar.broker.groups.consumer.group import ConsumerGroup
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group
from magnetar.broker.groups.model import GroupState, JoinResult, LeavingMember, OffsetToCommit
from magnetar.broker.groups.settings import GroupSettings
from magnetar.testing.groups import GroupDriver, subscription, topic_id
from magnetar.wire.kafka.messages import consumer_protocol_subscription as codec

Owned = Mapping[str, list[int]]


@pytest.fixture
def groups() -> Iterator[GroupDriver]:
    with GroupDriver(GroupSettings()) as driver:
        driver.catalogue.partitions = {"t": 4, "u": 3}
        yield driver


def says(*topics: str, owned: Owned | None = None) -> bytes:
    """What a consumer that supports cooperative rebalancing says of itself (version 1)."""
    rows = [codec.TopicPartition(topic, parts) for topic, parts in (owned or {}).items()]
    out: list[Any] = [struct.pack(">h", 1)]
    codec.encode(1, codec.ConsumerProtocolSubscription(list(topics), None, rows), out)
    return b"".join(out)


def gives(**partitions: list[int]) -> bytes:
    return assignment(1, partitions.items())


def classic_group(groups: GroupDriver, **shares: Owned) -> dict[str, JoinResult]:
    """A Stable classic group whose members, by client id, have these partitions."""
    parked = {}
    for client in shares:
        joins = {"client_id": client, "protocols": (("range", says("t")),)}
        parked[client] = groups.join(groups.request("g", groups.new_id("g", **joins), **joins))
    groups.advance(10.0)
    if any(one.pending for one in parked.values()):  # the first one was alone, and is to join again
        raise AssertionError(parked)
    joined = {client: one.joined[-1] for client, one in parked.items()}
    generation = max(one.generation for one in joined.values())
    while any(one.generation < generation for one in joined.values()):
        again = {
            client: groups.join(
                groups.request("g", one.member_id, client_id=client, protocols=(("range", says("t")),))
            )
            for client, one in joined.items()
            if one.generation < generation
        }
        joined |= {client: one.join for client, one in again.items()}
        generation = max(one.generation for one in joined.values())
    assignments = {one.member_id: gives(**shares[client]) for client, one in joined.items()}
    for one in sorted(joined.values(), key=lambda each: each.member_id != each.leader):
        assert (
            groups.sync(one, assignments if one.leader == one.member_id else {}).sync.error is GroupError.NONE
        )
    return joined


@pytest.fixture
def together() -> Iterator[GroupDriver]:
    """As `groups`, with time for the members of a new classic group to come together."""
    with GroupDriver(GroupSettings(group_initial_rebalance_delay_ms=3_000)) as driver:
        driver.catalogue.partitions = {"t": 4, "u": 3}
        yield driver


def rejoin(groups: GroupDriver, member_id: str, owned: Owned, **changes: Any) -> JoinResult:
    request = groups.request("g", member_id, protocols=(("range", says("t", owned=owned)),), **changes)
    return groups.join(request).join


def synced(groups: GroupDriver, joined: JoinResult) -> dict[str, set[int]]:
    result = groups.sync(joined).sync
    assert result.error is GroupError.NONE, result
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")
    return assigned(result.assignment, str)


def got(groups: GroupDriver, member_id: str, epoch: int, **more: Any) -> tuple[int, list[int] | None]:
    result = groups.beat(member_id, epoch, **more)
    assert result.error is GroupError.NONE, result
    return result.epoch, None if result.assignment is None else sorted(
        result.assignment.get(topic_id("t"), ())
    )


def test_a_classic_group_goes_over_when_a_member_of_the_consumer_protocol_joins(
    together: GroupDriver,
) -> None:
    groups = together
    old = classic_group(groups, a={"t": [0, 1]}, b={"t": [2, 3]})
    generation = old["a"].generation
    groups.commit(OffsetToCommit("t", 0, 5), member_id=old["a"].member_id, generation=generation)

    epoch, has = got(groups, "new", 0, names=("t",), topics=("t",))
    assert (epoch, has) == (generation + 1, [])
    assert groups.committed("t", 0) == 5
    described = {one.member_id: one for one in groups.coordinator.consumers.describe("g").members}
    assert [one.is_classic for one in described.values()] == [True, True, False]
    # Until they join again, members of before go on with what they have, and commit.
    assert groups.commit(OffsetToCommit("t", 0, 6), member_id=old["a"].member_id, generation=generation) == [
        GroupError.NONE
    ]
    shares = {"new": set[int]()}
    for client, owned in (("a", [0, 1]), ("b", [2, 3])):
        assert groups.heartbeat(old[client]) is GroupError.REBALANCE_IN_PROGRESS
        joined = rejoin(groups, old[client].member_id, {"t": owned})
        while True:
            assert (joined.error, joined.leader, joined.members) == (GroupError.NONE, "", ())
            shares[client] = synced(groups, joined).get("t", set())
            if groups.heartbeat(joined) is GroupError.NONE:
                break
            joined = rejoin(groups, joined.member_id, {"t": sorted(shares[client])})
        old[client] = joined
    _, has = got(groups, "new", epoch, owned={})
    shares["new"] = set(has or ())
    assert sorted(one for share in shares.values() for one in share) == [0, 1, 2, 3]
    assert sorted(map(len, shares.values())) == [1, 1, 2]
    assert groups.coordinator.consumers.describe("g").state is GroupState.STABLE


def test_requests_that_wait_are_sent_back_to_join_when_a_group_goes_over(together: GroupDriver) -> None:
    groups = together
    waiting = groups.join_new()
    assert waiting.pending
    assert groups.beat("new", 0, "t").error is GroupError.NONE
    assert waiting.join.error is GroupError.REBALANCE_IN_PROGRESS
    joined = rejoin(groups, waiting.join.member_id, {})
    assert joined.error is GroupError.NONE


@pytest.mark.parametrize("is_static", [False, True])
def test_a_member_joins_again_after_classic_ones_were_the_first_after_a_restart(
    together: GroupDriver, is_static: bool
) -> None:
    """By GROUP_ID_NOT_FOUND librdkafka and Java's client end: they would never come back."""
    groups = together
    says = {"names": ("t",), "topics": ("t",), "instance_id": "i" if is_static else None}
    epoch, _ = got(groups, "new", 0, **says)
    groups.restart()
    waiting = groups.join_new()
    assert groups.beat("new", epoch, owned={}).error is GroupError.UNKNOWN_MEMBER_ID
    assert isinstance(groups.coordinator.find("g"), Group)
    again, _ = got(groups, "new", 0, **says)
    assert again > epoch
    assert waiting.join.error is GroupError.REBALANCE_IN_PROGRESS
    assert isinstance(groups.coordinator.find("g"), ConsumerGroup)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (("range", b""),)},
        {"protocols": (("range", b"\0\1garbage"),)},
        {"protocols": (("range", bytes(EMBEDDED_BYTES_MAX + 1)),)},
    ],
)
def test_a_group_whose_members_are_no_consumers_stays_what_it_is(
    together: GroupDriver, changes: dict[str, Any]
) -> None:
    groups = together
    (member,) = groups.stable(**changes)
    refused = groups.beat("new", 0, "t")
    assert (refused.error, bool(refused.message)) == (GroupError.GROUP_ID_NOT_FOUND, True)
    assert groups.heartbeat(member) is GroupError.NONE


@pytest.mark.parametrize(
    ("policy", "upgrades"), [("disabled", False), ("downgrade", False), ("upgrade", True)]
)
def test_the_policy_says_whether_a_group_goes_over(policy: str, upgrades: bool) -> None:
    with GroupDriver(GroupSettings(group_consumer_migration_policy=policy)) as groups:
        groups.join_new()
        groups.advance(1.0)
        error = groups.beat("new", 0, "t").error
        assert error is (GroupError.NONE if upgrades else GroupError.GROUP_ID_NOT_FOUND)


def test_large_groups_keep_their_protocol(together: GroupDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "MEMBERS_MAX", 1)
    together.stable(2)
    assert together.beat("new", 0, "t").error is GroupError.GROUP_ID_NOT_FOUND


def test_a_leader_that_gave_a_partition_twice_is_not_believed(together: GroupDriver) -> None:
    groups = together
    classic_group(groups, a={"t": [0, 1]}, b={"t": [1, 2, 99], "gone": [0]})
    groups.beat("new", 0, "t")
    found = groups.coordinator.find("g")
    assert isinstance(found, ConsumerGroup)
    held = [sorted(one.assigned.get(topic_id("t"), ())) for one in found.members.values()]
    assert held[:2] == [[0, 1], [2]]


def mixed(groups: GroupDriver) -> JoinResult:
    """A group of `new`, which speaks the consumer protocol, and a classic member, whose last join this is."""
    assert got(groups, "new", 0, names=("t",), topics=("t",)) == (2, [0, 1, 2, 3])
    member_id = groups.new_id("g", protocols=(("range", says("t")),))
    groups.advance(1.0)
    joined = rejoin(groups, member_id, {})
    assert synced(groups, joined) == {}
    assert groups.heartbeat(joined) is GroupError.NONE  # what it is to get is not free yet
    assert got(groups, "new", 2) == (2, [0, 1])
    assert got(groups, "new", 2, owned={"t": [0, 1]}) == (3, None)
    assert groups.heartbeat(joined) is GroupError.REBALANCE_IN_PROGRESS
    joined = rejoin(groups, member_id, {})
    assert synced(groups, joined) == {"t": {2, 3}}
    assert groups.heartbeat(joined) is GroupError.NONE
    return joined


def test_a_classic_member_joins_a_group_of_the_consumer_protocol(groups: GroupDriver) -> None:
    joined = mixed(groups)
    for generation, error in ((3, GroupError.NONE), (2, GroupError.ILLEGAL_GENERATION)):
        assert groups.commit(
            OffsetToCommit("t", 2, 5),
            member_id=joined.member_id,
            generation=generation,
            knows_epochs=False,
        ) == [error]
    assert groups.coordinator.offsets.check_fetch("g", joined.member_id, 2) is GroupError.ILLEGAL_GENERATION


def test_a_classic_member_of_another_kind_is_refused(groups: GroupDriver) -> None:
    mixed(groups)
    for changes, error in (
        ({"protocol_type": "connect"}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("roundrobin", subscription("t")),)}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b"x"),), "member_id": "y"}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "i", "member_id": "y"}, GroupError.UNKNOWN_MEMBER_ID),
    ):
        assert groups.join(groups.request(**changes)).join.error is error


def test_what_is_wrong_with_a_request_of_a_classic_member_is_told_as_ever(groups: GroupDriver) -> None:
    joined = mixed(groups)
    for changes, error in (
        ({"generation": 2}, GroupError.ILLEGAL_GENERATION),
        ({"member_id": "x"}, GroupError.UNKNOWN_MEMBER_ID),
        ({"member_id": "new"}, GroupError.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, GroupError.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "x"}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "x"}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
    ):
        assert groups.sync(joined, **changes).sync.error is error
    assert groups.coordinator.heartbeat("g", joined.member_id, 2) is GroupError.ILLEGAL_GENERATION
    assert groups.coordinator.heartbeat("g", "new", 3) is GroupError.UNKNOWN_MEMBER_ID


def test_a_classic_member_has_its_own_session(groups: GroupDriver) -> None:
    joined = mixed(groups)
    groups.advance(9.0)
    assert groups.heartbeat(joined) is GroupError.NONE
    groups.advance(10.0)
    assert groups.heartbeat(joined) is GroupError.UNKNOWN_MEMBER_ID
    assert got(groups, "new", 3) == (4, [0, 1, 2, 3])


@pytest.mark.parametrize("asks", [False, True])
def test_a_classic_member_that_does_not_join_again_in_time_is_out(groups: GroupDriver, asks: bool) -> None:
    joined = mixed(groups)
    groups.beat("third", 0, "t")
    for _ in range(10):
        groups.advance(3.5)  # its rebalance time-out is 30 s
        error = groups.heartbeat(joined)
        groups.beat("new", 3)
        if asks and error is GroupError.REBALANCE_IN_PROGRESS:
            assert groups.sync(joined).sync.error is GroupError.REBALANCE_IN_PROGRESS
    assert error is GroupError.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_ask_for_its_assignment_in_time_is_out(groups: GroupDriver) -> None:
    joined = mixed(groups)
    joined = rejoin(groups, joined.member_id, {"t": [2, 3]})
    for _ in range(10):
        groups.advance(3.5)
        error = groups.heartbeat(joined)
    assert error is GroupError.UNKNOWN_MEMBER_ID


def test_the_last_member_of_the_consumer_protocol_leaves_a_classic_group_behind(groups: GroupDriver) -> None:
    joined = mixed(groups)
    groups.commit(OffsetToCommit("t", 2, 5), member_id=joined.member_id, generation=3)
    groups.beat("new", -1)
    assert isinstance(groups.coordinator.find("g"), Group)
    assert groups.heartbeat(joined) is GroupError.REBALANCE_IN_PROGRESS
    again = rejoin(groups, joined.member_id, {"t": [2, 3]})
    assert (again.error, again.leader, len(again.members)) == (GroupError.NONE, joined.member_id, 1)
    assert again.generation > joined.generation
    result = groups.sync(again, {again.member_id: gives(t=[0, 1, 2, 3])}).sync
    assert result.error is GroupError.NONE
    assert groups.committed("t", 2) == 5
    (listed,) = groups.coordinator.listed()
    assert (listed.group_type, listed.state) == ("classic", GroupState.STABLE)
    groups.restart()
    (listed,) = groups.coordinator.listed()
    assert listed.group_type == "classic"


def test_a_group_goes_back_when_the_last_one_falls_silent(groups: GroupDriver) -> None:
    joined = mixed(groups)
    for _ in range(12):
        groups.advance(4.0)
        groups.heartbeat(joined)
    assert isinstance(groups.coordinator.find("g"), Group)


def test_a_group_does_not_go_back_where_the_policy_forbids_it() -> None:
    with GroupDriver(GroupSettings(group_consumer_migration_policy="upgrade")) as groups:
        groups.catalogue.partitions = {"t": 4}
        joined = mixed(groups)
        groups.beat("new", -1)
        assert isinstance(groups.coordinator.find("g"), ConsumerGroup)
        assert groups.heartbeat(joined) is GroupError.NONE  # the target may not be computed yet
        groups.advance(1.0)
        assert groups.heartbeat(joined) is GroupError.REBALANCE_IN_PROGRESS
        again = rejoin(groups, joined.member_id, {"t": [2, 3]})
        assert synced(groups, again) == {"t": {0, 1, 2, 3}}


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions(groups: GroupDriver) -> None:
    static = {"group_instance_id": "i"}
    assert got(groups, "a", 0, names=("t",), topics=("t",)) == (2, [0, 1, 2, 3])
    groups.advance(1.0)
    joined = rejoin(groups, "", {}, **static)
    assert groups.beat("a", 2, owned={"t": [0, 1]}).epoch == 3
    joined = rejoin(groups, joined.member_id, {}, **static)
    assert synced_static(groups, joined) == {"t": {2, 3}}
    # Its next incarnation speaks the consumer protocol, and need not wait for it to leave.
    epoch, has = got(groups, "b", 0, names=("t",), topics=("t",), instance_id="i")
    assert has == [2, 3]
    assert groups.coordinator.heartbeat("g", joined.member_id, 3, "i") is GroupError.FENCED_INSTANCE_ID
    # And back.
    again = rejoin(groups, "", {"t": [2, 3]}, **static)
    assert again.error is GroupError.NONE
    assert synced_static(groups, again) == {"t": {2, 3}}
    assert groups.beat("b", epoch, instance_id="i").error is GroupError.FENCED_INSTANCE_ID
    assert rejoin(groups, "other", {}, **static).error is GroupError.FENCED_INSTANCE_ID


def synced_static(groups: GroupDriver, joined: JoinResult) -> dict[str, set[int]]:
    result = groups.sync(joined, group_instance_id="i").sync
    assert result.error is GroupError.NONE, result
    return assigned(result.assignment, str)


def test_the_last_member_of_the_consumer_protocol_comes_back_as_a_classic_one(groups: GroupDriver) -> None:
    got(groups, "a", 0, names=("t",), topics=("t",), instance_id="i")
    joined = rejoin(groups, "", {}, group_instance_id="i")
    assert isinstance(groups.coordinator.find("g"), Group)
    assert groups.beat("a", 2, instance_id="i").error is GroupError.GROUP_ID_NOT_FOUND
    again = rejoin(groups, joined.member_id, {}, group_instance_id="i")
    assert (again.error, again.leader) == (GroupError.NONE, joined.member_id)


def test_a_classic_member_that_joins_waits_for_epochs_and_hears_when_there_are_none(
    groups: GroupDriver,
) -> None:
    joined = mixed(groups)
    found = groups.coordinator.find("g")
    assert isinstance(found, ConsumerGroup)
    found.epochs_stored = found.epochs_asked = found.epoch
    groups.store.fail_next = 1
    assert rejoin(groups, joined.member_id, {"t": [2, 3]}).error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert rejoin(groups, joined.member_id, {"t": [2, 3]}).error is GroupError.NONE


def test_a_classic_member_that_joins_in_the_very_step_in_which_epochs_are_stored_is_taken_on(
    groups: GroupDriver,
) -> None:
    joined = mixed(groups)
    found = groups.coordinator.find("g")
    assert isinstance(found, ConsumerGroup)
    found.epochs_stored = found.epochs_asked = found.epoch
    request = groups.request("g", joined.member_id, protocols=(("range", says("t", owned={"t": [2, 3]})),))
    answers: list[JoinResult] = []

    async def together() -> None:
        groups.store.hold()
        groups.coordinator.join(request, answers.append)
        for _ in range(8):
            await asyncio.sleep(0)
        groups.store.release()
        groups.coordinator.join(request, answers.append)
        for _ in range(8):
            await asyncio.sleep(0)

    groups.wait(together())
    assert [one.error for one in answers] == [GroupError.NONE] * 2


def test_memory_is_given_back_on_every_way(groups: GroupDriver) -> None:
    memory = groups.coordinator._memory
    joined = mixed(groups)
    groups.beat("new", -1)  # classic
    again = rejoin(groups, joined.member_id, {})
    groups.sync(again, {again.member_id: gives(t=[0])})
    groups.beat("new", 0, "t")  # consumer
    groups.beat("new", -1)  # classic
    groups.leave(LeavingMember(joined.member_id))
    assert groups.wait(groups.coordinator.delete("g")) is GroupError.NONE
    assert memory.used == 0
