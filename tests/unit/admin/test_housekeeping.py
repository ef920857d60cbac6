"""What time does to topics: TTL, backlog quotas, inactive topics, unused subscriptions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.errors import ProducersHeld, ProducersRefused
from magnetar.broker.log.backlog import backlog_bytes, offset_leaving
from magnetar.broker.upkeep.housekeeping import INTERVAL_S
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, ServerError

from .world import NAME, N, Scenario, T, World, run

Play = Callable[[Scenario], None]
EARLIEST = {"ledgerId": -1, "entryId": -1}


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


async def passes(world: World, seconds: float = 0.0) -> None:
    """Let time pass and one pass of housekeeping be made."""
    world.door.clock.advance(seconds)
    await world.broker.housekeeping.run_once()


def test_messages_older_than_their_ttl_are_acknowledged_for_subscriptions_that_hold_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", EARLIEST, 204)
        await world.broker.cursors.commit({CursorKey("group", NAME.full, 0): Cursor()})
        await world.publish(2)
        world.door.clock.advance(30)
        await world.publish(3)
        await passes(world, 31)
        assert await world.backlog() == 5  # no policy, nothing happens
        await world.ask("POST", f"{N}/messageTTL", 60, 204)
        await passes(world)
        assert (await world.backlog("s"), await world.backlog("group")) == (3, 5)
        stats = (await world.ask("GET", f"{T}/stats"))["subscriptions"]
        assert (stats["s"]["totalMsgExpired"], stats["group"]["totalMsgExpired"]) == (2, 0)
        await passes(world, 1000)
        assert await world.backlog() == 0
        await world.publish(1)
        await passes(world)
        assert await world.backlog() == 1

    play(scenario)


def test_ttl_works_for_subscriptions_with_consumers(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await world.subscribed(permits=1)
        await world.publish(3)
        await client.hear(BaseCommand.MESSAGE)
        await world.ask("POST", f"{T}/messageTTL?messageTTL=5", status=204)
        await passes(world, 6)
        stats = (await world.ask("GET", f"{T}/stats"))["subscriptions"]["s"]
        assert (stats["msgBacklog"], stats["unackedMessages"]) == (0, 0)
        client.say(pb.CommandFlow(consumer_id=1, messagePermits=5))
        await world.publish(1)
        assert (await client.hear_entry(BaseCommand.MESSAGE))[1].endswith(b"m4")

    play(scenario)


def test_it_happens_by_itself(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", EARLIEST, 204)
        await world.publish(2)
        await world.ask("POST", f"{N}/messageTTL", 1, 204)
        for _ in range(2):
            world.door.clock.advance(INTERVAL_S)
            await world.broker.upkeep.idle()
        assert await world.backlog() == 0

    play(scenario)


def quota(action: str, **limits: int) -> dict[str, Any]:
    return {"policy": action, **limits}


@pytest.mark.parametrize(
    ("action", "error", "refusal"),
    [
        ("producer_request_hold", ServerError.ProducerBlockedQuotaExceededError, ProducersHeld),
        ("producer_exception", ServerError.ProducerBlockedQuotaExceededException, ProducersRefused),
    ],
)
def test_producers_are_turned_away_while_the_backlog_is_too_large(
    play: Play, action: str, error: int, refusal: type[Exception]
) -> None:
    async def scenario(world: World) -> None:
        client = await world.door.connected()
        producer = pb.CommandProducer(topic=NAME.full, producer_id=1, request_id=1)
        await client.ask(producer, BaseCommand.PRODUCER_SUCCESS)
        await world.ask("PUT", f"{T}/subscription/s", EARLIEST, 204)
        await world.ask("POST", f"{T}/backlogQuota", quota(action, limitSize=200), 204)
        await passes(world)
        await world.publish(10)
        await passes(world)
        await client.hear(BaseCommand.CLOSE_PRODUCER)
        assert (await client.ask(producer, BaseCommand.ERROR)).error == error
        with pytest.raises(refusal):
            await world.publish(1)
        with pytest.raises(refusal):  # a Kafka client's batch is not even looked at
            world.partition.append(memoryview(bytearray(100)), world.door.clock.now_ms(), lambda _: None)
        await world.ask("POST", f"{T}/subscription/s/skip_all", status=204)
        await client.ask(producer, BaseCommand.PRODUCER_SUCCESS)  # room is seen at once by who asks
        await world.publish(1)

    play(scenario)


def test_a_backlog_may_be_too_old(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", EARLIEST, 204)
        path = f"{T}/backlogQuota?backlogQuotaType=message_age"
        await world.ask("POST", path, quota("producer_exception", limitTime=60), 204)
        await world.publish(1)
        await passes(world, 59)
        assert world.partition.refused_with is None
        await passes(world, 2)
        assert world.partition.refused_with is ProducersRefused
        await world.ask("DELETE", path, status=204)
        await passes(world)
        assert world.partition.refused_with is None

    play(scenario)


def test_what_is_too_much_or_too_old_is_evicted(play: Play) -> None:
    async def scenario(world: World) -> None:
        for name in ("s", "other"):
            await world.ask("PUT", f"{T}/subscription/{name}", EARLIEST, 204)
        await world.publish(100)
        await world.ask("POST", f"{T}/subscription/other/skip/95", status=204)
        size = world.partition.log.size_bytes
        await world.ask(
            "POST", f"{T}/backlogQuota", quota("consumer_backlog_eviction", limitSize=size // 2), 204
        )
        await passes(world)
        left = await world.backlog("s")
        assert 40 <= left <= 45
        assert await world.backlog("other") == 5
        await passes(world)
        assert await world.backlog("s") == left
        path = f"{T}/backlogQuota?backlogQuotaType=message_age"
        await world.ask("POST", path, quota("consumer_backlog_eviction", limitTime=60), 204)
        world.door.clock.advance(50)
        await world.publish(3)
        await passes(world, 20)
        assert (await world.backlog("s"), await world.backlog("other")) == (3, 3)
        assert world.partition.refused_with is None

    play(scenario)


def test_a_backlog_of_kafka_groups_alone_has_no_quota(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.broker.cursors.commit({CursorKey("group", NAME.full, 0): Cursor()})
        await world.ask("POST", f"{T}/backlogQuota", quota("producer_exception", limitSize=1), 204)
        await world.publish(10)
        await passes(world)
        assert world.partition.refused_with is None

    play(scenario)


def test_the_size_of_a_backlog_is_shared_out_over_ledgers(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(10)
        log = world.partition.log
        assert backlog_bytes(log, 0) == log.size_bytes
        assert backlog_bytes(log, 5) == round(log.size_bytes / 2)
        assert backlog_bytes(log, 10) == 0
        assert offset_leaving(log, log.size_bytes) == 0
        assert offset_leaving(log, log.size_bytes // 2) in (5, 6)
        assert offset_leaving(log, 0) == 10

    play(scenario)


def test_an_inactive_topic_is_deleted_only_where_that_is_asked_for_and_it_is_empty(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", "/admin/v2/persistent/public/default/full", status=204)
        full = world.broker.topics.get(TopicName.parse("persistent://public/default/full"))
        await world.publish(1, partition=full.partition(0))
        await passes(world, 1000)
        await passes(world, 1000)
        names = await world.ask("GET", "/admin/v2/persistent/public/default")
        assert len(names) == 2
        rule = {"deleteWhileInactive": True, "maxInactiveDurationSeconds": 60}
        await world.ask("POST", f"{N}/inactiveTopicPolicies", rule, 204)
        client = await world.subscribed()
        await passes(world)
        await passes(world, 100)
        assert world.broker.topics.find(NAME) is not None  # it has a client
        client.leave()
        await world.ask("DELETE", f"{T}/subscription/s?force=true", status=204)
        await passes(world)
        await passes(world, 59)
        assert world.broker.topics.find(NAME) is not None
        await passes(world, 1)
        assert await world.ask("GET", "/admin/v2/persistent/public/default") == [full.name.full]

    play(scenario)


@pytest.mark.parametrize(
    ("mode", "stays"),
    [("delete_when_no_subscriptions", True), ("delete_when_subscriptions_caught_up", False)],
)
def test_subscriptions_keep_a_topic_or_do_not(play: Play, mode: str, stays: bool) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", EARLIEST, 204)
        rule = {
            "deleteWhileInactive": True,
            "maxInactiveDurationSeconds": 60,
            "inactiveTopicDeleteMode": mode,
        }
        await world.ask("POST", f"{T}/inactiveTopicPolicies", rule, 204)
        await passes(world)
        await passes(world, 60)
        assert (world.broker.topics.find(NAME) is not None) is stays

    play(scenario)


def test_unused_subscriptions_are_dropped_where_that_is_asked_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await world.subscribed("used")
        await world.ask("PUT", f"{T}/subscription/unused", EARLIEST, 204)
        now_ms = world.door.clock.now_ms()
        await world.broker.cursors.commit(
            {CursorKey("group", NAME.full, 0): Cursor(commit_timestamp_ms=now_ms)}
        )
        for _ in range(4):
            await passes(world, 20)
            client.say(pb.CommandPing())
        assert len(await world.ask("GET", f"{T}/subscriptions")) == 3
        await world.ask("POST", f"{N}/subscriptionExpirationTime", 1, 204)
        await passes(world)
        assert await world.ask("GET", f"{T}/subscriptions") == ["group", "used"]
        assert not client.is_closed

    play(scenario)


def test_an_unused_subscription_counts_from_when_its_last_consumer_left(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("POST", f"{N}/subscriptionExpirationTime", 1, 204)
        client = await world.subscribed("s")
        for _ in range(10):  # connected, and nothing to acknowledge
            await passes(world, 20)
            client.say(pb.CommandPing())
        for _ in range(3):  # time without a pass
            world.door.clock.advance(20)
            client.say(pb.CommandPing())
        await client.ask(pb.CommandCloseConsumer(consumer_id=1, request_id=2), BaseCommand.SUCCESS)
        await passes(world, 50)
        assert await world.ask("GET", f"{T}/subscriptions") == ["s"]
        await passes(world, 20)
        assert await world.ask("GET", f"{T}/subscriptions") == []

    play(scenario)


def test_that_a_subscription_is_in_use_is_stored_for_a_start_after_a_kill(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("POST", f"{N}/subscriptionExpirationTime", 1, 204)
        client = await world.subscribed("s")
        for _ in range(30):
            await passes(world, 10)
            await world.broker.upkeep.idle()
            client.say(pb.CommandPing())
        stored = CursorStore(world.broker.metadata, identity=world.broker.topics.identity)
        await stored.load()
        cursor = stored.get(CursorKey("s", NAME.full, 0))
        assert cursor is not None
        assert world.door.clock.now_ms() - cursor.commit_timestamp_ms <= 20_000

    play(scenario)
