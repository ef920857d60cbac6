"""The three rules of what may be dropped, as a table and on a broker whose days pass."""

import asyncio
from typing import Any

import pytest

from magnetar.broker.policy.model import Retention
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.broker.upkeep.retention import TrimLimits, trim_limits
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey

from .pulsar_entries import sent
from .test_producer_state import settle
from .test_topics import NAME, World

DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS
DEFAULTS = TopicDefaults({})
HELD = 40

TABLE = [
    # given for the topic, Pulsar's policy (ms, bytes), held from -> (ms, bytes, held from) or nothing
    pytest.param({}, None, None, (WEEK_MS, -1, None), id="default: seven days"),
    pytest.param({}, None, HELD, (WEEK_MS, -1, HELD), id="default with a subscription: seven days of what it read"),
    pytest.param({"retention.ms": "-1"}, None, HELD, None, id="Kafka without limits"),
    pytest.param({"retention.bytes": "5"}, None, HELD, (WEEK_MS, 5, HELD), id="Kafka's size"),
    pytest.param({"cleanup.policy": "compact"}, (0, 0), HELD, None, id="compacted topics keep all"),
    pytest.param({}, (0, 0), HELD, (-1, 0, HELD, True), id="nothing is kept once acknowledged"),
    pytest.param({}, (0, 0), None, (WEEK_MS, -1, None), id="nothing was acknowledged: the limits decide"),
    pytest.param({"retention.ms": "-1"}, (0, 0), None, None, id="nothing was acknowledged, and no limits"),
    pytest.param({}, (-1, -1), None, None, id="for ever: the default does not apply"),
    pytest.param({}, (-1, -1), HELD, None, id="for ever, with a subscription"),
    pytest.param({"retention.ms": "9"}, (-1, -1), None, (9, -1, None), id="for ever, but the topic has its limit"),
    pytest.param({}, (DAY_MS, -1), None, (DAY_MS, -1, None), id="a day"),
    pytest.param({}, (30 * DAY_MS, -1), HELD, (30 * DAY_MS, -1, HELD), id="longer than the default"),
    pytest.param({}, (-1, 500), None, (-1, 500, None), id="by size alone"),
    pytest.param({}, (DAY_MS, 500), HELD, (DAY_MS, 500, HELD), id="whichever comes first"),
    pytest.param({"retention.ms": "9"}, (DAY_MS, 500), HELD, (9, 500, HELD), id="the topic's own limit is stricter"),
    pytest.param({"retention.bytes": "900"}, (DAY_MS, 500), HELD, (DAY_MS, 500, HELD), id="the policy is stricter"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "policy", "held_from", "expected"), TABLE)
def test_what_may_go(
    given: dict[str, str],
    policy: tuple[int, int] | None,
    held_from: int | None,
    expected: tuple[Any, ...] | None,
) -> None:
    retention = None if policy is None else Retention(*policy)
    found = trim_limits(DEFAULTS.config(given), given, retention, held_from)
    assert found == (None if expected is None else TrimLimits(*expected))


class Days(World):
    """A topic whose every entry is a ledger of its own."""

    async def begin(self) -> None:
        broker = await self.start()
        await self.create()
        self.partition = broker.topics.get(NAME).partition(0)
        self.partition.log.limits.entry_count_max = 1

    async def publish(self, count: int = 1) -> None:
        for _ in range(count):
            view = sent(published_ms=self.clock.now_ms())
            self.partition.publish(view.data, view, self.clock.now_ms(), lambda error: None)
            await settle()

    async def subscribe(self, name: str, mark_delete: int, *, holds_data: bool = True) -> None:
        key = CursorKey(name, NAME.full, 0)
        await self.broker.cursors.commit({key: Cursor(mark_delete, holds_data=holds_data)})

    async def pass_days(self, days: float) -> int:
        """Where the log starts so many days later."""
        self.clock.advance(days * 24 * 3600)
        await self.broker.retention.run_once()
        await settle()
        return self.partition.log.log_start


def test_acknowledging_does_not_make_a_default_topic_lose_anything_within_seven_days() -> None:
    async def scenario() -> None:
        world = Days()
        await world.begin()
        await world.publish(5)
        await world.subscribe("sub", 5)
        await world.subscribe("group", 5, holds_data=False)
        assert await world.pass_days(6.9) == 0
        assert await world.pass_days(0.2) == 5
        await world.broker.stop()

    asyncio.run(scenario())


def test_what_a_pulsar_subscription_has_not_acknowledged_stays_and_a_kafka_group_holds_nothing() -> None:
    async def scenario() -> None:
        world = Days()
        await world.begin()
        await world.publish(5)
        await world.subscribe("slow", 2)
        await world.subscribe("fast", 4)
        await world.subscribe("group", 0, holds_data=False)
        assert await world.pass_days(30) == 2
        await world.subscribe("slow", 5)
        assert await world.pass_days(0) == 4
        await world.broker.cursors.drop([CursorKey("fast", NAME.full, 0)])
        assert await world.pass_days(0) == 5
        await world.broker.stop()

    asyncio.run(scenario())


def test_a_policy_without_retention_drops_what_is_acknowledged() -> None:
    async def scenario() -> None:
        world = Days()
        await world.begin()
        zero = {"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}}
        await world.broker.namespaces.change(NAME.namespace_name, lambda _: zero)
        await world.publish(5)
        assert await world.pass_days(0.1) == 0, "nothing is acknowledged"
        await world.subscribe("sub", 3)
        assert await world.pass_days(0) == 3
        await world.subscribe("sub", 5)
        assert await world.pass_days(0) == 5
        world.partition.log.limits.entry_count_max = 100
        await world.publish(2)
        await world.subscribe("sub", 7)
        await world.publish()
        assert await world.pass_days(0) == 5, "the open ledger stays while a subscription wants some of it"
        assert world.partition.log.size_bytes > 0
        await world.subscribe("sub", 8)
        assert await world.pass_days(0) == 8, "an open ledger of which all is acknowledged was never dropped"
        assert world.partition.log.size_bytes == 0
        await world.publish()
        assert (world.partition.log.log_start, world.partition.log.high_watermark) == (8, 9)
        await world.broker.stop()

    asyncio.run(scenario())


def test_the_open_ledger_stays_for_kafkas_limits_of_size() -> None:
    async def scenario() -> None:
        world = Days()
        await world.begin()
        topic = world.broker.topics.get(NAME)
        await world.broker.topics.set_config(topic, {"retention.bytes": "0"})
        await world.publish(2)
        await world.subscribe("sub", 2)
        assert await world.pass_days(0) == 0
        await world.broker.stop()

    asyncio.run(scenario())


def test_a_policy_keeps_what_is_acknowledged_for_longer_than_the_default() -> None:
    async def scenario() -> None:
        world = Days()
        await world.begin()
        month = {"retention_policies": {"retentionTimeInMinutes": 30 * 24 * 60, "retentionSizeInMB": -1}}
        await world.broker.namespaces.change_topic(NAME, lambda _: month)
        await world.publish(3)
        await world.subscribe("sub", 3)
        assert await world.pass_days(29.9) == 0
        assert await world.pass_days(0.2) == 3
        await world.broker.stop()

    asyncio.run(scenario())
