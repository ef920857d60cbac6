"""Requests and answers of very many elements are worked on in pieces, and come out as if they were not."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.memory_budget import MemoryBudget
from magnetar.broker.security.model import ANONYMOUS
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.protocols.kafka import fetch_sessions
from magnetar.protocols.kafka.fetch_sessions import FetchSessions
from magnetar.protocols.kafka.large import ELEMENTS_PER_TURN, Large, LargeMessages, Pieces, cut
from magnetar.testing.clock import FakeClock
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.header import encode_request_header
from magnetar.wire.kafka.messages import asking, fetch, list_offsets, metadata, offset_fetch
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from magnetar.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.runtime import Buffer
from tests.unit.protocols.kafka.wire import Wire, create, until

Run = Callable[..., None]
WIDTH = 2_500


def test_a_request_is_cut_where_it_has_many_elements() -> None:
    rows = [ListOffsetsPartition(index) for index in range(2 * ELEMENTS_PER_TURN)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("a", rows[:10]), ListOffsetsTopic("b", rows)])
    pieces = list(cut(request, Pieces("topics", "partitions", "topics")))
    assert all(size <= ELEMENTS_PER_TURN + 1 for size, _ in pieces)
    assert len(pieces) == 3
    joined = [(topic.name, row) for _, piece in pieces for topic in piece.topics for row in topic.partitions]
    assert joined == [("a", row) for row in rows[:10]] + [("b", row) for row in rows]
    assert [size for size, _ in cut(ListOffsetsRequest(), Pieces("topics", "partitions", "topics"))] == [0]


def test_a_request_of_a_quarter_of_a_million_elements_is_answered_in_turns(with_broker: Run) -> None:
    # Three of them held the event loop for four seconds.
    async def scenario(client: Any) -> None:
        await create(client, "wide", 3)
        wire = Wire(client)
        count = 5_000
        rows = [ListOffsetsPartition(index, timestamp=-1) for index in range(count)]
        asked = ListOffsetsRequest(topics=[ListOffsetsTopic("wide", rows)])
        answer = await wire.ask(list_offsets, 7, asked)
        found = [row for topic in answer.topics for row in topic.partitions]
        assert [row.partition_index for row in found] == list(range(count))
        assert [row.error_code for row in found[:4]] == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        large = client.service.large
        assert large.turns >= 20
        assert large.elements_in_turn_max <= ELEMENTS_PER_TURN + 1
        wire.session.closed()
        assert client.service.memory.used == 0

    with_broker(scenario)


def test_bad_bytes_in_a_large_request_end_its_connection_without_a_traceback(
    with_broker: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: Any) -> None:
        wire = Wire(client)
        asked = ListOffsetsRequest(topics=[ListOffsetsTopic("t" * 1000, []) for _ in range(100)])
        parts: list[Buffer] = [encode_request_header(list_offsets.API_KEY, 7, 7, "test")]
        asking.load(list_offsets.API_KEY).encode_request(7, asked, parts)
        body = b"".join(parts)[:-500]
        data = len(body).to_bytes(4, "big") + body
        while data:
            buffer = wire.session.get_buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            wire.session.received(count)
            data = data[count:]
        await until(lambda: wire.is_closed)
        assert client.service.memory.used == 0

    with_broker(scenario)
    assert "Traceback" not in caplog.text


def test_a_topic_that_is_named_many_times_is_described_once_and_in_turns(with_broker: Run) -> None:
    # 4 KB that named a topic of 10,000 partitions 200 times held the loop for 7 s, and took 650 MB.
    async def scenario(client: Any) -> None:
        await create(client, "wide", WIDTH)
        await create(client, "narrow", 1)
        wire = Wire(client)
        names = ["wide", "narrow"] * 100 + ["none"]
        request = MetadataRequest(
            [MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        answer = await wire.ask(metadata, 12, request)
        assert [topic.name for topic in answer.topics] == ["wide", "narrow", "none"]
        assert [row.partition_index for row in answer.topics[0].partitions] == list(range(WIDTH))
        assert [row.leader_id for row in answer.topics[1].partitions] == [1]
        assert answer.topics[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert 0 < client.service.large.elements_in_turn_max <= ELEMENTS_PER_TURN
        every = await wire.ask(metadata, 12, MetadataRequest(None))
        assert {topic.name: len(topic.partitions) for topic in every.topics} == {"wide": WIDTH, "narrow": 1}
        many = [MetadataRequestTopic(name=f"n{number}") for number in range(3_000)]
        told = await wire.ask(metadata, 12, MetadataRequest(many, allow_auto_topic_creation=False))
        assert len(told.topics) == 3_000
        wire.session.closed()

    with_broker(scenario)


def test_all_topics_are_listed_in_turns(with_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten thousand of them held the loop for 650 ms.
    from magnetar.protocols.kafka.handlers import metadata as handler

    monkeypatch.setattr(handler, "ELEMENTS_AT_ONCE", 10)

    async def scenario(client: Any) -> None:
        names = [f"n{number}" for number in range(20)]
        for name in names:
            await create(client, name, 2)
        wire = Wire(client)
        for wanted in (None, [MetadataRequestTopic(name=name) for name in names] * 2):
            turns = client.service.large.turns
            every = await wire.ask(metadata, 12, MetadataRequest(wanted))
            assert {topic.name: len(topic.partitions) for topic in every.topics} == dict.fromkeys(names, 2)
            assert len(every.topics) == len(names)
            assert turns + 2 <= client.service.large.turns < turns + len(names), "several topics in each"
        wire.session.closed()

    with_broker(scenario)


def test_the_offsets_of_many_groups_are_fetched_in_turns(with_broker: Run) -> None:
    # Ten thousand groups held the loop for a second.
    async def scenario(client: Any) -> None:
        wire = Wire(client)
        names = [f"group-{number}" for number in range(1_010)]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None) for name in names])
        answer = await wire.ask(offset_fetch, 8, asked)
        assert [(group.group_id, group.error_code) for group in answer.groups] == [
            (name, 0) for name in names
        ]
        assert client.service.large.turns == 21
        wire.session.closed()
        assert client.service.memory.used == 0

    with_broker(scenario)


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize("is_every", [True, False])
def test_very_many_offsets_of_one_group_are_fetched_in_turns_as_they_were_at_one_moment(
    with_broker: Run, version: int, is_every: bool
) -> None:
    # A consumer with 18,000 partitions lost its connection with each OffsetFetch, and never began.
    async def scenario(client: Any) -> None:
        broker, large = client.broker, client.service.large
        await create(client, "wide", WIDTH)
        full = broker.kafka_topics.name("wide").full

        async def commit(offset: int) -> None:
            keys = [CursorKey("g", full, index) for index in range(WIDTH)]
            await broker.cursors.commit({key: Cursor(offset) for key in keys})

        await commit(1)
        names = range(20_000)
        few = None if is_every else [OffsetFetchRequestTopic("wide", list(names))]
        many = None if is_every else [OffsetFetchRequestTopics("wide", partition_indexes=list(names))]
        asked = OffsetFetchRequest("g", few, [OffsetFetchRequestGroup("g", topics=many)])
        wire = Wire(client)
        answering = asyncio.ensure_future(wire.ask(offset_fetch, version, asked))
        while large.turns < 3:  # noqa: ASYNC110 - of the loop
            await asyncio.sleep(0)
        await commit(2)
        answer = await answering
        (topic,) = answer.topics if version == 7 else answer.groups[0].topics
        found = {row.partition_index: row.committed_offset for row in topic.partitions}
        assert found == {index: 1 if index < WIDTH else -1 for index in (range(WIDTH) if is_every else names)}
        assert len(topic.partitions) == len(found)
        assert large.turns > len(found) // ELEMENTS_PER_TURN - 1
        wire.session.closed()
        assert client.service.memory.used == 0

    with_broker(scenario)


def test_large_requests_wait_for_each_other_and_hold_up_no_other_client(with_broker: Run) -> None:
    # Eight that named a topic 200,000 times took all of the budget for their objects: no request at all was handled.
    async def scenario(client: Any) -> None:
        await create(client, "one", 1)
        memory = client.service.memory = MemoryBudget(4 << 20, client.broker.clock)
        large = [Wire(client) for _ in range(8)]
        small = Wire(client)
        names = [MetadataRequestTopic(name="one")] * 20_000
        for wire in large:
            wire.feed(metadata, 12, MetadataRequest(names))
        await asyncio.sleep(0)
        assert not memory.is_over
        assert memory.objects_used > 0
        assert not memory.has_room_for_objects(1)
        assert len((await small.ask(metadata, 12, MetadataRequest(names[:1]))).topics) == 1
        assert not memory.held_count
        gone = large.pop()
        gone.session.closed()
        await until(lambda: all(wire.bytes for wire in large))
        assert not gone.bytes
        await until(lambda: not client.service.tasks)
        assert memory.objects_used == 0
        assert memory.used == 0

    with_broker(scenario)


def test_a_large_request_whose_client_has_gone_leaves_its_place(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        memory = client.service.memory = MemoryBudget(4 << 20, client.broker.clock)
        wires = [Wire(client) for _ in range(3)]
        async with memory.objects(0, 4 << 20):
            for wire in wires:
                wire.feed(metadata, 12, MetadataRequest([MetadataRequestTopic(name="one")] * 20_000))
            await until(lambda: memory.objects_waiting == 3)
            for wire in wires:
                wire.session.closed()
            await until(lambda: not client.service.tasks)
            assert memory.used == 0
        assert (memory.objects_used, memory.objects_waiting) == (0, 0)
        assert not client.service.request_counts[metadata.API_KEY], "no work is done for them"

    with_broker(scenario)


def test_a_large_request_whose_client_goes_while_it_is_decoded_takes_no_effect(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Any) -> None:
        is_at_work, may_end = threading.Event(), threading.Event()
        decode = client.service.large.decode

        def slowly(work: Any) -> Any:
            def later() -> Any:
                is_at_work.set()
                may_end.wait(10)
                return work()

            return decode(later)

        monkeypatch.setattr(client.service.large, "decode", slowly)
        wire = Wire(client)
        wire.feed(metadata, 12, MetadataRequest([MetadataRequestTopic(name="one")] * 20_000))
        await until(is_at_work.is_set)
        wire.session.closed()
        may_end.set()
        await until(lambda: not client.service.tasks)
        assert not client.service.request_counts[metadata.API_KEY]

    with_broker(scenario)


def test_a_stop_waits_for_the_large_message_at_work_and_for_no_other() -> None:
    async def scenario() -> None:
        large = LargeMessages(time.monotonic)
        begun, go_on = threading.Event(), threading.Event()

        def work() -> str:
            begun.set()
            go_on.wait()
            return "done"

        at_work = asyncio.ensure_future(large.decode(work))
        queued = [asyncio.ensure_future(large.decode(work)) for _ in range(3)]
        await asyncio.to_thread(begun.wait)
        large.close()
        later = asyncio.ensure_future(large.decode(work))
        gone = await asyncio.gather(*queued, later, return_exceptions=True)
        assert [type(one) for one in gone] == [asyncio.CancelledError] * 4
        go_on.set()
        assert await at_work == "done"

    asyncio.run(scenario())


def test_metadata_makes_as_many_topics_as_create_topics_would(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magnetar.protocols.kafka.handlers import metadata as handler

    monkeypatch.setattr(handler, "PARTITIONS_PER_REQUEST_MAX", 10)

    async def scenario(client: Any) -> None:
        names = [MetadataRequestTopic(name=f"n{number}") for number in range(8)]
        answer = await client.ask("metadata", 12, MetadataRequest(names))
        codes = [topic.error_code for topic in answer.topics]
        assert codes == [0] * 5 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
        again = await client.ask("metadata", 12, MetadataRequest(names))
        assert all(topic.error_code == 0 for topic in again.topics)

    with_broker(scenario, partition_count_default=2)


def test_a_fetch_of_very_many_partitions_is_looked_at_in_turns_and_waits(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await create(client, "wide", WIDTH)
        wire = Wire(client)
        rows = [FetchPartition(index, partition_max_bytes=1 << 20) for index in range(WIDTH)]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic("wide", partitions=rows)],
        )
        wire.feed(fetch, 12, request)
        await until(lambda: client.service.fetches_waiting)
        assert client.service.large.elements_in_turn_max == ELEMENTS_PER_TURN
        await client.append(topic.partition(WIDTH - 1), 5)
        await until(lambda: wire.bytes)
        wire.session.closed()

        gone = Wire(client)
        request.min_bytes = 1 << 19
        gone.feed(fetch, 12, request)
        await until(lambda: client.service.fetches_waiting)
        gone.session.closed()
        assert not client.service.fetches_waiting, "who hangs up does not go on waiting"
        await until(lambda: not client.service.tasks)
        assert client.service.memory.used == 0

    with_broker(scenario)


def test_fetch_sessions_remember_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 100)
    clock = FakeClock()
    sessions = FetchSessions(clock, 1000)

    def plan(count: int, session_id: int = 0, epoch: int = 0, first: int = 0) -> Any:
        rows = [FetchPartition(index) for index in range(first, first + count)]
        topics = [FetchTopic("t", partitions=rows)]
        request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)
        return sessions.plan(request, by_id=False, owner=ANONYMOUS)

    first = plan(60)
    assert first.session_id
    assert plan(60).session_id == 0, "it works without a session"
    second = plan(40)
    assert second.session_id
    more = plan(1, second.session_id, 1, first=500)
    assert more.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 1
    clock.advance(fetch_sessions.EVICT_IDLE_S + 1)
    assert plan(100).session_id, "the idle one gives up its place"
    assert len(sessions) == 1


def test_a_request_is_taken_apart_on_the_thread_down_to_its_last_array() -> None:
    async def scenario() -> None:
        topics = [
            OffsetFetchRequestTopics(f"t{number}", partition_indexes=list(range(1000)))
            for number in range(600)
        ]
        groups = [OffsetFetchRequestGroup("g", topics=topics)]
        request = OffsetFetchRequest(groups=groups, topics=None)
        inner = [topic.partition_indexes for topic in topics]
        large = LargeMessages(time.monotonic)
        try:
            large.let_go_of(request)
            await large.work(lambda: None)  # it comes next
        finally:
            large.close()
        assert request.groups == []
        assert topics == []
        assert all(array == [] for array in inner)

    asyncio.run(scenario())


def test_what_was_decoded_for_a_client_that_has_gone_is_taken_apart_on_the_thread() -> None:
    # To free 200,000 objects at once is one step of the interpreter: the event loop stood still for 20 ms.
    async def scenario() -> None:
        topics = [OffsetFetchRequestTopics(f"t{number}") for number in range(600)]
        is_at_work, may_end = threading.Event(), threading.Event()

        def decode() -> OffsetFetchRequest:
            is_at_work.set()
            may_end.wait(10)
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)], topics=None)

        large = LargeMessages(time.monotonic)
        try:
            waiting = asyncio.create_task(large.decode(decode))
            await until(is_at_work.is_set)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            may_end.set()
            await large.work(lambda: None)
            assert topics == []
        finally:
            large.close()

    asyncio.run(scenario())


def test_a_large_response_is_encoded_into_few_parts_and_gone_afterwards() -> None:
    async def scenario() -> None:
        rows = [
            MetadataResponseTopic(ErrorCode.NONE, f"topic-{number}", bytes(16)) for number in range(5_000)
        ]
        response = MetadataResponse(brokers=[], topics=list(rows))
        parts: list[Buffer] = []
        metadata.encode_response(12, response, parts)
        large = LargeMessages(time.monotonic)
        try:
            encoded = await large.encode(metadata.encode_response, 12, Large(response))
            again = await large.encode(
                metadata.encode_response, 12, MetadataResponse(brokers=[], topics=rows)
            )
        finally:
            large.close()
        assert b"".join(encoded.parts) == b"".join(again.parts) == b"".join(parts)
        assert len(encoded.parts) < len(parts) / 100
        assert response.topics == []
        assert len(rows) == 5_000, "a response that is not known to be large may be kept by its handler"

    asyncio.run(scenario())


def test_long_parts_of_a_response_are_not_copied() -> None:
    async def scenario() -> None:
        long = [bytes(10_000) for _ in range(3)]

        def encode(_: int, response: object, parts: list[Buffer]) -> None:
            parts += long

        large = LargeMessages(time.monotonic)
        try:
            encoded = await large.encode(encode, 0, None)
        finally:
            large.close()
        assert [id(part) for part in encoded.parts] == [id(part) for part in long]

    asyncio.run(scenario())
