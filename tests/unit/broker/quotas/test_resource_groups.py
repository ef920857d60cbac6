"""Limits that partitions of a resource group share, beside their own."""

import asyncio
from pathlib import Path

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.policy.errors import InvalidPolicy, ResourceGroupInUse
from magnetar.broker.policy.model import DISPATCH_RATE, PUBLISH_RATE, RESOURCE_GROUP
from magnetar.broker.quotas.dispatch_limit import DispatchLimit, PartitionLimit, Together, together
from magnetar.broker.quotas.model import Rate
from magnetar.testing.clock import FakeClock
from magnetar.testing.pulsar import running_door

OWN = {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}


class Reader:
    """Takes a message whenever it is let; never has enough."""

    def __init__(self, limit: PartitionLimit, name: str) -> None:
        self.limit = limit
        self.name = name
        self.got = 0

    def go_on(self) -> None:
        while self.limit.admits(self.name):
            self.limit.used(1, 0)
            self.got += 1
        self.limit.wait(self.name, self.go_on)


def test_the_narrower_one_holds_and_what_is_shared_is_shared_by_turns() -> None:
    clock = FakeClock()
    shared = DispatchLimit(Rate(60, 0), clock)
    slow = Reader(Together(DispatchLimit(Rate(5, 0), clock), shared), "slow")
    fast = [Reader(Together(DispatchLimit(Rate(1000, 0), clock), shared), f"fast {one}") for one in range(2)]
    alone = Reader(shared, "alone")
    readers = [slow, *fast, alone]
    for reader in readers:
        reader.go_on()
    clock.advance(60)
    assert 3_500 <= sum(reader.got for reader in readers) <= 3_800
    assert 250 <= slow.got <= 320, "as much as it may, whatever the others take"
    others = [reader.got for reader in (*fast, alone)]
    assert min(others) > 0.8 * max(others), others


def test_one_that_leaves_is_not_called_and_keeps_nobody_waiting() -> None:
    clock = FakeClock()
    own, shared = DispatchLimit(Rate(1, 0), clock), DispatchLimit(Rate(1, 0), clock)
    gone, other = Reader(Together(own, shared), "gone"), Reader(shared, "other")
    gone.go_on()
    other.go_on()
    gone.limit.leave("gone")
    had = gone.got
    clock.advance(10)
    assert gone.got == had
    assert other.got >= 8


def test_what_holds_of_the_two() -> None:
    clock = FakeClock()
    own, shared = DispatchLimit(Rate(1, 0), clock), DispatchLimit(Rate(1, 0), clock)
    both = together(own, shared, None)
    assert isinstance(both, Together)
    assert together(own, shared, both) is both
    assert together(own, DispatchLimit(Rate(1, 0), clock), both) is not both
    assert (together(own, None, both), together(None, shared, both), together(None, None, both)) == (
        own, shared, None,
    )  # fmt: skip
    own.used(3, 0)
    assert (both.owed_s(), both.admits("a")) == (2, False)


def test_topics_of_a_group_share_its_limits_until_they_leave_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_door(tmp_path) as door:
            broker, namespaces = door.broker, door.broker.namespaces
            await namespaces.create("public/a")
            await broker.resource_groups.put("gold", {"publishRateInMsgs": 10, "dispatchRateInMsgs": 10})
            partitions = []
            for name in ("public/a/t", "public/default/t"):
                topic = TopicName.parse(name)
                await namespaces.change(topic.namespace_name, lambda had: {**had, RESOURCE_GROUP: "gold"})
                await broker.pulsar_topics.create(topic)
                partitions.append(broker.topics.get(topic).partition(0))
            one, other = partitions
            limits = broker.resource_groups.limits("gold")
            assert limits.publish is not None
            assert one.shared_publish_limit is other.shared_publish_limit is limits.publish
            assert one.dispatch_limit is other.dispatch_limit is limits.dispatch
            limits.publish.used(30, 0)
            assert one.owed_s() == other.owed_s() == 2
            own = {DISPATCH_RATE: {"dispatchThrottlingRateInMsg": 5}, PUBLISH_RATE: OWN}
            await namespaces.change("public/a", lambda had: {**had, **own})
            assert isinstance(one.dispatch_limit, Together)
            assert one.dispatch_limit.shared is other.dispatch_limit
            assert one.publish_limit is not None
            one.publish_limit.used(25, 0)
            assert (one.owed_s(), other.owed_s()) == (4, 2)

            woken: list[str] = []
            assert limits.dispatch is not None
            limits.dispatch.used(100, 0)
            for name in ("a", "b"):
                limits.dispatch.wait(name, lambda name=name: woken.append(name))
            await broker.resource_groups.put("gold", {"dispatchRateInMsgs": 20})
            assert woken == ["a", "b"], "they ask the new limit"
            assert (
                other.dispatch_limit is broker.resource_groups.limits("gold").dispatch is not limits.dispatch
            )
            assert other.shared_publish_limit is limits.publish, "a rate that stays owes what it owed"

            with pytest.raises(ResourceGroupInUse):
                await namespaces.delete_group("gold", lambda: broker.resource_groups.delete("gold"))
            for name in ("public/a", "public/default"):
                await namespaces.change(name, lambda had: {**had, RESOURCE_GROUP: None})
            assert one.dispatch_limit is one.own_dispatch_limit is not None
            assert (other.dispatch_limit, other.shared_publish_limit) == (None, None)
            await namespaces.delete_group("gold", lambda: broker.resource_groups.delete("gold"))
            with pytest.raises(InvalidPolicy, match="ResourceGroup does not exist"):
                await namespaces.change("public/a", lambda had: {**had, RESOURCE_GROUP: "gold"})
            with pytest.raises(InvalidPolicy, match="ResourceGroup does not exist"):
                await namespaces.create("public/b", {RESOURCE_GROUP: "gold"})

    asyncio.run(main())
