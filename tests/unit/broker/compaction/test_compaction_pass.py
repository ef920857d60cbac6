"""When a log is compacted, and how far."""

import asyncio
from typing import Any

import pytest

from magnetar.base.errors import EntryCorrupt
from magnetar.base.settings_compaction import CompactionSettings
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.model import NewTopic
from magnetar.ledger.tombstones import ROOT as TOMBSTONES_ROOT
from tests.unit.broker.compaction.keyed import kafka_batch
from tests.unit.broker.test_producer_state import settle
from tests.unit.broker.test_topics import NAME, World

HOUR_S = 3600


class Compacted(World):
    """A broker that looks every second, and a topic of one partition whose every entry is a ledger of its own."""

    is_on = True

    async def start(self) -> Broker:
        settings = BrokerSettings(compaction=CompactionSettings(is_on=self.is_on, interval_ms=1000))
        self.broker = Broker(settings, self.store, self.metadata, self.clock, Nodes([Node(1)]))
        await self.broker.start()
        await settle()
        return self.broker

    async def begin(self, **config: str) -> Any:
        broker = await self.start()
        configs = {
            "cleanup.policy": "compact",
            **{name.replace("_", "."): text for name, text in config.items()},
        }
        await broker.topics.create([broker.topics.plan(NewTopic(NAME, 1, configs=configs))])
        self.partition = broker.topics.get(NAME).partition(0)
        self.partition.log.limits.entry_count_max = 1
        return self.partition.log

    async def send(
        self, key: bytes, value: bytes | None = b"v", producer: tuple[int, int, int] = (-1, -1, -1)
    ) -> None:
        now_ms = self.clock.now_ms()
        batch = kafka_batch([(key, value)], [now_ms], producer=producer)
        self.partition.append(batch, now_ms, lambda error: None)
        await settle()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for _ in range(20):
            await self.broker.upkeep.idle()
            await settle()

    async def offsets(self) -> list[int]:
        log = self.partition.log
        found, offset = [], log.log_start
        while offset < log.high_watermark:
            for entry in await log.read(offset, 1 << 20):
                found.append(entry.base_offset)
                offset = entry.last_offset + 1
        return found


def run(scenario: Any) -> None:
    asyncio.run(scenario())


def test_a_log_is_compacted_when_enough_of_it_is_dirty() -> None:
    async def scenario() -> None:
        world = Compacted()
        log = await world.begin(min_cleanable_dirty_ratio="0.5")
        for number in range(10):
            await world.send(b"%d" % (number % 3))
        await world.pass_time(2)
        assert await world.offsets() == [7, 8, 9]
        assert log.cleaned == 10
        await world.send(b"1")
        await world.pass_time(2)
        assert await world.offsets() == [7, 8, 9, 10], "a quarter of it is dirty"
        for _ in range(3):
            await world.send(b"2")
        await world.pass_time(2)
        assert await world.offsets() == [9, 10, 13]
        assert world.broker.compactor.counts.runs == 2
        assert world.broker.compactor.counts.removed_records == 7 + 4
        assert world.broker.compactor.counts.won_bytes > 0
        assert world.broker.compactor.left_bytes == 0
        assert not await world.metadata.scan(TOMBSTONES_ROOT)
        assert set(world.store.ledgers) == set(log.stored_ids)
        await world.broker.stop()

    run(scenario)


def test_what_is_younger_than_the_least_lag_is_left_alone_and_what_is_behind_it() -> None:
    async def scenario() -> None:
        world = Compacted()
        await world.begin(min_compaction_lag_ms=str(HOUR_S * 1000), min_cleanable_dirty_ratio="0")
        await world.send(b"a")
        await world.send(b"a")
        world.clock.advance(HOUR_S / 2)
        await world.send(b"a")
        await world.pass_time(HOUR_S / 4)
        assert await world.offsets() == [0, 1, 2]
        await world.pass_time(HOUR_S / 2)
        assert await world.offsets() == [1, 2]
        await world.pass_time(HOUR_S)
        assert await world.offsets() == [2]
        await world.broker.stop()

    run(scenario)


