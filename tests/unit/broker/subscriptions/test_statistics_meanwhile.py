"""Statistics of a partition while a subscription is being made, or has just gone."""

import pytest

from magnetar.broker.security.model import ANONYMOUS, Caller, Origin
from magnetar.broker.topics.pulsar import PulsarTopics

from .driver import NAME, World, scenario

SOMEBODY = Caller(ANONYMOUS, "127.0.0.1", Origin("test", "test"))


@scenario
async def test_a_subscription_that_is_not_there_yet_does_not_hide_the_topic(world: World) -> None:
    await world.sub("there")
    subscriptions = world.broker.subscriptions
    known = subscriptions.names
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(subscriptions), "names", lambda _, partition: ["being-made", *known(partition)])
        patch.setattr(
            PulsarTopics, "partition", lambda *_: world.partition
        )  # which is not among the broker's
        found = await world.broker.cases.statistics.topic(SOMEBODY, NAME.full)
        internal = await world.broker.cases.statistics.internal(SOMEBODY, NAME.full)
    assert [one.name for one in found.subscriptions] == ["there"]
    assert [one.name for one in internal.cursors] == ["there"]
