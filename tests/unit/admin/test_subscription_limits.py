"""`maxSubscriptionsPerTopic` holds for whatever makes a subscription, and not for what uses one that there is."""

from pathlib import Path
from typing import Any

from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

from .world import NAME, N, T, World, run

LINK: dict[str, Any] = {
    "source": "pulsar://host:6650/a/b/c",
    "origin": "there",
    "partitions": 1,
    "partitioned": False,
}
TOO_MANY = "Exceed the maximum number of subscriptions of the topic"


def test_no_door_makes_more_subscriptions_than_a_topic_may_have(tmp_path: Path) -> None:
    """Only SUBSCRIBE was refused: who may read a topic made as many as it liked over HTTP."""

    async def scenario(world: World) -> None:
        link = "/magnetar/v1/links/copy"
        await world.ask("PUT", link, LINK)
        await world.ask("POST", f"{N}/maxSubscriptionsPerTopic", 1, 204)
        client = await world.subscribed("first")
        for again in (True, False):
            subscribe = pb.CommandSubscribe(
                topic=NAME.full,
                subscription="first" if again else "second",
                subType=1,  # type: ignore[arg-type]
                consumer_id=2 if again else 3,
                request_id=2,
            )
            said = await client.ask(subscribe, BaseCommand.SUCCESS if again else BaseCommand.ERROR)
        assert said.message.startswith(TOO_MANY)
        producer = pb.CommandProducer(
            topic=NAME.full, producer_id=1, request_id=3, initial_subscription_name="second"
        )
        refused = await client.ask(producer, BaseCommand.ERROR)
        assert (refused.error, refused.message.startswith(TOO_MANY)) == (pb.NotAllowedError, True)
        assert (await world.ask("PUT", f"{T}/subscription/second", status=412))["reason"].startswith(TOO_MANY)
        await world.ask("PUT", f"{T}/subscription/first", status=409)
        rows = [{"topic": NAME.full, "partition": 0, "offset": 0}]
        for name, error in (("second", "SUBSCRIPTION_NOT_ALLOWED"), ("first", None)):
            held = {"subscription": name, "positions": rows}
            (row,) = (await world.ask("POST", "/magnetar/v1/positions", held))["positions"]
            assert row["error"] == error
        row = {"partition": 0, "mark_delete": "5:0"}
        wanted = {"subscriptions": [{**row, "subscription": name} for name in ("a", "b", "a")]}
        done = (await world.ask("POST", f"{link}/subscriptions", wanted))["subscriptions"]
        assert [one["error"] for one in done] == [None, "SUBSCRIPTION_NOT_ALLOWED", None]
        await world.ask("POST", f"{N}/maxSubscriptionsPerTopic", 2, 204)
        await world.ask("PUT", f"{T}/subscription/second", status=204)
        await world.ask("POST", f"{N}/maxSubscriptionsPerTopic", 1, 204)  # nothing that there is has to go
        for name in ("first", "second"):
            held = {"subscription": name, "positions": rows}
            (row,) = (await world.ask("POST", "/magnetar/v1/positions", held))["positions"]
            assert row["error"] is None
        for topic, names in ((T, ["first", "second"]), (T.replace("/t", "/copy"), ["a"])):
            assert await world.ask("GET", f"{topic}/subscriptions") == names

    run(tmp_path, scenario)
