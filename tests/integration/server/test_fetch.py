"""What a fetch gets, as Kafka's own broker gives it."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

from .wire import (
    Wire,
    fetch_request,
    frame,
    payload,
    produce_request,
    record_batch,
    resident_bytes,
    values_of,
)

MIB = 1 << 20


@pytest.fixture
def wide(topic_name: str, wire: Wire) -> str:
    """A topic of three partitions."""
    name = f"wide-{topic_name}"
    made = wire.ask("create_topics", 7, CreateTopicsRequest([CreatableTopic(name, 3, 1)], 10_000))
    assert made.topics[0].error_code == 0
    return name


def wanted(topic: str, offsets: dict[int, int], **settings: Any) -> FetchRequest:
    """A fetch of several partitions, from these offsets."""
    partitions = [
        FetchPartition(
            index, fetch_offset=offset, partition_max_bytes=settings.get("partition_max_bytes", MIB)
        )
        for index, offset in offsets.items()
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=settings.get("max_wait_ms", 0),
        min_bytes=settings.get("min_bytes", 1),
        max_bytes=settings.get("max_bytes", 50 * MIB),
        session_id=settings.get("session_id", 0),
        session_epoch=settings.get("session_epoch", -1),
        topics=[FetchTopic(topic, partitions=partitions)] if partitions else [],
        forgotten_topics_data=settings.get("forgotten", []),
    )


def rows_of(answer: Any) -> dict[int, Any]:
    return {row.partition_index: row for topic in answer.responses for row in topic.partitions}


def test_an_offset_inside_a_batch_gets_the_whole_batch(wire: Wire, topic: str) -> None:
    wire.produce(topic, record_batch([b"0", b"1", b"2"]))
    wire.produce(topic, record_batch([b"3", b"4"]))
    assert values_of(payload(wire.fetch(topic, 1))) == [b"0", b"1", b"2", b"3", b"4"]
    assert values_of(payload(wire.fetch(topic, 3))) == [b"3", b"4"]
    assert payload(wire.fetch(topic, 5)) == b""


def test_offsets_outside_the_log_are_out_of_range(wire: Wire, topic: str) -> None:
    for _ in range(4):
        wire.produce(topic, record_batch([b"a", b"b"]))
    cut = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 3)])], 1000)
    assert wire.ask("delete_records", 2, cut).topics[0].partitions[0].error_code == 0
    for offset in (-1, 0, 2, 9, 1 << 40):
        row = wire.fetch(topic, offset)
        assert (row.error_code, row.high_watermark, payload(row)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, b"")
    row = wire.fetch(topic, 3)
    assert (row.error_code, row.log_start_offset, row.high_watermark) == (0, 3, 8)
    assert values_of(payload(row))[:2] == [b"a", b"b"]
    assert wire.fetch(topic, 8).error_code == 0


def test_limits_of_bytes_hold_and_the_first_batch_is_sent_whatever_its_size(wire: Wire, wide: str) -> None:
    for index in range(3):
        for _ in range(3):
            wire.produce(wide, record_batch([b"x" * 100_000]), index=index)
    one = len(payload(wire.fetch(wide, 0, partition_max_bytes=1)))
    assert 100_000 < one < 101_000
    assert len(payload(wire.fetch(wide, 0, partition_max_bytes=2 * one))) == 2 * one
    assert len(payload(wire.fetch(wide, 0, partition_max_bytes=3 * one - 1))) == 2 * one
    assert len(payload(wire.fetch(wide, 0, max_bytes=1))) == one
    assert len(payload(wire.fetch(wide, 0, max_bytes=0))) == one
    assert len(payload(wire.fetch(wide, 0, partition_max_bytes=0))) == one

    everything = rows_of(wire.ask("fetch", 12, wanted(wide, {0: 0, 1: 0, 2: 0})))
    assert [len(payload(row)) for row in everything.values()] == [3 * one] * 3
    limited = rows_of(wire.ask("fetch", 12, wanted(wide, {0: 0, 1: 0, 2: 0}, max_bytes=4 * one)))
    assert [len(payload(limited[index])) for index in range(3)] == [3 * one, one, 0]
    tiny = rows_of(wire.ask("fetch", 12, wanted(wide, {0: 0, 1: 0, 2: 0}, partition_max_bytes=10)))
    assert [len(payload(tiny[index])) for index in range(3)] == [one, 0, 0]


def test_a_fetch_waits_for_enough_bytes_or_for_its_time(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    began = time.monotonic()
    assert payload(wire.fetch(topic, 0, max_wait_ms=300)) == b""
    assert 0.25 < time.monotonic() - began < 20

    with Wire(server.ports[0]) as other:
        batch = record_batch([b"x" * 1000])
        wire.send(frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=20_000, min_bytes=2500)))
        began = time.monotonic()
        for _ in range(3):
            other.produce(topic, batch)
        found = wire.answer("fetch", 12).responses[0].partitions[0]
        assert time.monotonic() - began < 10
        assert len(values_of(payload(found))) == 3

        wire.send(frame("fetch", 12, fetch_request(topic, 3, max_wait_ms=500, min_bytes=10_000)))
        other.produce(topic, batch)
        began = time.monotonic()
        found = wire.answer("fetch", 12).responses[0].partitions[0]
        assert 0.3 < time.monotonic() - began < 10
        assert len(values_of(payload(found))) == 1, "what is there when the time is up"


def test_an_error_does_not_wait(wire: Wire, topic: str) -> None:
    began = time.monotonic()
    assert wire.fetch(topic, 99, max_wait_ms=20_000).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (
        wire.fetch(topic, 0, index=7, max_wait_ms=20_000).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert time.monotonic() - began < 10


def test_deleting_a_topic_answers_fetches_that_wait_for_it(
    server: MagnetarProcess, wire: Wire, wide: str
) -> None:
    with Wire(server.ports[0]) as other:
        request = wanted(wide, {0: 0, 1: 0, 2: 0}, max_wait_ms=60_000)
        other.send(frame("fetch", 12, wanted(wide, {0: 0})) + frame("fetch", 12, request))
        other.answer("fetch", 12)
        began = time.monotonic()
        gone = wire.ask("delete_topics", 6, DeleteTopicsRequest([DeleteTopicState(wide)], timeout_ms=10_000))
        assert gone.responses[0].error_code == 0
        rows = rows_of(other.answer("fetch", 12))
        assert time.monotonic() - began < 10
        assert {row.error_code for row in rows.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert wire.produce(wide, record_batch([b"v"])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producers_of_a_topic_that_is_deleted_and_made_again_always_get_an_answer(
    server: MagnetarProcess,
) -> None:
    stop = threading.Event()
    codes: set[int] = set()

    def produce() -> None:
        with Wire(server.ports[0]) as mine:
            number = 0
            while not stop.is_set():
                mine.send(
                    b"".join(
                        frame("produce", 9, produce_request("busy", record_batch([b"v"]))) for _ in range(20)
                    )
                )
                for _ in range(20):
                    answer = mine.answer("produce", 9).responses[0].partition_responses[0]
                    codes.add(answer.error_code)
                number += 1

    threads = [threading.Thread(target=produce) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with Wire(server.ports[0]) as admin:
            for _ in range(30):
                made = admin.ask(
                    "create_topics", 7, CreateTopicsRequest([CreatableTopic("busy", 1, 1)], 10_000)
                )
                assert made.topics[0].error_code == 0, made
                request = DeleteTopicsRequest([DeleteTopicState("busy")], timeout_ms=10_000)
                assert admin.ask("delete_topics", 6, request).responses[0].error_code == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert codes <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR}


def test_two_clients_that_make_one_topic_agree_on_it(server: MagnetarProcess) -> None:
    for round_ in range(10):
        name = f"race-{round_}"
        request = frame("create_topics", 7, CreateTopicsRequest([CreatableTopic(name, 2, 1)], 10_000))
        with Wire(server.ports[0]) as one, Wire(server.ports[0]) as other:
            one.send(request)
            other.send(request)
            codes = sorted(wire.answer("create_topics", 7).topics[0].error_code for wire in (one, other))
        assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_sessions_tell_only_what_is_new(wire: Wire, wide: str) -> None:
    batch = record_batch([b"v"])
    first = wire.ask("fetch", 12, wanted(wide, {0: 0, 1: 0, 2: 0}, session_epoch=0))
    session = first.session_id
    assert session > 0
    assert set(rows_of(first)) == {0, 1, 2}
    nothing = wire.ask("fetch", 12, wanted(wide, {}, session_id=session, session_epoch=1))
    assert (nothing.session_id, rows_of(nothing)) == (session, {})
    wire.produce(wide, batch, index=1)
    news = wire.ask("fetch", 12, wanted(wide, {}, session_id=session, session_epoch=2))
    assert set(rows_of(news)) == {1}
    assert values_of(payload(rows_of(news)[1])) == [b"v"]
    moved = wire.ask("fetch", 12, wanted(wide, {1: 1}, session_id=session, session_epoch=3))
    assert rows_of(moved) == {}
    wire.produce(wide, batch, index=1)
    wire.produce(wide, batch, index=2)
    forgotten = [ForgottenTopic(wide, partitions=[2])]
    left = wire.ask("fetch", 12, wanted(wide, {}, session_id=session, session_epoch=4, forgotten=forgotten))
    assert set(rows_of(left)) == {1}

    wrong = wire.ask("fetch", 12, wanted(wide, {}, session_id=session, session_epoch=4))
    assert (wrong.error_code, wrong.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    unknown = wire.ask("fetch", 12, wanted(wide, {}, session_id=session ^ 1, session_epoch=5))
    assert (unknown.error_code, unknown.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    closed = wire.ask("fetch", 12, wanted(wide, {0: 0}, session_id=session, session_epoch=-1))
    assert (closed.error_code, closed.session_id) == (0, 0)
    gone = wire.ask("fetch", 12, wanted(wide, {}, session_id=session, session_epoch=5))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_read_committed_is_told_of_no_aborted_transactions(wire: Wire, topic: str) -> None:
    wire.produce(topic, record_batch([b"v"]))
    row = wire.fetch(topic, 0, isolation_level=1)
    assert (row.last_stable_offset, row.high_watermark, row.aborted_transactions) == (1, 1, [])
    assert wire.fetch(topic, 0).aborted_transactions is None


@pytest.fixture(scope="module")
def small_cache() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"entry.cache.bytes": str(8 * MIB)}) as running:
        yield running


@pytest.mark.slow
def test_a_lazy_reader_of_what_is_not_cached_is_bounded(small_cache: MagnetarProcess) -> None:
    with Wire(small_cache.ports[0]) as wire, Wire(small_cache.ports[0], receive_buffer=4096) as lazy:
        wire.create("cold")
        for _ in range(60):
            assert wire.produce("cold", record_batch([b"x" * 1_000_000])).error_code == 0
        before = resident_bytes(small_cache)
        lazy.send(b"".join(frame("fetch", 12, fetch_request("cold", 0)) for _ in range(60)))
        peak = before
        began = time.monotonic()
        while time.monotonic() - began < 4:
            row = wire.fetch("cold", 0, partition_max_bytes=MIB)
            assert row.error_code == 0
            peak = max(peak, resident_bytes(small_cache))
        assert peak < before + 500 * MIB, f"{peak - before >> 20} MiB for one reader"
    assert "Traceback" not in small_cache.log
