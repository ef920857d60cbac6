"""Pulsar's topic compaction over HTTP, by its threshold, and what of it the other upkeep leaves alone."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.exposition import render
from magnetar.base.metrics import Metrics
from magnetar.broker.compaction.beside import SUBSCRIPTION
from magnetar.broker.compaction.errors import CompactionRunning
from magnetar.broker.security.model import ANONYMOUS, Caller
from magnetar.wire.compaction import latest
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, ServerError
from tests.unit.circles import error_stays

from .world import NAME, N, Scenario, T, World, run

Play = Callable[[Scenario], None]
NEVER = {
    "lastCompactionRemovedEventCount": 0,
    "lastCompactionSucceedTimestamp": 0,
    "lastCompactionFailedTimestamp": 0,
    "lastCompactionDurationTimeInMills": 0,
}


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


async def ended(world: World) -> None:
    await asyncio.wait_for(world.broker.beside._tasks.ended(), 20)


async def status(world: World, path: str = T) -> Any:
    return (await world.ask("GET", f"{path}/compaction"))["status"]


def test_a_refused_compaction_leaves_no_circle(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def running(partition: object) -> None:
        raise CompactionRunning("Compaction already in progress")

    async def scenario(world: World) -> None:
        monkeypatch.setattr(world.broker.beside, "start", running)
        cases = world.broker.cases.topic_state
        caller = Caller(ANONYMOUS, "10.0.0.1")
        assert not await error_stays(CompactionRunning, lambda: cases.compact(caller, NAME.full))

    play(scenario)


def test_a_topic_is_compacted_when_asked_and_says_how_that_went(play: Play) -> None:
    async def scenario(world: World) -> None:
        assert await world.ask("GET", f"{T}/compaction") == {"status": "NOT_RUN", "lastError": ""}
        assert (await world.ask("GET", f"{T}/stats"))["compaction"] == NEVER
        for key in ("a", "b", "a"):
            await world.publish(partition_key=key)
        await world.ask("PUT", f"{T}/compaction", status=204)
        assert await status(world) == "RUNNING"
        refused = await world.ask("PUT", f"{T}/compaction", status=409)
        assert refused["reason"] == "Compaction already in progress"
        await ended(world)
        assert await world.ask("GET", f"{T}/compaction") == {"status": "SUCCESS", "lastError": ""}
        stats = await world.ask("GET", f"{T}/stats")
        now_ms = world.door.clock.now_ms()
        assert stats["compaction"] == {
            **NEVER,
            "lastCompactionRemovedEventCount": 1,
            "lastCompactionSucceedTimestamp": now_ms,
        }
        assert stats["subscriptions"][SUBSCRIPTION]["msgBacklog"] == 0
        assert stats["subscriptions"][SUBSCRIPTION]["type"] == "Exclusive"
        await world.publish(partition_key="c")
        stats = await world.ask("GET", f"{T}/stats")
        assert stats["subscriptions"][SUBSCRIPTION]["msgBacklog"] == 1
        internal = await world.ask("GET", f"{T}/internalStats")
        compacted = world.partition.log.compacted
        assert compacted is not None
        assert internal["compactedLedger"] == {
            "ledgerId": compacted.ledger_id,
            "entries": 2,
            "size": compacted.size_bytes,
            "offloaded": False,
            "underReplicated": False,
        }
        assert internal["cursors"][SUBSCRIPTION]["properties"] == {
            "CompactedTopicLedger": compacted.ledger_id
        }
        assert internal["numberOfEntries"] == 4, "the log is as it was"

    play(scenario)


def test_what_fails_is_said(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(partition_key="a")
        world.broker.compactor.close()
        await world.ask("PUT", f"{T}/compaction", status=204)
        await ended(world)
        found = await world.ask("GET", f"{T}/compaction")
        assert found == {"status": "ERROR", "lastError": "the server stops"}
        stats = (await world.ask("GET", f"{T}/stats"))["compaction"]
        assert stats["lastCompactionFailedTimestamp"] == world.door.clock.now_ms()
        assert stats["lastCompactionSucceedTimestamp"] == 0

    play(scenario)


def test_partitions_are_compacted_together_and_each_says_how_it_went(play: Play) -> None:
    async def scenario(world: World) -> None:
        path = "/admin/v2/persistent/public/default/p"
        await world.ask("PUT", f"{path}/partitions", 2, 204)
        await world.ask("PUT", f"{path}/compaction", status=204)
        await ended(world)
        await world.ask("GET", f"{path}/compaction", status=404)
        for index in range(2):
            assert await status(world, f"{path}-partition-{index}") == "SUCCESS"
        await world.ask("PUT", f"{path}-partition-1/compaction", status=204)
        await world.ask("PUT", f"{path}/compaction", status=409)
        assert await status(world, f"{path}-partition-0") == "RUNNING", "the other one begins all the same"
        await ended(world)
        stats = await world.ask("GET", f"{path}/partitioned-stats")
        assert stats["compaction"] == NEVER, "as Pulsar"

    play(scenario)


def test_topics_that_are_not_there_or_store_nothing_are_not_compacted(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", "/admin/v2/non-persistent/public/default/n", status=204)
        for path in ("persistent/public/default/none", "non-persistent/public/default/n"):
            for method in ("PUT", "GET"):
                await world.ask(method, f"/admin/v2/{path}/compaction", status=404)

    play(scenario)


def test_a_threshold_begins_a_run_once_as_much_has_come(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(5, partition_key="a")
        size = world.partition.log.size_bytes
        thresholds = world.broker.thresholds
        await thresholds.run_once()
        assert (await world.ask("GET", f"{T}/subscriptions"), await status(world)) == ([], "NOT_RUN")
        await world.ask("PUT", f"{N}/compactionThreshold", size, 204)
        await thresholds.run_once()
        assert await world.ask("GET", f"{T}/subscriptions") == [SUBSCRIPTION], "nothing goes from now on"
        assert await status(world) == "NOT_RUN"
        await world.publish(partition_key="a")
        await thresholds.run_once()
        await ended(world)
        assert await status(world) == "SUCCESS"
        compacted = world.partition.log.compacted
        assert compacted is not None
        assert compacted.end == 6
        await world.publish(3, partition_key="a")
        await thresholds.run_once()
        await ended(world)
        assert world.partition.log.compacted is compacted
        await world.ask("POST", f"{T}/compactionThreshold", 1, 204)
        await thresholds.run_once()
        await thresholds.run_once()  # under way
        await ended(world)
        assert world.partition.log.compacted is not compacted
        await world.ask("POST", f"{T}/compactionThreshold", 0, 204)
        before = world.partition.log.compacted
        await world.publish(9, partition_key="a")
        await thresholds.run_once()
        await ended(world)
        assert world.partition.log.compacted is before, "0 is for never"

    play(scenario)


def test_a_threshold_is_set_shown_and_removed(play: Play) -> None:
    async def scenario(world: World) -> None:
        for path, method in ((N, "PUT"), (T, "POST")):
            threshold = f"{path}/compactionThreshold"
            assert (await world.ask("GET", threshold)).content == b""
            await world.ask(method, threshold, -1, 412)
            await world.ask(method, threshold, 5, 204)
            assert await world.ask("GET", threshold) == 5
        await world.ask("DELETE", f"{T}/compactionThreshold", status=204)
        assert await world.ask("GET", f"{T}/compactionThreshold?applied=true") == 5
        await world.ask("DELETE", f"{N}/compactionThreshold", status=204)
        assert (await world.ask("GET", f"{N}/compactionThreshold")).content == b""

    play(scenario)


def test_without_a_policy_the_brokers_threshold_holds(play: Play) -> None:
    async def scenario(world: World) -> None:
        beside = world.broker.beside
        beside.settings = replace(beside.settings, threshold_bytes=1)
        await world.publish(partition_key="a")
        await world.ask("PUT", f"{N}/compactionThreshold", 0, 204)
        await world.broker.thresholds.run_once()
        assert await status(world) == "NOT_RUN"
        await world.ask("DELETE", f"{N}/compactionThreshold", status=204)
        await world.broker.thresholds.run_once()
        await ended(world)
        assert await status(world) == "SUCCESS"

    play(scenario)


def test_thresholds_are_looked_at_again_and_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        jobs = {job.name: job for job in world.broker.upkeep.jobs}
        assert jobs["compaction thresholds"]._interval_s == 60

    play(scenario)


def test_expiry_leaves_what_is_not_compacted_and_unused_subscriptions_are_others(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(3, partition_key="a")
        await world.ask("PUT", f"{T}/compaction", status=204)
        await ended(world)
        await world.publish(2, partition_key="a")
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        await world.ask("POST", f"{N}/messageTTL", 60, 204)
        await world.ask("POST", f"{N}/subscriptionExpirationTime", 1, 204)
        world.door.clock.advance(100)
        await world.broker.housekeeping.run_once()
        assert await world.ask("GET", f"{T}/subscriptions") == [SUBSCRIPTION]
        assert await world.backlog(SUBSCRIPTION) == 2

    play(scenario)


def test_readers_of_what_is_compacted_hear_where_its_last_message_is(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(partition_key="a")
        await world.publish(partition_key="b")
        await world.publish(partition_key="b", null_value=True)
        await world.ask("PUT", f"{T}/compaction", status=204)
        await ended(world)
        client = await world.subscribed(kind=pb.CommandSubscribe.Exclusive, read_compacted=True)
        answer = await client.ask(
            pb.CommandGetLastMessageId(consumer_id=1, request_id=9), BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE
        )
        assert answer.last_message_id.entryId == 0
        plain = await world.subscribed("other", kind=pb.CommandSubscribe.Exclusive)
        answer = await plain.ask(
            pb.CommandGetLastMessageId(consumer_id=1, request_id=9), BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE
        )
        assert answer.last_message_id.entryId == 2
        client.say(
            pb.CommandSeek(
                consumer_id=1,
                request_id=10,
                message_id=pb.MessageIdData(ledgerId=answer.last_message_id.ledgerId, entryId=1),
            )
        )
        await client.hear(BaseCommand.SUCCESS)
        cursor = world.broker.subscription_admin.cursor(world.partition, "s")
        assert cursor.mark_delete == 2, "the first one that is left at or behind it, or the end of those"

    play(scenario)


def test_the_numbers_are_those_of_kafkas_compaction(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(3, partition_key="a")
        await world.ask("PUT", f"{T}/compaction", status=204)
        await ended(world)
        metrics = Metrics()
        world.broker.cases.metrics.declare(metrics)
        text = render(metrics).decode()
        assert "magnetar_compaction_runs_total 1" in text
        assert "magnetar_compaction_removed_records_total 2" in text
        assert "magnetar_compaction_left_bytes 0" in text

    play(scenario)


def test_shared_consumers_do_not_read_what_is_compacted(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await world.door.connected()
        command = pb.CommandSubscribe(
            topic=NAME.full,
            subscription="s",
            subType=pb.CommandSubscribe.Shared,
            consumer_id=1,
            request_id=1,
            read_compacted=True,
        )
        error = await client.ask(command, BaseCommand.ERROR)
        assert error.error == ServerError.NotAllowedError

    play(scenario)
