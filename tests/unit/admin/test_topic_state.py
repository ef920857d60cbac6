"""Messages, statistics and subscriptions over HTTP, beside clients of both protocols."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from magnetar.base.names import TopicName
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

from .world import NAME, N, Scenario, T, World, run

Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


def test_stats_of_an_idle_topic_have_the_keys_that_tools_read(play: Play) -> None:
    async def scenario(world: World) -> None:
        stats = await world.ask("GET", f"{T}/stats")
        wanted = {
            *(
                "msgRateIn",
                "msgRateOut",
                "msgThroughputIn",
                "msgThroughputOut",
                "msgInCounter",
                "msgOutCounter",
            ),
            *("averageMsgSize", "storageSize", "backlogSize", "publishers", "subscriptions", "replication"),
            *("deduplicationStatus", "bytesInCounter", "bytesOutCounter", "ownerBroker"),
        }
        assert wanted <= stats.keys()
        assert (stats["subscriptions"], stats["publishers"], stats["msgInCounter"]) == ({}, [], 0)
        for missing in ("nope", "t-partition-0"):
            await world.ask("GET", f"/admin/v2/persistent/public/default/{missing}/stats", status=404)

    play(scenario)


def test_stats_show_producers_consumers_and_backlogs(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await world.subscribed("s", permits=100, metadata=[pb.KeyValue(key="k", value="v")])
        producer = pb.CommandProducer(
            topic=NAME.full,
            producer_id=7,
            request_id=2,
            producer_name="prod",
            metadata=[pb.KeyValue(key="app", value="a")],
        )
        await client.ask(producer, BaseCommand.PRODUCER_SUCCESS)
        await world.publish(2)
        await world.publish(1, batch=10)
        for _ in range(3):
            await client.hear(BaseCommand.MESSAGE)
        stats = await world.ask("GET", f"{T}/stats?getEarliestTimeInBacklog=true")
        assert (stats["msgInCounter"], stats["msgOutCounter"]) == (12, 12)
        assert stats["storageSize"] == stats["bytesInCounter"] > 0
        (publisher,) = stats["publishers"]
        assert (publisher["producerName"], publisher["producerId"]) == ("prod", 7)
        assert (publisher["accessMode"], publisher["metadata"]) == ("Shared", {"app": "a"})
        subscription = stats["subscriptions"]["s"]
        assert (subscription["type"], subscription["msgBacklog"], subscription["unackedMessages"]) == (
            "Shared",
            12,
            12,
        )
        assert subscription["earliestMsgPublishTimeInBacklog"] == world.door.clock.now_ms()
        assert subscription["backlogSize"] == stats["storageSize"]
        (consumer,) = subscription["consumers"]
        assert (consumer["consumerName"], consumer["metadata"], consumer["availablePermits"]) == (
            "c",
            {"k": "v"},
            88,
        )
        assert (consumer["address"], consumer["clientVersion"]) == ("/127.0.0.1", "test")

    play(scenario)


def test_rates_are_those_of_the_last_interval(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(20)
        assert (await world.ask("GET", f"{T}/stats"))["msgRateIn"] == 0
        world.door.clock.advance(10)
        await world.broker.upkeep.idle()
        stats = await world.ask("GET", f"{T}/stats")
        assert stats["msgRateIn"] == 2
        assert stats["averageMsgSize"] == stats["bytesInCounter"] / 20
        world.door.clock.advance(10)
        await world.broker.upkeep.idle()
        assert (await world.ask("GET", f"{T}/stats"))["msgRateIn"] == 0

    play(scenario)


def test_a_kafka_group_is_a_subscription_with_its_lag_as_backlog(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(10)
        await world.broker.cursors.commit({CursorKey("group", NAME.full, 0): Cursor(mark_delete=4)})
        stats = (await world.ask("GET", f"{T}/stats"))["subscriptions"]["group"]
        assert (stats["msgBacklog"], stats["type"], stats["consumers"]) == (6, "None", [])
        assert await world.ask("GET", f"{T}/subscriptions") == ["group"]

    play(scenario)


def test_a_partitioned_topic_sums_up(play: Play) -> None:
    async def scenario(world: World) -> None:
        p = "/admin/v2/persistent/public/default/p"
        await world.ask("PUT", f"{p}/partitions", 2, 204)
        await world.ask("PUT", f"{p}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        topic = world.broker.topics.get(TopicName.parse("persistent://public/default/p"))
        await world.publish(3, partition=topic.partition(0))
        await world.publish(4, partition=topic.partition(1))
        stats = await world.ask("GET", f"{p}/partitioned-stats")
        assert (stats["msgInCounter"], stats["metadata"]["partitions"]) == (7, 2)
        assert stats["subscriptions"]["s"]["msgBacklog"] == 7
        names = ["persistent://public/default/p-partition-0", "persistent://public/default/p-partition-1"]
        assert [stats["partitions"][name]["msgInCounter"] for name in names] == [3, 4]
        without = await world.ask("GET", f"{p}/partitioned-stats?perPartition=false")
        assert without["partitions"] == {}
        assert list((await world.ask("GET", f"{p}/partitioned-internalStats"))["partitions"]) == names
        for method, path, status in (
            ("GET", f"{p}/stats", 404),
            ("GET", f"{T}/partitioned-stats", 404),
            ("POST", f"{p}/subscription/s/skip/1", 405),
            ("GET", f"{p}/subscription/s/position/1", 405),
            ("POST", f"{p}/terminate", 405),
            ("POST", f"{T}/terminate/partitions", 405),
        ):
            await world.ask(method, path, status=status)
        await world.ask("POST", f"{p}-partition-0/subscription/s/skip/1", status=204)
        await world.ask("POST", f"{p}/subscription/s/skip_all", status=204)
        assert (await world.ask("GET", f"{p}/partitioned-stats"))["subscriptions"]["s"]["msgBacklog"] == 0
        ends = await world.ask("POST", f"{p}/terminate/partitions")
        assert [(ends[index]["entryId"], ends[index]["partitionIndex"]) for index in "01"] == [(2, 0), (3, 1)]
        assert topic.is_terminated
        await world.ask("DELETE", f"{p}/subscription/s", status=204)
        assert await world.ask("GET", f"{p}/subscriptions") == []

    play(scenario)


def test_message_ids(play: Play) -> None:
    async def scenario(world: World) -> None:
        nothing = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
        assert await world.ask("GET", f"{T}/lastMessageId") == nothing
        assert await world.ask("GET", f"{T}/messageid/0") == nothing
        await world.publish()
        first_ms = world.door.clock.now_ms()
        world.door.clock.advance(10)
        await world.broker.upkeep.idle()
        await world.publish(batch=5)
        last = await world.ask("GET", f"{T}/lastMessageId")
        assert (last["entryId"], last["batchIndex"], last["batchSize"]) == (1, 4, 5)
        for time_ms, entry_id in ((0, 0), (first_ms, 0), (first_ms + 1, 1), (first_ms + 20_000, 2)):
            assert (await world.ask("GET", f"{T}/messageid/{time_ms}"))["entryId"] == entry_id
        internal = await world.ask("GET", f"{T}/internalStats")
        assert internal["lastConfirmedEntry"] == f"{last['ledgerId']}:1"
        assert (internal["numberOfEntries"], internal["nextOffset"]) == (2, 6)
        size = await world.ask("PUT", f"{T}/backlogSize", {"ledgerId": -1, "entryId": -1})
        assert size == internal["totalSize"]
        assert await world.ask("PUT", f"{T}/backlogSize", {"ledgerId": 1 << 62, "entryId": 0}) == 0

    play(scenario)


def test_internal_stats_show_numbers_of_a_cursor_alone(play: Play) -> None:
    """pulsar-admin reads no others, and waits for its answer until it gives up."""

    async def scenario(world: World) -> None:
        await world.publish()
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        await world.ask("PUT", f"{T}/subscription/s/properties", {"k": "v", "n": "1"}, 204)
        subscriptions, partition = world.broker.subscriptions, world.partition
        subscriptions.properties(world.broker.subscription_admin.cursor(partition, "s"))
        cursor = world.broker.subscription_admin.cursor(partition, "s")
        cursor.properties["CompactedTopicLedger"] = "3"
        internal = await world.ask("GET", f"{T}/internalStats")
        shown = internal["cursors"]["s"]["properties"]
        assert shown.pop("CompactedTopicLedger") == 3
        assert all(isinstance(number, int) for number in shown.values())
        assert "v" not in str(shown)

    play(scenario)


def test_messages_are_shown_with_what_they_carry(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        await world.publish(
            partition_key="k", properties=[pb.KeyValue(key="a", value="ä\nb")], event_time=1_700_000_000_000
        )
        await world.publish(batch=2)
        found = await world.ask("GET", f"{T}/subscription/s/position/1")
        assert found.content == b"m1"
        assert found.headers["x-pulsar-partition-key"] == "k"
        assert json.loads(found.headers["x-pulsar-property"]) == {"a": "ä\nb"}
        assert found.headers["x-pulsar-event-time"] == "2023-11-14T22:13:20.000Z"
        ledger, entry = found.headers["x-pulsar-message-id"].split(":")
        again = await world.ask("GET", f"{T}/ledger/{ledger}/entry/{entry}")
        assert again.content == b"m1"
        batch = await world.ask("GET", f"{T}/subscription/s/position/2")
        assert batch.headers["x-pulsar-num-batch-message"] == "2"
        for path in ("subscription/s/position/3", "subscription/nope/position/1", f"ledger/{ledger}/entry/9"):
            await world.ask("GET", f"{T}/{path}", status=404)
        await world.ask("POST", f"{T}/subscription/s/skip/1", status=204)
        assert (await world.ask("GET", f"{T}/subscription/s/position/1")).headers[
            "x-pulsar-num-batch-message"
        ] == "2"

    play(scenario)


def test_subscriptions_are_made_where_they_shall_begin_and_dropped(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(5, batch=2)
        ledger = (await world.ask("GET", f"{T}/lastMessageId"))["ledgerId"]
        latest = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1, "partitionIndex": -1}
        for name, body, backlog in (
            ("plain", None, 0),
            ("latest", latest, 0),
            ("earliest", {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}, 10),
            ("middle", {"ledgerId": ledger, "entryId": 2}, 6),
            ("with%2Fslash", {"ledgerId": ledger, "entryId": 2, "batchIndex": 1}, 5),
            ("behind", {"ledgerId": ledger, "entryId": 2, "excluded": True}, 4),
        ):
            await world.ask("PUT", f"{T}/subscription/{name}", body, 204)
            assert await world.backlog(name.replace("%2F", "/")) == backlog
            await world.ask("PUT", f"{T}/subscription/{name}", body, 409)
        await world.ask("PUT", f"{T}/subscription/x", {"ledgerId": "y"}, 400)
        for name in ("plain", "with%2Fslash"):
            await world.ask("DELETE", f"{T}/subscription/{name}", status=204)
            await world.ask("DELETE", f"{T}/subscription/{name}", status=404)
        assert await world.ask("GET", f"{T}/subscriptions") == ["behind", "earliest", "latest", "middle"]

    play(scenario)


def test_a_subscription_of_a_topic_that_is_not_there_makes_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        new = "/admin/v2/persistent/public/default/new"
        body = {"ledgerId": -1, "entryId": -1, "properties": {"a": "b"}}
        await world.ask("PUT", f"{new}/subscription/s", body, 204)
        assert await world.ask("GET", f"{new}/subscriptions") == ["s"]
        assert await world.ask("GET", f"{new}/subscription/s/properties") == {"a": "b"}
        await world.ask("POST", f"{N}/autoTopicCreation", {"allowAutoTopicCreation": False}, 204)
        await world.ask("PUT", "/admin/v2/persistent/public/default/other/subscription/s", body, 404)

    play(scenario)


@pytest.mark.parametrize("is_connected", [False, True])
def test_subscriptions_are_moved_with_and_without_consumers(play: Play, is_connected: bool) -> None:
    async def scenario(world: World) -> None:
        await world.publish(10)
        ledger = (await world.ask("GET", f"{T}/lastMessageId"))["ledgerId"]
        client = None
        if is_connected:
            client = await world.subscribed(permits=100)
            for _ in range(10):
                await client.hear(BaseCommand.MESSAGE)
        else:
            await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        await world.ask("POST", f"{T}/subscription/s/skip/3", status=204)
        assert await world.backlog() == 7
        await world.ask("POST", f"{T}/subscription/s/expireMessages", {"ledgerId": ledger, "entryId": 5}, 204)
        assert await world.backlog() == 5
        await world.ask("POST", f"{T}/subscription/s/expireMessages", {"ledgerId": ledger, "entryId": 5}, 409)
        await world.ask("POST", f"{T}/subscription/s/expireMessages/60", status=409)
        await world.ask("POST", f"{T}/subscription/s/skip_all", status=204)
        assert await world.backlog() == 0
        if client is not None:
            stats = (await world.ask("GET", f"{T}/stats"))["subscriptions"]["s"]
            assert stats["unackedMessages"] == 0
        await world.ask("POST", f"{T}/subscription/s/resetcursor", {"ledgerId": ledger, "entryId": 4}, 204)
        assert await world.backlog() == 6
        if client is not None:
            await client.hear(BaseCommand.CLOSE_CONSUMER)
        world.door.clock.advance(100)
        await world.broker.upkeep.idle()
        await world.publish(2)
        await world.ask("POST", f"{T}/all_subscription/expireMessages/50", status=204)
        assert await world.backlog() == 2
        await world.ask("POST", f"{T}/all_subscription/expireMessages/50", status=409)
        await world.ask("POST", f"{T}/subscription/s/resetcursor/0", status=204)
        assert await world.backlog() == 12
        for path in ("skip/1", "skip_all", "expireMessages/1", "resetcursor/0"):
            await world.ask("POST", f"{T}/subscription/nope/{path}", status=404)

    play(scenario)


def test_skipping_counts_what_is_left_between_acknowledged_messages(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(10)
        cursor = Cursor(mark_delete=1, holds_data=True)
        cursor.ack_individual([(2, 4), (6, 7)])
        await world.broker.cursors.commit({CursorKey("s", NAME.full, 0): cursor})
        for count, left in ((2, 4), (1, 3), (0, 3), (100, 0)):
            await world.ask("POST", f"{T}/subscription/s/skip/{count}", status=204)
            assert await world.backlog() == left

    play(scenario)


def test_what_has_consumers_is_dropped_by_force_only(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await world.subscribed()
        refused = await world.ask("DELETE", f"{T}/subscription/s", status=412)
        assert refused["reason"] == "Subscription has active connected consumers"
        refused = await world.ask("DELETE", T, status=412)
        assert refused["reason"] == "Topic has 1 connected producers/consumers"
        await world.ask("DELETE", f"{T}/subscription/s?force=true", status=204)
        await client.hear(BaseCommand.CLOSE_CONSUMER)
        client = await world.subscribed()
        await world.ask("DELETE", f"{T}?force=true", status=204)
        await client.hear(BaseCommand.CLOSE_CONSUMER)
        await world.ask("GET", f"{T}/stats", status=404)

    play(scenario)


@pytest.mark.parametrize("path", [f"{T}/unload", f"{N}/unload"])
def test_unloading_sends_clients_away_and_keeps_positions(play: Play, path: str) -> None:
    async def scenario(world: World) -> None:
        client = await world.subscribed(permits=10)
        await client.ask(
            pb.CommandProducer(topic=NAME.full, producer_id=7, request_id=2), BaseCommand.PRODUCER_SUCCESS
        )
        await world.publish(2)
        message = await client.hear(BaseCommand.MESSAGE)
        client.say(
            pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message.message_id])
        )
        await world.ask("PUT", path, status=204)
        kinds = {kind for kind, _, _ in client.received}
        assert {BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER} <= kinds
        assert await world.backlog() == 1
        assert world.broker.subscriptions.of(world.partition) == []

    play(scenario)


def test_a_bundle_is_unloaded_by_its_boundaries(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await world.subscribed()
        where = (await world.ask("GET", "/lookup/v2/topic/persistent/public/default/t/bundle")).text
        bundles = [
            "0x00000000_0x40000000",
            "0x40000000_0x80000000",
            "0x80000000_0xc0000000",
            "0xc0000000_0xffffffff",
        ]
        assert where in bundles
        for bundle in bundles:
            if bundle != where:
                await world.ask("PUT", f"{N}/{bundle}/unload", status=204)
        assert world.broker.connected_clients(world.broker.topics.get(NAME)) == 1
        await world.ask("PUT", f"{N}/{where}/unload", status=204)
        await client.hear(BaseCommand.CLOSE_CONSUMER)
        await world.ask("PUT", f"{N}/0x00000000_0x10000000/unload", status=412)
        await world.ask("PUT", "/admin/v2/namespaces/public/nope/unload", status=404)

    play(scenario)


def test_a_terminated_topic_takes_no_more(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(3)
        assert (await world.ask("POST", f"{T}/terminate"))["entryId"] == 2
        assert world.broker.topics.get(NAME).is_terminated
        await world.ask("POST", "/admin/v2/persistent/public/default/nope/terminate", status=404)

    play(scenario)


def test_truncating_removes_everything(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(3)
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        await world.broker.cursors.commit({CursorKey("group", NAME.full, 0): Cursor(mark_delete=1)})
        await world.ask("DELETE", f"{T}/truncate", status=204)
        stats = await world.ask("GET", f"{T}/stats")
        assert [stats["subscriptions"][name]["msgBacklog"] for name in ("s", "group")] == [0, 0]
        assert world.partition.log.log_start == 3
        await world.publish(1)
        assert await world.backlog() == 1

    play(scenario)


def test_the_backlogs_of_a_namespace_are_cleared_and_subscriptions_dropped(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(3)
        for name in ("s", "other"):
            await world.ask("PUT", f"{T}/subscription/{name}", {"ledgerId": -1, "entryId": -1}, 204)
        await world.ask("POST", f"{N}/clearBacklog/s", status=204)
        assert (await world.backlog("s"), await world.backlog("other")) == (0, 3)
        await world.ask("POST", f"{N}/clearBacklog", status=204)
        assert await world.backlog("other") == 0
        await world.ask("POST", f"{N}/unsubscribe/other", status=204)
        assert await world.ask("GET", f"{T}/subscriptions") == ["s"]

    play(scenario)


def test_non_persistent_topics_have_stats_and_no_messages(play: Play) -> None:
    async def scenario(world: World) -> None:
        np = "/admin/v2/non-persistent/public/default/n"
        await world.ask("PUT", np, status=204)
        client = await world.door.connected()
        command = pb.CommandSubscribe(
            topic="non-persistent://public/default/n",
            subscription="s",
            subType=pb.CommandSubscribe.Shared,
            consumer_id=1,
            request_id=1,
        )
        await client.ask(command, BaseCommand.SUCCESS)
        topic = world.broker.topics.get(TopicName.parse("non-persistent://public/default/n"))
        await world.publish(4, partition=topic.partition(0))
        stats = await world.ask("GET", f"{np}/stats")
        assert (stats["msgInCounter"], stats["storageSize"]) == (4, 0)
        assert stats["subscriptions"]["s"]["type"] == "Shared"
        assert len(stats["subscriptions"]["s"]["consumers"]) == 1
        assert await world.ask("GET", f"{np}/subscriptions") == ["s"]
        await world.ask("PUT", f"{np}/subscription/other", status=412)
        await world.ask("POST", f"{np}/subscription/s/skip_all", status=404)
        assert await world.ask("GET", "/admin/v2/non-persistent/public/default") == [
            "non-persistent://public/default/n"
        ]
        await world.ask("DELETE", np, status=412)
        await world.ask("DELETE", f"{np}?force=true", status=204)

    play(scenario)


def test_numbers_that_are_none_or_too_large_are_answered(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        await world.publish(1, event_time=(1 << 64) - 1)
        huge = 1 << 70
        shown = await world.ask("GET", f"{T}/subscription/s/position/1")
        assert shown.headers["x-pulsar-event-time"].startswith("9999-12-31")
        for method, path, status in (
            ("POST", "subscription/s/skip/x", 400),
            ("GET", f"ledger/1/entry/{huge}", 404),
            ("GET", f"ledger/{huge}/entry/0", 404),
            ("GET", "ledger/-5/entry/-7", 404),
            ("GET", f"messageid/{huge}", 200),
            ("GET", "subscription/s/position/-3", 404),
            ("POST", f"subscription/s/expireMessages/{huge}", 409),
            ("POST", f"subscription/s/resetcursor/{huge}", 204),
            ("POST", "subscription/s/resetcursor/-5", 204),
            ("POST", f"subscription/s/skip/{huge}", 204),
            ("PUT", "subscription/", 412),
        ):
            await world.ask(method, f"{T}/{path}", status=status)
        for method, path, status in (("GET", "/nope", 404), ("PATCH", T, 405)):
            assert "reason" in await world.ask(method, path, status=status)

    play(scenario)


def test_metrics_have_pulsars_names_and_true_numbers(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await world.subscribed("s", permits=100)
        producer = pb.CommandProducer(topic=NAME.full, producer_id=7, request_id=2)
        await client.ask(producer, BaseCommand.PRODUCER_SUCCESS)
        await world.publish(20)
        for _ in range(20):
            await client.hear(BaseCommand.MESSAGE)
        world.door.clock.advance(10)
        await world.broker.upkeep.idle()
        shown = (await world.ask("GET", "/metrics")).text
        labels = f'namespace="public/default",topic="{NAME.full}"'
        lines = {
            "pulsar_producers_count": "1.0",
            "pulsar_consumers_count": "1.0",
            "pulsar_rate_in": "2.0",
            "pulsar_rate_out": "2.0",
            "pulsar_in_messages_total": "20.0",
            "pulsar_storage_size": f"{float(world.partition.log.size_bytes)}",
        }
        for name, number in lines.items():
            assert f"{name}{{{labels}}} {number}" in shown
        labels = f'namespace="public/default",subscription="s",topic="{NAME.full}"'
        assert f"pulsar_subscription_back_log{{{labels}}} 20.0" in shown

    play(scenario)
