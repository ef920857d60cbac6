"""What is set for subscriptions: their own properties, and whether delays are kept."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

from .world import NAME, Scenario, T, World, run

Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


@pytest.mark.parametrize("is_connected", [False, True])
def test_properties_of_a_subscription_are_replaced(play: Play, is_connected: bool) -> None:
    async def scenario(world: World) -> None:
        path = f"{T}/subscription/s/properties"
        await world.ask("PUT", path, {"a": "b"}, 404)
        body = {"ledgerId": -1, "entryId": -1, "properties": {"old": "x"}}
        await world.ask("PUT", f"{T}/subscription/s", body, 204)
        if is_connected:
            await world.subscribed()
        await world.ask("PUT", path, {"a": "b"}, 204)
        for bad, status in (({"a": 5}, 400), ({"a": "b" * 5000}, 412)):
            await world.ask("PUT", path, bad, status)
        assert await world.ask("GET", path) == {"a": "b"}
        assert await world.ask("GET", f"{T}/subscriptions") == ["s"]
        await world.broker.subscriptions.close_partition(world.partition)
        assert await world.ask("GET", path) == {"a": "b"}

    play(scenario)


@pytest.mark.parametrize("kind", [pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared])
def test_delays_are_kept_unless_the_policy_says_otherwise(play: Play, kind: int) -> None:
    async def scenario(world: World) -> None:
        later_ms = world.door.clock.now_ms() + 10_000
        client = await world.subscribed("s", kind, permits=10)
        await world.publish(1, deliver_at_time=later_ms)
        await world.publish(1)
        assert (await client.hear_entry(BaseCommand.MESSAGE))[1].endswith(b"m2")
        found = (await world.ask("GET", f"{T}/stats"))["subscriptions"]["s"]
        assert (found["msgBacklog"], found["msgDelayed"], found["msgBacklogNoDelayed"]) == (2, 1, 1)
        size = found["delayedMessageIndexSizeInBytes"]
        assert size > 0
        labels = f'namespace="public/default",subscription="s",topic="{NAME.full}"'
        shown = (await world.ask("GET", "/metrics")).text
        assert f"pulsar_subscription_delayed{{{labels}}} 1.0" in shown
        assert f"pulsar_delayed_message_index_size_bytes{{{labels}}} {float(size)}" in shown
        await world.ask("POST", f"{T}/delayedDelivery", {"active": False}, 204)
        other = await world.subscribed("other", kind, permits=10)
        assert (await other.hear_entry(BaseCommand.MESSAGE))[1].endswith(b"m1")

    play(scenario)
