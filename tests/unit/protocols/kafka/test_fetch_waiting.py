"""A fetch that waits costs what has come, and only where it has come."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from magnetar.broker.log.producer_recovery import Uncertain
from magnetar.broker.security.model import ANONYMOUS, Caller
from magnetar.broker.topics.model import NewTopic
from magnetar.protocols.kafka import fetch_look
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.fetch_waiting import WAIT_MS_MAX, FetchWaiting
from magnetar.protocols.kafka.handlers import fetch as handler
from magnetar.protocols.kafka.registry import Deferred
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic

Run = Callable[..., None]
WIDTH = 40


def asked(partitions: range, *, min_bytes: int = 1, max_wait_ms: int = 60_000, **more: Any) -> FetchRequest:
    rows = [FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20) for index in partitions]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic("wide", partitions=rows)],
        **more,
    )


async def topic_of(client: Any) -> Any:
    broker = client.broker
    name = broker.kafka_topics.name("wide")
    await broker.topics.create([broker.topics.plan(NewTopic(name, WIDTH))])
    topic = broker.topics.get(name)
    for index in range(WIDTH):
        topic.partition(index)
    return topic


def handle(client: Any, request: FetchRequest) -> Any:
    nodes = client.broker.nodes
    node = nodes.by_id[nodes.controller_id]
    context = RequestContext(
        client.service,
        client.broker.cases,
        Caller(ANONYMOUS, "127.0.0.1"),
        node,
        "PLAINTEXT",
        1,
        "127.0.0.1",
        "127.0.0.1",
        12,
        "test",
        False,
        client.broker.cases.quotas.meter(Caller(ANONYMOUS, "127.0.0.1"), "test"),
    )
    return handler.handle(context, request)


def begin(client: Any, request: FetchRequest) -> Deferred:
    """The handler's answer, which is expected to wait."""
    answer = handle(client, request)
    assert isinstance(answer, Deferred)
    return answer


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The partitions that fetches which wait have looked at."""
    found: list[Any] = []
    count_in = FetchWaiting._count_in

    def noted(self: FetchWaiting, partition: Any) -> bool:
        found.append(partition)
        return count_in(self, partition)

    monkeypatch.setattr(FetchWaiting, "_count_in", noted)
    return found


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_an_append_costs_waiting_fetches_nothing_but_a_look_at_its_own_partition(
    with_broker: Run, counted: list[Any]
) -> None:
    # Every fetch of every connection looked at all of its partitions again with each append.
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        waiting = [begin(client, asked(range(WIDTH), min_bytes=1 << 19)) for _ in range(20)]
        elsewhere = [begin(client, asked(range(1, WIDTH), min_bytes=1 << 19)) for _ in range(20)]
        assert len(client.service.fetches_waiting) == 40
        assert not counted, "an empty partition is not looked at"
        for _ in range(3):
            await client.append(topic.partition(0), 5)
            await turns()
        assert set(counted) == {topic.partition(0)}
        assert len(counted) == 3 * 20, "once for each fetch that names it, and each round of appends"
        for one in waiting + elsewhere:
            assert not one.resolved
            assert one.abandon is not None
            one.abandon()
        assert not client.service.fetches_waiting
        assert not any(topic.partition(index).waiters for index in range(WIDTH))

    with_broker(scenario)


def test_an_answer_costs_a_look_only_where_something_has_happened(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both the first look and that for the answer made a row of each partition, and the wait an object.
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        looked: list[int] = []
        look_at = handler._Fetch._look_at

        def noted(self: Any, target: Any) -> None:
            looked.append(target.partition)
            look_at(self, target)

        monkeypatch.setattr(handler._Fetch, "_look_at", noted)
        one = begin(client, asked(range(WIDTH)))
        assert looked == list(range(WIDTH))
        looked.clear()
        for index in (9, 4):
            await client.append(topic.partition(index), 5)
        await turns()
        assert one.resolved
        assert set(looked) <= {4, 9}
        got: list[Any] = []
        one.attach(got.append)
        rows = {row.partition_index: row for row in got[0].responses[0].partitions}
        assert rows.keys() == set(range(WIDTH)), "without a session a client is told of all that it names"
        assert rows[9].records
        assert [rows[index].high_watermark for index in (8, 9)] == [0, 5]
        assert not any(topic.partition(index).waiters for index in range(WIDTH))

    with_broker(scenario)


@pytest.mark.parametrize("in_turns", [False, True])
def test_what_is_not_at_its_end_is_looked_at_again_for_the_answer(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, in_turns: bool
) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        if in_turns:
            monkeypatch.setattr(handler, "ELEMENTS_AT_ONCE", 10)
        await client.append(topic.partition(3), 5)
        one = begin(client, asked(range(WIDTH), min_bytes=1 << 19))
        await client.service.tasks.ended()
        assert not one.resolved
        assert one.hurry is not None
        one.hurry()
        await client.service.tasks.ended()
        got: list[Any] = []
        one.attach(got.append)
        response = getattr(got[0], "response", got[0])
        assert [row.partition_index for row in response.responses[0].partitions if row.records] == [3]
        assert len(response.responses[0].partitions) == WIDTH

    with_broker(scenario)


def test_a_reader_of_committed_records_at_an_end_that_is_uncertain_is_told_so(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        partition = topic.partition(0)
        request = asked(range(1), max_wait_ms=0, isolation_level=1)
        (row,) = handle(client, request).responses[0].partitions
        assert (row.error_code, row.aborted_transactions) == (ErrorCode.NONE, [])
        partition.uncertain = Uncertain(0, 0, "an entry cannot be read", damaged_at=0)
        (row,) = handle(client, request).responses[0].partitions
        assert row.error_code == ErrorCode.CORRUPT_MESSAGE

    with_broker(scenario)


def test_a_partition_under_two_names_is_read_from_both_offsets(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        await client.append(topic.partition(0), 5)
        request = asked(range(1), min_bytes=1 << 19)
        again = FetchPartition(0, fetch_offset=5, partition_max_bytes=1 << 20)
        request.topics.insert(0, FetchTopic("public/default/wide", partitions=[again]))
        one = begin(client, request)
        await client.append(topic.partition(0), 5)
        await turns()
        assert one.hurry is not None
        one.hurry()
        got: list[Any] = []
        one.attach(got.append)
        sizes = {of.topic: sum(map(len, of.partitions[0].records)) for of in got[0].responses}
        assert sizes["wide"] == 2 * sizes["public/default/wide"] > 0

    with_broker(scenario)


def test_very_small_batches_are_answered_by_number_also_where_more_bytes_are_asked_for(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_look, "ENTRIES_MAX", 7)

    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        for index in range(3):
            for _ in range(4):
                await client.append(topic.partition(index), 1)
        answer = handle(client, asked(range(WIDTH), min_bytes=1 << 20))
        counts = [len(row.records) for topic in answer.responses for row in topic.partitions if row.records]
        assert counts == [4, 3], "the third partition has its turn next time"

    with_broker(scenario)


def test_a_fetch_that_waits_goes_on_when_as_many_batches_are_there_as_are_sent_at_once(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_look, "ENTRIES_MAX", 7)

    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        waiting = begin(client, asked(range(WIDTH), min_bytes=1 << 20))
        for index in range(2):
            for _ in range(3):
                await client.append(topic.partition(index), 1)
        await turns()
        assert not waiting.resolved
        await client.append(topic.partition(2), 1)
        await turns()
        assert waiting.resolved

    with_broker(scenario)


def test_bytes_are_counted_over_partitions_and_rounds_until_there_are_enough(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        await client.append(topic.partition(3), 10)
        size = topic.partition(3).log.read_cached(0, 1 << 20, 10)[0].payload.nbytes
        first = begin(client, asked(range(WIDTH), min_bytes=3 * size))
        greedy = begin(client, asked(range(WIDTH), min_bytes=3 * size + 1))
        await client.append(topic.partition(3), 10)
        await turns()
        assert not first.resolved
        await client.append(topic.partition(7), 10)
        await turns()
        assert first.resolved
        assert not greedy.resolved
        assert greedy.hurry is not None
        greedy.hurry()
        for one in (first, greedy):
            got: list[Any] = []
            one.attach(got.append)
            rows = {row.partition_index: row for row in got[0].responses[0].partitions}
            assert {index for index, row in rows.items() if row.records} == {3, 7}
            assert sum(map(len, rows[3].records)) == 2 * size
        assert not client.service.fetches_waiting

    with_broker(scenario)


def test_a_fetch_that_waits_keeps_no_entry_in_memory(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        await client.append(topic.partition(0), 10)
        one = begin(client, asked(range(WIDTH), min_bytes=1 << 19))
        await turns()
        fetch = one.hurry.__self__  # type: ignore[union-attr]
        assert not fetch._found
        assert one.abandon is not None
        one.abandon()

    with_broker(scenario)


def test_min_bytes_are_at_most_what_a_response_may_have(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        one = begin(client, asked(range(1), min_bytes=1 << 30))
        for _ in range(40):
            await client.append(topic.partition(0), 60)
        assert not one.resolved
        request = asked(range(1), min_bytes=1 << 30)
        request.max_bytes = 1000
        two = begin(client, request)
        await turns()
        assert two.resolved
        assert one.abandon is not None
        one.abandon()

    with_broker(scenario)


def test_a_wait_of_weeks_ends_after_minutes(with_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(client: Any) -> None:
        await topic_of(client)
        delays: list[float] = []
        call_later = client.broker.clock.call_later

        def noted(delay_s: float, callback: Any, *args: Any) -> Any:
            delays.append(delay_s)
            return call_later(delay_s, callback, *args)

        monkeypatch.setattr(client.broker.clock, "call_later", noted)
        one = begin(client, asked(range(WIDTH), max_wait_ms=2**31 - 1))
        assert delays == [WAIT_MS_MAX / 1000]
        assert one.abandon is not None
        one.abandon()

    with_broker(scenario)


def test_a_partition_that_has_all_that_counts_of_it_is_not_watched_any_more(
    with_broker: Run, counted: list[Any]
) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        request = asked(range(2), min_bytes=1 << 19)
        for row in request.topics[0].partitions:
            row.partition_max_bytes = 10
        one = begin(client, request)
        for _ in range(3):
            await client.append(topic.partition(0), 5)
            await turns()
        assert counted == [topic.partition(0)]
        assert not one.resolved
        assert one.abandon is not None
        one.abandon()

    with_broker(scenario)


def test_a_partition_that_is_named_many_times_is_watched_once(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        request = asked(range(1))
        request.topics[0].partitions *= 1000
        one = begin(client, request)
        assert len(topic.partition(0).waiters) == 1
        assert one.abandon is not None
        one.abandon()

    with_broker(scenario)


def test_deletion_and_removed_records_wake_waiting_fetches(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        one = begin(client, asked(range(WIDTH), min_bytes=1 << 19))
        topic.partition(5).close()
        await turns()
        assert one.resolved
        two = begin(client, asked(range(5), min_bytes=1 << 19))
        await client.append(topic.partition(0), 5)
        await topic.partition(0).log.trim(log_start=5)
        await client.append(topic.partition(0), 5)
        await turns()
        assert two.resolved

    with_broker(scenario)


def test_a_large_fetch_does_not_wait_while_no_request_is_handled(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What it holds would keep others waiting, and it is not among those that are asked to hurry.
    monkeypatch.setattr(handler, "ELEMENTS_AT_ONCE", 10)

    async def scenario(client: Any) -> None:
        await topic_of(client)
        memory = client.service.memory
        memory.take(memory.bytes_max + 1)
        deferred = begin(client, asked(range(WIDTH)))
        await client.service.tasks.ended()
        assert deferred.resolved
        memory.give(memory.bytes_max + 1)

    with_broker(scenario)


def test_a_topic_that_goes_while_a_large_fetch_looks_at_it_is_told_so(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It was UNKNOWN_SERVER_ERROR with a traceback, and the next client that had fetches hurry lost its connection.
    async def scenario(client: Any) -> None:
        await topic_of(client)
        collect = handler._Fetch._collect_in_turns
        gone = DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000)

        async def then_gone(fetch: Any) -> None:
            monkeypatch.undo()
            await collect(fetch)
            assert (await client.ask("delete_topics", 5, gone)).responses[0].error_code == 0

        monkeypatch.setattr(handler._Fetch, "_collect_in_turns", then_gone)
        monkeypatch.setattr(handler, "ELEMENTS_AT_ONCE", 10)
        deferred = begin(client, asked(range(WIDTH)))
        await client.service.tasks.ended()
        assert deferred.resolved
        answers: list[Any] = []
        deferred.attach(answers.append)
        response = getattr(answers[0], "response", answers[0])
        assert response.error_code == 0
        codes = {row.error_code for one in response.responses for row in one.partitions}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not client.service.fetches_waiting

    with_broker(scenario)


@pytest.mark.parametrize(("largest", "at_once"), [(1 << 20, 16), (12 << 20, 1), (100 << 20, 1)])
def test_cold_partitions_are_read_as_their_greatest_entries_leave_room(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, largest: int, at_once: int
) -> None:
    # 32 were, each for an entry at least: 340 MiB were read, of which 12 were sent.
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        for index in range(WIDTH):
            await client.append(topic.partition(index), 1)
        monkeypatch.setattr(type(topic.partition(0).log), "read_cached", lambda *_: None)
        topic.config = replace(topic.config, max_message_bytes=largest)
        read_cold = handler._Fetch._read_cold
        counts: list[int] = []

        async def noted(fetch: Any, rows: list[Any]) -> None:
            counts.append(len(rows))
            await read_cold(fetch, rows)

        monkeypatch.setattr(handler._Fetch, "_read_cold", noted)
        response = await handle(client, asked(range(WIDTH), max_wait_ms=0))
        rows = [row for one in response.responses for row in one.partitions]
        assert len(rows) == WIDTH
        assert all(row.records for row in rows)
        assert counts[0] == at_once
        assert sum(counts) == WIDTH
        assert client.service.memory.used == 0

    with_broker(scenario)


@pytest.mark.parametrize(("largest", "counts"), [(1 << 20, 1 << 20), (1 << 30, 1 / 16)])
def test_the_batch_that_is_sent_in_any_case_counts_while_it_is_read(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, largest: int, counts: float
) -> None:
    # Forty clients that read what was not cached held 12 MiB more than the limit of 64.
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        await client.append(topic.partition(0), 1)
        monkeypatch.setattr(type(topic.partition(0).log), "read_cached", lambda *_: None)
        topic.config = replace(topic.config, max_message_bytes=largest)
        memory = client.service.memory
        memory.take(memory.bytes_max)
        reading = [handle(client, asked(range(1), max_wait_ms=0)) for _ in range(3)]
        one = counts if counts > 1 else int(counts * memory.bytes_max)
        assert memory.used == memory.bytes_max + 3 * one
        for read in reading:
            response = await read
            assert response.responses[0].partitions[0].records
        assert memory.used == memory.bytes_max

    with_broker(scenario)


def test_fetches_are_answered_until_requests_are_handled_again(with_broker: Run) -> None:
    # Four of them were, those that had waited longest, however little they held.
    async def scenario(client: Any) -> None:
        await topic_of(client)
        waiting = [begin(client, asked(range(1))) for _ in range(12)]
        memory = client.service.memory
        memory.take(memory.bytes_max + 1)
        client.service.answer_waiting_fetches()
        for _ in range(200):
            if all(one.resolved for one in waiting):
                break
            await asyncio.sleep(0.01)
        assert all(one.resolved for one in waiting)
        memory.give(memory.bytes_max + 1)

    with_broker(scenario)
