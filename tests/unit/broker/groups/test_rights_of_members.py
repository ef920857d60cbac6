"""A server that assigns gives a member only topics that its client may see, whichever protocol the member speaks."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest

from magnetar.broker.groups.consumer.embedded import assigned
from magnetar.broker.groups.consumer.heartbeats import ASKED_AT_ONCE_MAX
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedConsumer,
    JoinRequest,
    JoinResult,
    ShareHeartbeat,
    StreamsHeartbeat,
)
from magnetar.broker.groups.settings import GroupSettings
from magnetar.testing.groups import GroupDriver, topic_id
from tests.unit.broker.groups.test_group_migration import gives, says

ONLY_T: Callable[[str], bool] = "t".__eq__
HERE: dict[str, Any] = {"owner": "ann", "host": "10.0.0.1"}
THERE: dict[str, Any] = {"owner": "ann", "host": "10.0.0.2", "may_see": ONLY_T}


@pytest.fixture
def groups() -> Iterator[GroupDriver]:
    with GroupDriver(GroupSettings()) as driver:
        driver.catalogue.partitions = {"t": 4, "u": 3}
        yield driver


def joins(groups: GroupDriver, *topics: str, **changes: Any) -> JoinResult:
    """A classic member joins as bob, who may see `t`."""
    said = {"protocols": (("range", says(*topics)),), "owner": "bob", "may_see": ONLY_T, **changes}
    if "member_id" not in said:
        said["member_id"] = groups.new_id("g", **said)
    parked = groups.join(groups.request("g", **said))
    groups.advance(3.0)
    assert parked.join.error is GroupError.NONE
    return parked.join


def synced(groups: GroupDriver, joined: JoinResult) -> dict[str, set[int]]:
    return assigned(groups.sync(joined).sync.assignment, str)


def described(groups: GroupDriver) -> list[DescribedConsumer]:
    return list(groups.coordinator.consumers.describe("g").members)


def got(result: ConsumerHeartbeatResult) -> dict[bytes, int]:
    assert result.error is GroupError.NONE
    assert result.assignment is not None, result
    return {topic: len(list(partitions)) for topic, partitions in result.assignment.items()}


def topics_of(groups: GroupDriver) -> dict[str, set[str]]:
    """What each member has, by its id."""
    return {one.member_id: {name for _, name, _ in one.assigned} for one in described(groups)}


def beat_on(groups: GroupDriver, rights: dict[str, dict[str, Any]], rounds: int = 4) -> None:
    """Heartbeats of members that give everything back at once, by their ids."""
    for _ in range(rounds):
        groups.advance(1.0)
        for member, its in rights.items():
            epoch = {one.member_id: one.epoch for one in described(groups)}[member]
            groups.beat(member, epoch, owned={}, **its)
        groups.wait(groups.coordinator.consumers.settled())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (JoinRequest, "viewer"),
        (ConsumerHeartbeat, "viewer"),
        (ShareHeartbeat, "viewer"),
        (StreamsHeartbeat, "check_topics"),
    ],
)
def test_no_request_of_a_member_can_forget_whose_rights_count(kind: Any, name: str) -> None:
    """By default all topics could be seen, so a new door would have told everything to everybody."""
    (its,) = (one for one in fields(kind) if one.name == name)
    assert (its.default, its.default_factory) == (MISSING, MISSING)


def test_a_classic_member_gets_only_topics_that_its_client_may_see(groups: GroupDriver) -> None:
    """What it says in JoinGroup is opaque to the broker otherwise, so no right to the topics in it was asked."""
    groups.beat("m", 0, "t", owner="ann")
    joined = joins(groups, "u", "missing")
    assert synced(groups, joined) == {}
    epoch = groups.beat("m", 2, owner="ann", owned={"t": range(4)}).epoch
    while joined.generation < epoch:
        joined = joins(groups, "u", "missing", member_id=joined.member_id)
        assert synced(groups, joined) == {}
    for change in ({"u": 9}, {"missing": 1}):  # as for a topic that there is not, whatever becomes of it
        groups.catalogue.partitions |= change
        groups.advance(2.0)
        assert groups.beat("m", epoch, owner="ann").epoch == epoch == joined.generation
        assert groups.heartbeat(joined) is GroupError.NONE


def test_members_that_a_group_takes_over_get_only_such_topics(groups: GroupDriver) -> None:
    """Here their leader assigned what it likes, to learn which of it there is."""
    joined = joins(groups, "t", "u")
    groups.sync(joined, {joined.member_id: gives(t=[0], u=[*range(100)])})
    groups.beat("m", 0, "t", owner="bob", may_see=ONLY_T)
    its = {one.member_id: one for one in described(groups)}[joined.member_id]
    assert {name for _, name, _ in (*its.assigned, *its.target)} == {"t"}
    again = joins(groups, "t", "u", member_id=joined.member_id)
    assert synced(groups, again).keys() <= {"t"}


def test_a_right_that_is_taken_takes_the_topic(groups: GroupDriver) -> None:
    seen = {"t", "u"}
    rights = {"owner": "ann", "may_see": seen.__contains__}
    joined = groups.beat("m", 0, "t", "u", **rights)
    assert got(joined).keys() == {topic_id("t"), topic_id("u")}
    seen.discard("u")
    groups.catalogue.rights_changes += 1
    groups.advance(1.0)
    assert got(groups.beat("m", joined.epoch, owned={"t": range(4), "u": range(3)}, **rights)) == {
        topic_id("t"): 4
    }
    epoch = groups.beat("m", joined.epoch, owned={"t": range(4)}, **rights).epoch
    groups.catalogue.partitions["u"] = 9
    groups.advance(1.0)
    assert groups.beat("m", epoch, owned={"t": range(4)}, **rights).epoch == epoch
    seen.add("u")
    groups.catalogue.rights_changes += 1
    groups.advance(1.0)
    assert got(groups.beat("m", epoch, owned={"t": range(4)}, **rights))[topic_id("u")] == 9


def test_a_right_that_one_client_of_several_has_lost_takes_the_topic_from_it_alone(
    groups: GroupDriver,
) -> None:
    seen = {"t", "u"}
    bob = {"owner": "bob", "may_see": seen.__contains__}
    groups.beat("a", 0, "t", "u", owner="ann")
    groups.beat("b", 0, "t", "u", **bob)
    seen.discard("u")
    groups.catalogue.rights_changes += 1
    for _ in range(4):
        groups.advance(1.0)
        for member, rights in (("a", {"owner": "ann"}), ("b", bob)):
            epoch = {one.member_id: one.epoch for one in described(groups)}[member]
            groups.beat(member, epoch, owned={}, **rights)
    a, b = sorted(described(groups), key=lambda one: one.member_id)
    assert [(name, len(parts)) for _, name, parts in a.assigned if name == "u"] == [("u", 3)]
    assert {name for _, name, _ in b.assigned} == {"t"}


def test_rights_to_very_many_topics_are_asked_for_in_turns(groups: GroupDriver) -> None:
    names = [f"x{number}" for number in range(6 * ASKED_AT_ONCE_MAX)]
    groups.catalogue.partitions |= dict.fromkeys(names, 1)
    asked = 0

    def may_see(topic: str) -> bool:
        nonlocal asked
        asked += 1
        return topic != "x7"

    async def turns() -> list[int]:
        found = []
        while asked < len(names):
            before = asked
            await asyncio.sleep(0)
            found.append(asked - before)
        return found

    rights = {"owner": "ann", "may_see": may_see}
    epoch = groups.beat("m", 0, *names, checked_at=0, **rights).epoch
    assert asked == 0  # the use case has asked for each
    groups.catalogue.rights_changes += 1
    groups.advance(1.0)
    groups.beat("m", epoch, **rights)
    assert asked < len(names)
    assert max(groups.wait(turns())) < ASKED_AT_ONCE_MAX
    groups.wait(groups.coordinator.consumers.settled())
    groups.beat("m", epoch, owned={}, **rights)
    groups.wait(groups.coordinator.consumers.settled())  # a thread computes the target
    last = groups.beat("m", epoch, owned={}, **rights)
    assert topic_id("x7") not in got(last)
    assert len(got(last)) == len(names) - 1


def test_another_client_in_the_place_of_a_static_member_gets_nothing_of_what_that_might_see(
    groups: GroupDriver,
) -> None:
    first = groups.beat("a", 0, "t", "u", instance_id="i", owner="ann")
    assert got(first).keys() == {topic_id("t"), topic_id("u")}
    groups.beat("a", -2, instance_id="i", owner="ann")
    taken = groups.beat("b", 0, "t", instance_id="i", owner="bob", may_see=ONLY_T)
    assert got(taken).keys() <= {topic_id("t")}


def test_another_client_gets_nothing_by_the_pattern_of_the_one_before(groups: GroupDriver) -> None:
    joined = groups.beat("a", 0, names=None, pattern=".*", owner="ann")
    assert got(joined).keys() == {topic_id("t"), topic_id("u")}
    asked = groups.beat("a", joined.epoch, owned={}, owner="bob", may_see=ONLY_T)
    assert (asked.error, asked.assignment) == (GroupError.NONE, None)
    (its,) = described(groups)
    assert (its.pattern, its.assigned) == ("", [])


@pytest.mark.parametrize("by", [{"pattern": "[tu]"}, {"topics": ("t", "u")}], ids=["pattern", "names"])
def test_members_of_one_client_at_two_hosts_get_what_it_may_see_there(
    groups: GroupDriver, by: dict[str, Any]
) -> None:
    by = {"names": by.get("topics"), **by}
    groups.beat("a", 0, **by, **HERE)
    groups.beat("b", 0, **by, **THERE)
    beat_on(groups, {"a": HERE, "b": THERE})
    assert topics_of(groups) == {"a": {"t", "u"}, "b": {"t"}}


def test_a_member_that_goes_on_from_another_host_keeps_its_pattern(groups: GroupDriver) -> None:
    """Its client does not name it again.  What it may not see there is gone at once, the rest stays meanwhile."""
    joined = groups.beat("a", 0, names=None, pattern="[tu]", **HERE)
    assert got(joined).keys() == {topic_id("t"), topic_id("u")}
    groups.advance(1.0)
    assert got(groups.beat("a", joined.epoch, owned={}, **THERE)).keys() == {topic_id("t")}
    beat_on(groups, {"a": THERE})
    (its,) = described(groups)
    assert (its.pattern, topics_of(groups)) == ("[tu]", {"a": {"t"}})
    beat_on(groups, {"a": HERE})
    assert topics_of(groups) == {"a": {"t", "u"}}


def test_what_very_many_topics_let_see_elsewhere_is_asked_for_beside_the_heartbeat(
    groups: GroupDriver,
) -> None:
    names = {f"x{number}": 1 for number in range(ASKED_AT_ONCE_MAX + 1)}
    groups.catalogue.partitions |= names
    asked = 0

    def may_see(topic: str) -> bool:
        nonlocal asked
        asked += 1
        return topic != "x7"

    joined = groups.beat("a", 0, names=None, pattern="x.*", **HERE)
    assert len(got(joined)) == len(names)
    there = {**THERE, "may_see": may_see}
    request = groups.heartbeat_request("a", joined.epoch, owned={}, **there)

    async def asked_at_once() -> int:
        groups.coordinator.consumers.heartbeat(request)
        return asked

    assert groups.wait(asked_at_once()) == 0
    beat_on(groups, {"a": there})
    assert topics_of(groups) == {"a": names.keys() - {"x7"}}


def test_a_classic_member_joins_again_once_rules_name_hosts(groups: GroupDriver) -> None:
    """Until then the server does not know whether it may see what the others of its principal see."""
    current = {"now"}
    rights = {"may_see": "u".__eq__, "is_current": lambda: bool(current)}
    groups.beat("m", 0, "t", owner="ann")
    joined = joins(groups, "u", **rights)
    epoch = groups.beat("m", 2, owner="ann", owned={"t": range(4)}).epoch
    while joined.generation < epoch:
        joined = joins(groups, "u", member_id=joined.member_id, **rights)
    assert synced(groups, joined) == {"u": {0, 1, 2}}
    assert groups.heartbeat(joined) is GroupError.NONE
    current.clear()
    assert groups.heartbeat(joined) is GroupError.REBALANCE_IN_PROGRESS
    again = joins(groups, "u", member_id=joined.member_id, may_see="u".__eq__, host="10.0.0.1")
    assert synced(groups, again) == {"u": {0, 1, 2}}
    assert groups.heartbeat(again) is GroupError.NONE
