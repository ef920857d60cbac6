"""When a record of a share group is given up: not before its dead letter is durable."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.record_reader import Record, read_records
from magnetar.wire.kafka.records import read_header
from tests.unit.circles import circles_of
from tests.unit.protocols.kafka.share_queue import ACCEPT, REJECT, RELEASE, Queue, short_locks
from tests.unit.protocols.kafka.test_bombs import gated

Run = Callable[..., None]
LETTERS: Final = "persistent://public/default/dlq.t"
ENABLED: Final = {"errors.deadletterqueue.group.enable": "true"}


async def begin(
    client: Any, *sizes: int, copies: bool = True, to: str = "dlq.t", **configs: str
) -> tuple[Queue, Partition]:
    queue = await Queue(client).begin(*sizes)
    broker = client.broker
    await broker.topics.create([broker.topics.plan(NewTopic(TopicName.parse(LETTERS), 1, configs=ENABLED))])
    settings = {
        "share.auto.offset.reset": "earliest",
        "errors.deadletterqueue.topic.name": to,
        "errors.deadletterqueue.copy.record.enable": str(copies).lower(),
    }
    await broker.groups.configs.change("g", settings | configs)
    return queue, broker.topics.get(TopicName.parse(LETTERS)).partition(0)


async def letters(partition: Partition) -> list[Record]:
    entries = await partition.log.read(0, 1 << 20) if partition.log.high_watermark else []
    return [record for entry in entries for record in read_records(entry.payload, read_header(entry.payload))]


def offsets(found: list[Record]) -> list[bytes | None]:
    return [dict(record.headers)["__dlq.errors.offset"] for record in found]


@pytest.mark.timeout(60)
def test_a_record_is_nobodys_until_its_dead_letter_is_durable(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue, target = await begin(client, 2)
        assert await queue.fetch("m") == [(0, 1, 1)]
        gate = gated(client)
        await gate.close(2)  # no record is read for a copy
        answer = asyncio.ensure_future(queue.acknowledge("m", [(0, 0, [REJECT]), (1, 1, [RELEASE])]))
        assert await queue.fetch("n") == [(1, 1, 2)]
        assert not answer.done()
        assert await letters(target) == []
        queue.epochs["m"] += 1  # of the request that waits
        assert await queue.acknowledge("m", [(0, 0, [ACCEPT])]) == ErrorCode.INVALID_RECORD_STATE
        gate.open.set()
        assert await answer == ErrorCode.NONE
        (letter,) = await letters(target)
        assert (await queue.stored()).mark_delete == 1
        (record, _) = await letters(queue.partition)
        assert (letter.key, letter.value) == (record.key, record.value)
        assert await queue.acknowledge("n", [(1, 1, [ACCEPT])]) == ErrorCode.NONE
        assert (await queue.stored()).mark_delete == 2

    with_broker(scenario)


@pytest.mark.timeout(60)
def test_a_lock_that_is_over_once_too_often_has_a_dead_letter(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue, target = await begin(client, 1, copies=False, **{"share.delivery.count.limit": "2"})
        assert await queue.fetch("m") == [(0, 0, 1)]
        assert await queue.fetch("n", max_wait_ms=10_000) == [(0, 0, 2)]
        while not (found := await letters(target)):  # noqa: ASYNC110 - a timer of the server's ends that
            await asyncio.sleep(0.01)
        assert offsets(found) == [b"0"]
        assert (
            dict(found[0].headers)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
        )
        assert await queue.fetch("n") == []

    with_broker(scenario, groups=short_locks(100))


def test_what_cannot_be_stored_stays_the_groups(with_broker: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Any) -> None:
        queue, target = await begin(client, 1, copies=False)
        assert await queue.fetch("m") == [(0, 0, 1)]
        target.close()  # as a log that failed
        assert await queue.acknowledge("m", [(0, 0, [REJECT])]) == ErrorCode.NONE
        assert await queue.fetch("m") == [(0, 0, 1)]
        assert "keeps records whose dead letters were not stored" in caplog.text

    with_broker(scenario)


def test_a_letter_that_cannot_be_stored_leaves_no_circle(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue, target = await begin(client, 1, copies=False)
        assert await queue.fetch("m") == [(0, 0, 1)]
        target.close()

        async def live() -> None:
            assert await queue.acknowledge("m", [(0, 0, [REJECT])]) == ErrorCode.NONE
            assert await queue.fetch("m") == [(0, 0, 1)]

        assert not await circles_of(live)

    with_broker(scenario)


@pytest.mark.timeout(60)
def test_letters_of_a_large_batch_leave_turns_to_others(with_broker: Run) -> None:
    """A batch comes whole, and may have a million records: each of them is a letter."""

    async def scenario(client: Any) -> None:
        queue, target = await begin(client, 60, 60, copies=False)
        assert await queue.fetch("m", max_records=120) == [(0, 119, 1)]
        answer = asyncio.ensure_future(queue.acknowledge("m", [(0, 119, [REJECT])]))
        at_once: list[int] = []
        while not answer.done():
            before = target.log.next_offset
            await asyncio.sleep(0)
            at_once.append(target.log.next_offset - before)
        assert await answer == ErrorCode.NONE
        assert target.log.next_offset == 120
        assert max(at_once) <= 100

    with_broker(scenario)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("public/other/dlq.t", ""),
        ("acme/sales/dlq.t", "another tenant's"),
        ("public/other/t", "does not begin with dlq."),
        ("non-persistent://public/default/dlq.t", "stores nothing"),
    ],
)
def test_letters_stay_in_their_tenant(
    with_broker: Run, caplog: pytest.LogCaptureFixture, name: str, problem: str
) -> None:
    """Who sets up a group may be of another tenant than those whose records it gives up."""

    async def scenario(client: Any) -> None:
        queue, _ = await begin(client, 1, to=name)
        topics, named = client.broker.topics, TopicName.parse(name)
        await topics.create([topics.plan(NewTopic(named, 1, configs=ENABLED))])
        assert await queue.fetch("m") == [(0, 0, 1)]
        assert await queue.acknowledge("m", [(0, 0, [REJECT])]) == ErrorCode.NONE
        assert topics.get(named).partition(0).log.next_offset == (0 if problem else 1)
        assert problem in caplog.text

    with_broker(scenario)
