"""Subscriptions by regular expression: what they find, for whom, and what they may cost."""

import asyncio
from collections.abc import Iterator

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.patterns import PATTERN_CHARS_MAX
from magnetar.broker.groups.consumer import coordinator
from magnetar.broker.groups.consumer.group import ConsumerGroup
from magnetar.broker.groups.consumer.patterns import Pattern, Resolver
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import ConsumerHeartbeatResult
from magnetar.broker.groups.settings import GroupSettings
from magnetar.testing.clock import FakeClock
from magnetar.testing.groups import DictCatalogue, GroupDriver, viewer


@pytest.fixture
def groups() -> Iterator[GroupDriver]:
    with GroupDriver(GroupSettings()) as driver:
        driver.catalogue.partitions = {"t": 1, "t2": 1, "u": 1}
        yield driver


def got(result: ConsumerHeartbeatResult) -> list[str]:
    """The topics that a member gets."""
    assert result.error is GroupError.NONE, result
    assert result.assignment is not None, result
    return sorted(topic.rstrip(b"\0").decode() for topic in result.assignment)


def settled(groups: GroupDriver) -> None:
    groups.wait(groups.coordinator.consumers.settled())


def group_of(groups: GroupDriver) -> ConsumerGroup:
    found = groups.coordinator.find("g")
    assert isinstance(found, ConsumerGroup)
    return found


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("t", ["t"]),
        ("t.*", ["t", "t2"]),
        ("^t.?$", ["t", "t2"]),
        ("u|t2", ["t2", "u"]),
        (".*", ["t", "t2", "u"]),
        ("T", []),
        ("(?i)T", ["t"]),
        ("nothing", []),
    ],
)
def test_a_pattern_finds_topics_by_their_whole_name(
    groups: GroupDriver, pattern: str, topics: list[str]
) -> None:
    assert got(groups.beat("a", 0, names=None, pattern=pattern)) == topics


@pytest.mark.parametrize(
    "pattern", ["[", "(", "(a)\\1", "(?=a)", "a{1001}", "\\pX", "x" * (PATTERN_CHARS_MAX + 1)]
)
def test_a_pattern_that_cannot_be_run_is_refused(groups: GroupDriver, pattern: str) -> None:
    result = groups.beat("a", 0, names=None, pattern=pattern)
    assert result.error is GroupError.INVALID_REGULAR_EXPRESSION
    assert len(result.message) < 500
    assert groups.coordinator.listed() == []


def test_a_pattern_and_names_come_together_and_go_one_by_one(groups: GroupDriver) -> None:
    """What has a name comes first, as from Kafka's coordinator."""
    assert got(groups.beat("a", 0, "u", pattern="t")) == ["u"]
    epoch = 2
    for names, pattern, topics in (
        (None, None, ["t", "u"]),
        (("u",), "t2", ["t2", "u"]),
        (None, "t", ["t", "u"]),
        ((), None, ["t"]),
        (("u",), "", ["u"]),
    ):
        groups.advance(1.0)
        epoch = groups.beat("a", epoch, names=names, topics=names or (), pattern=pattern, owned={}).epoch
        settled(groups)
        groups.advance(1.0)
        epoch = groups.beat("a", epoch, owned={}).epoch
        result = groups.beat("a", epoch, "", owned={}, names=None, rebalance_timeout_ms=1)
        described = next(iter(groups.coordinator.consumers.describe("g").members))
        assert sorted(name for _, name, _ in described.assigned) == topics
        epoch = result.epoch
    assert described.pattern == ""


def test_an_empty_pattern_is_none(groups: GroupDriver) -> None:
    assert got(groups.beat("a", 0, names=None, pattern="")) == []
    assert groups.beat("b", 0, names=None, pattern=None).error is GroupError.INVALID_REQUEST


def test_topics_that_come_and_go_are_found_with_a_later_heartbeat(groups: GroupDriver) -> None:
    assert got(groups.beat("a", 0, names=None, pattern="t.*")) == ["t", "t2"]
    groups.catalogue.partitions["t3"] = 1
    del groups.catalogue.partitions["t"]
    groups.advance(1.0)
    groups.beat("a", 2)  # it sees that topics have changed
    settled(groups)
    groups.advance(1.0)
    result = groups.beat("a", 2, owned={})
    assert (got(result), result.epoch) == (["t2", "t3"], 4)
    assert group_of(groups).is_subscribed_to("t3")
    assert not group_of(groups).is_subscribed_to("t")


def test_a_pattern_finds_what_its_client_may_see(groups: GroupDriver) -> None:
    assert got(groups.beat("a", 0, names=None, pattern="t.*", owner="ann", may_see="t2".__eq__)) == ["t2"]
    groups.beat("b", 0, names=None, pattern="t.*", owner="bob", may_see="t".__eq__)
    groups.advance(1.0)
    groups.beat("a", 2, owned={"t2": [0]}, owner="ann", may_see="t2".__eq__)
    assert got(groups.beat("b", 2, owned={}, owner="bob", may_see="t".__eq__)) == ["t"]