def test_what_is_older_than_the_greatest_lag_is_compacted_whatever_its_share_and_the_open_ledger_is_closed() -> (
    None
):
    async def scenario() -> None:
        world = Compacted()
        log = await world.begin(min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=str(HOUR_S * 1000))
        log.limits.entry_count_max = 100
        await world.send(b"a")
        await world.send(b"a")
        await world.pass_time(HOUR_S - 60)
        assert await world.offsets() == [0, 1]
        await world.pass_time(120)
        await world.pass_time(2)
        assert await world.offsets() == [1]
        await world.broker.stop()

    run(scenario)


def test_tombstones_go_once_they_were_kept_for_long_enough_and_the_log_is_compacted_again() -> None:
    async def scenario() -> None:
        world = Compacted()
        await world.begin(delete_retention_ms=str(HOUR_S * 1000), min_cleanable_dirty_ratio="0")
        await world.send(b"a")
        await world.send(b"a", None)
        await world.send(b"b")
        await world.pass_time(2)
        assert await world.offsets() == [1, 2]
        await world.pass_time(HOUR_S - 60)
        await world.send(b"b")
        await world.pass_time(2)
        assert await world.offsets() == [1, 3]
        await world.pass_time(120)
        await world.send(b"b")
        await world.pass_time(2)
        assert await world.offsets() == [4]
        await world.broker.stop()

    run(scenario)


def test_nothing_is_compacted_where_it_is_off_or_the_topic_is_not_to_be() -> None:
    async def scenario() -> None:
        for is_on, policy in ((False, "compact"), (True, "delete")):
            world = Compacted()
            world.is_on = is_on
            await world.begin(cleanup_policy=policy, min_cleanable_dirty_ratio="0")
            await world.send(b"a")
            await world.send(b"a")
            await world.pass_time(100)
            assert await world.offsets() == [0, 1]
            await world.broker.stop()

    run(scenario)


def test_both_policies_compact_and_drop_what_is_too_old() -> None:
    async def scenario() -> None:
        world = Compacted()
        log = await world.begin(
            cleanup_policy="compact,delete", retention_ms=str(HOUR_S * 1000), min_cleanable_dirty_ratio="0"
        )
        for key in (b"a", b"a", b"b"):
            await world.send(key)
        await world.pass_time(2)
        assert await world.offsets() == [1, 2]
        world.clock.advance(HOUR_S / 2)
        await world.send(b"c")
        await world.pass_time(HOUR_S * 3 / 4)
        assert await world.offsets() == [3]
        assert log.log_start == 3
        await world.broker.stop()

    run(scenario)


def test_a_run_goes_no_further_than_producers_are_remembered() -> None:
    """Else a start would read sequences from batches that are not there any more."""

    async def scenario() -> None:
        world = Compacted()
        await world.begin(min_cleanable_dirty_ratio="0")
        for sequence in range(3):
            await world.send(b"a", producer=(7, 0, sequence))
        world.metadata.fail_next = 1  # the snapshot that would be stored now
        await world.pass_time(1)
        assert await world.offsets() == [0, 1, 2]
        await world.pass_time(2)
        assert await world.offsets() == [2]
        known = world.partition.known_producers
        await world.crash()
        world.partition = world.broker.topics.get(NAME).partition(0)
        assert (
            [one.last_sequence for one in world.partition.known_producers]
            == [2]
            == [one.last_sequence for one in known]
        )
        await world.broker.stop()

    run(scenario)


def test_a_log_that_cannot_be_read_is_left_alone_until_that_part_of_it_has_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world = Compacted()
        log = await world.begin(cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0")
        await world.send(b"a")
        await world.send(b"a")
        run_once = Compactor.run

        async def damaged(*arguments: Any) -> None:
            raise EntryCorrupt("an entry is damaged")

        monkeypatch.setattr(Compactor, "run", damaged)
        await world.pass_time(3)
        await world.pass_time(3)
        assert caplog.text.count("because it cannot read it") == 1
        assert world.broker.compaction.damaged_count == 1
        monkeypatch.setattr(Compactor, "run", run_once)
        await world.send(b"a")
        await world.pass_time(3)
        assert await world.offsets() == [0, 1, 2]
        await log.trim(log_start=1)
        await world.pass_time(3)
        assert await world.offsets() == [2]
        assert world.broker.compaction.damaged_count == 0
        await world.broker.stop()

    run(scenario)