def test_rights_are_looked_at_again_after_a_while(groups: GroupDriver) -> None:
    seen = {"t"}
    assert got(groups.beat("a", 0, names=None, pattern="t.*", may_see=seen.__contains__)) == ["t"]
    seen.add("t2")
    for _ in range(16):
        groups.advance(40.0)
        epoch = groups.beat("a", 2).epoch
        settled(groups)
        if epoch > 2:
            break
        result = groups.beat("a", 2, owned={})
        if result.epoch > 2:
            break
    assert got(groups.beat("a", group_of(groups).epoch, owned={})) == ["t", "t2"]


def test_a_pattern_that_is_slow_does_not_hold_up_the_heartbeat(groups: GroupDriver) -> None:
    groups.catalogue.partitions |= {f"x{n}": 1 for n in range(10_000)}

    async def impatient() -> ConsumerHeartbeatResult:
        request = groups.heartbeat_request("a", 0, names=None, pattern="t.*")
        beat = asyncio.ensure_future(groups.beating(request))
        while not beat.done():  # it has its turn before the names have all of theirs
            await asyncio.sleep(0)
            groups.clock.advance(coordinator.PATTERN_WAIT_S)
        return await beat

    assert got(groups.wait(impatient())) == []
    settled(groups)
    groups.advance(1.0)
    result = groups.beat("a", group_of(groups).members["a"].epoch, owned={})
    assert got(result) == ["t", "t2"]


def test_very_many_patterns_at_once_are_refused(groups: GroupDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "TASKS_MAX", 0)
    result = groups.beat("a", 0, names=None, pattern="t.*")
    assert result.error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert groups.beat("a", 0, "t").error is GroupError.NONE


def test_who_is_no_member_has_no_pattern_looked_up(groups: GroupDriver) -> None:
    groups.beat("a", 0, "t")
    looked = groups.catalogue.looks
    assert groups.beat("b", 2, pattern="t.*").error is GroupError.UNKNOWN_MEMBER_ID
    assert groups.catalogue.looks == looked


def test_members_of_one_client_share_what_a_pattern_finds(groups: GroupDriver) -> None:
    for n in range(1000):
        groups.catalogue.partitions[f"topic-{n}"] = 1
    memory = groups.coordinator._memory
    groups.beat("a", 0, names=None, pattern="topic-.*")
    looked, one = groups.catalogue.looks, memory.used
    groups.beat("b", 0, names=None, pattern="topic-.*")
    assert groups.catalogue.looks == looked
    assert memory.used - one < 10_000
    groups.beat("a", -1)
    groups.beat("b", -1)
    assert groups.wait(groups.coordinator.delete("g")) is GroupError.NONE
    assert memory.used == 0


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a?)+$", "(.*)(.*)(.*)(.*)[x]", "((a{0,100}){0,10})b"])
def test_patterns_made_to_be_slow_come_to_an_end(groups: GroupDriver, pattern: str) -> None:
    """An engine that goes back takes longer for one such name than a test has."""
    groups.catalogue.partitions |= {"a" * 200 + str(n): 1 for n in range(100)}
    assert groups.beat("a", 0, names=None, pattern=pattern).error is GroupError.NONE


def test_patterns_take_turns() -> None:
    """One that is slow kept all others waiting until it had gone through all names."""

    async def scenario() -> None:
        catalogue = DictCatalogue(**{f"{'x' * 240}{n}": 1 for n in range(40)})
        resolver = Resolver(SystemClock(), catalogue)
        order: list[str] = []
        slow = [Pattern(f"(.?){{{1000 - n}}}q", viewer("User:a")) for n in range(2)]
        simple = Pattern("x.*", viewer("User:b"))
        await asyncio.gather(
            *(resolver.resolve(one, lambda done, _: order.append(done.text)) for one in [*slow, simple])
        )
        assert order[0] == simple.text
        assert simple.due_s - simple.looked_s < slow[0].due_s - slow[0].looked_s

    asyncio.run(scenario())


def test_patterns_take_a_quarter_of_the_time_together_and_rest_behind_their_last_turns_too() -> None:
    """Many patterns of one turn each did not rest at all."""

    async def scenario() -> None:
        clock = FakeClock()
        worked = 0

        def may_see(_: str) -> bool:
            nonlocal worked
            worked += 1
            clock.advance(0.001)
            return True

        resolver = Resolver(clock, DictCatalogue(x=1, y=1))
        patterns = [Pattern("[xy]", viewer(f"User:{number}", may_see)) for number in range(20)]
        work = asyncio.gather(*(resolver.resolve(one, lambda *_: None) for one in patterns))
        while not work.done():
            await asyncio.sleep(0)
            clock.advance(0.0001)
        assert worked == 40
        assert clock.monotonic() > 4 * 0.040 - 0.001

    asyncio.run(scenario())
