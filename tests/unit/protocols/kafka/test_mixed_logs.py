"""What a Kafka client gets of a log that Pulsar clients have written to, and the reverse."""

import asyncio
import logging
import random
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from magnetar.base.errors import StorageError
from magnetar.broker.interop import chunks as interop_chunks
from magnetar.broker.interop import convert as interop_convert
from magnetar.broker.interop import interop as interop_module
from magnetar.broker.interop.interop import Interop
from magnetar.broker.log.opening import Opener
from magnetar.wire.convert import load
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.pulsar.entry import read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata
from tests.unit.protocols.kafka.conftest import record_batch
from tests.unit.protocols.kafka.mixed_logs import BASE_MS, Mixed, records_of

Run = Callable[..., None]


@pytest.fixture(params=["at once", "on a thread"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    assert load()
    if request.param == "on a thread":
        monkeypatch.setattr(interop_module, "AT_ONCE_BYTES_MAX", -1)
    return str(request.param)


# --- Kafka's side ----------------------------------------------------------------------------------------------------


def test_both_protocols_entries_come_in_order_with_dense_offsets(with_broker: Run, way: str) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(b"0", b"1")
        await log.pulsar(b"2", b"3", b"4")
        await log.pulsar(b"5", properties=[])
        await log.kafka(b"6")
        for _ in range(2):  # the second time from what was kept, then from the store
            wanted = [(offset, b"%d" % offset) for offset in range(7)]
            assert records_of(await log.batches()) == wanted
            assert records_of(await log.batches(3)) == wanted[2:]
            assert records_of(await log.batches(6)) == wanted[6:]
            assert await log.batches(7) == []
            log.forget_cache()
        assert {batch.leader_epoch for batch in await log.batches()} == {log.partition.log.leader_epoch}
        assert client.broker.interop.counters.entries_to_kafka == 2

    with_broker(scenario)


def test_a_log_of_kafka_entries_is_handed_on_as_it_is(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(b"0")
        await log.kafka(b"1")
        entries = log.partition.log.read_cached(0, 1 << 20, 2)
        assert log.interop.kafka_form(log.partition, entries) is entries

    with_broker(scenario)


def test_limits_are_of_what_is_sent_and_the_first_batch_goes_out(with_broker: Run, way: str) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        for _ in range(3):
            await log.pulsar(b"x")
        one = len((await log.fetch(0, partition_max_bytes=1)).records)
        stored = len((log.partition.log.read_cached(0, 1, 3) or [])[0].payload)
        assert stored < one  # by the header of a record batch
        assert len(await log.batches(partition_max_bytes=3 * one - 1)) == 2
        assert len(await log.batches(partition_max_bytes=3 * one)) == 3
        assert len(await log.batches(max_bytes=2 * one - 1)) == 1
        assert len(await log.batches(max_bytes=0)) == 1

    with_broker(scenario)


@pytest.mark.parametrize("cold", [False, True])
def test_a_chunked_message_is_a_record_at_its_last_chunk(with_broker: Run, cold: bool) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(b"first")
        await log.chunks("p-1", b"aa", b"bb", b"c")
        await log.kafka(b"last")
        if cold:
            log.forget_cache()
        batches = await log.batches()
        assert records_of(batches) == [(0, b"first"), (3, b"aabbc"), (4, b"last")]
        assert [(one.base_offset, one.last_offset) for one in batches] == [
            (offset, offset) for offset in range(5)
        ]
        assert [one.is_cover for one in batches] == [False, True, True, False, False]
        assert records_of(await log.batches(3)) == [(3, b"aabbc"), (4, b"last")]

    with_broker(scenario)


def test_chunks_of_several_messages_may_lie_among_each_other(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.chunks("a", b"0", b"1", b"2", ids=[0])
        await log.chunks("b", b"x", b"y", ids=[0])
        await log.chunks("a", b"0", b"1", b"2", ids=[1])
        await log.pulsar(*[b"between"] * 90)
        await log.chunks("b", b"x", b"y", ids=[1])
        await log.chunks("a", b"0", b"1", b"2", ids=[2])
        found = [value for _, value in records_of(await log.batches()) if value != b"between"]
        assert found == [b"xy", b"012"]

    with_broker(scenario)


def test_a_uuid_that_comes_again_means_the_last_message_of_it(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.chunks("a", b"old0", b"old1", b"old2", ids=[0, 1])
        await log.pulsar(*[b"between"] * 5)
        await log.chunks("a", b"new0", b"new1", b"new2")
        found = [value for _, value in records_of(await log.batches()) if value != b"between"]
        assert found == [b"new0new1new2"]

    with_broker(scenario)


@pytest.mark.parametrize("sent", [[1, 2], [0, 2], [2]])
def test_an_incomplete_chunked_message_is_said_once_counted_and_covered(
    with_broker: Run, sent: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(b"first")
        await log.chunks("p-1", b"aa", b"bb", b"c", ids=sent)
        await log.kafka(b"last")
        end = log.partition.log.high_watermark
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                batches = await log.batches()
                assert records_of(batches) == [(0, b"first"), (end - 1, b"last")]
                assert batches[-1].last_offset == end - 1
                log.interop._for_kafka._kept.clear()
        assert log.interop.counters.incomplete_chunked_messages == 1
        assert len([one for one in caplog.records if "p-1" in one.getMessage()]) == 1

    with_broker(scenario)


def test_chunks_below_the_logs_start_are_missing(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.chunks("p-1", b"aa", b"bb", b"c")
        cut = DeleteRecordsRequest([DeleteRecordsTopic("mixed", [DeleteRecordsPartition(0, 1)])], 1000)
        answer = await client.ask("delete_records", 2, cut)
        assert answer.topics[0].partitions[0].low_watermark == 1
        assert records_of(await log.batches(1)) == []
        assert log.interop.counters.incomplete_chunked_messages == 1
        assert (await log.fetch(0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    with_broker(scenario)


def test_the_search_for_chunks_ends(with_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interop_chunks, "_SEARCH_BYTES_MAX", 1000)
    looked: list[int] = []
    search = interop_chunks._chunks_between

    async def counted(log: Any, offset: int, *rest: Any) -> Any:
        looked.append(offset)
        return await search(log, offset, *rest)

    monkeypatch.setattr(interop_chunks, "_chunks_between", counted)

    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        for _ in range(200):
            await log.pulsar(b"x" * 100)
        await log.chunks("p-1", b"aa", b"bb", b"c", ids=[1, 2])
        row = await log.fetch(201)
        assert row.error_code == 0
        assert looked == [199, 137]  # two offsets, then 64; those were more bytes than are read for it

    with_broker(scenario)


def test_what_cannot_be_decoded_is_said_once_counted_and_covered(
    with_broker: Run, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(b"first")
        await log.pulsar(b"no messages in it", num_messages_in_batch=2)
        await log.pulsar(b"no lz4", compression=CompressionType.LZ4, uncompressed_size=500)
        await log.kafka(b"last")
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                batches = await log.batches()
                assert records_of(batches) == [(0, b"first"), (4, b"last")]
                assert [(one.base_offset, one.last_offset) for one in batches] == [
                    (0, 0),
                    (1, 2),
                    (3, 3),
                    (4, 4),
                ]
                log.interop._for_kafka._kept.clear()
        assert log.interop.counters.undecodable_to_kafka == 2
        assert len([one for one in caplog.records if "Kafka clients get nothing" in one.getMessage()]) == 2

    with_broker(scenario)


def test_a_brokers_marker_and_an_encrypted_chunk(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.pulsar(b"note", marker_type=10)
        key = MessageMetadata(producer_name="", sequence_id=0, publish_time=0).encryption_keys.add(
            key="k", value=b"v"
        )
        chunk: dict[str, Any] = {
            "uuid": "u",
            "chunk_id": 0,
            "num_chunks_from_msg": 2,
            "total_chunk_msg_size": 4,
        }
        await log.pulsar(b"ab", encryption_keys=[key], **chunk)
        batches = await log.batches()
        assert [one.is_cover for one in batches] == [True, False]
        assert records_of(batches) == [(1, b"ab")]

    with_broker(scenario)


def test_a_fetch_that_waits_is_answered_when_pulsar_publishes(with_broker: Run, way: str) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(b"0")
        waiting = asyncio.ensure_future(log.batches(1, max_wait_ms=30_000))
        await asyncio.sleep(0)
        await log.pulsar(b"1", b"2")
        assert records_of(await waiting) == [(1, b"1"), (2, b"2")]

    with_broker(scenario)


def test_readers_at_the_same_time_share_one_conversion(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interop_module, "AT_ONCE_BYTES_MAX", -1)
    converted: list[int] = []
    may_go_on = threading.Event()
    convert = interop_convert.to_kafka

    def counted(work: Any, budget: Any) -> Any:
        converted.append(work[0].base_offset)
        assert may_go_on.wait(10)
        return convert(work, budget)

    monkeypatch.setattr(interop_module, "to_kafka", counted)

    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.pulsar(b"0", b"1")
        await log.pulsar(b"2")
        readers = [asyncio.ensure_future(log.batches(offset)) for offset in (0, 2, 0)]
        while not converted:  # noqa: ASYNC110  set on another thread
            await asyncio.sleep(0.001)  # the loop is free while a thread converts
        may_go_on.set()
        assert [len(await one) for one in readers] == [2, 1, 2]
        assert sorted(converted) == [0, 2]
        assert not log.interop._for_kafka.pending

    with_broker(scenario)


def test_a_chunk_that_cannot_be_read_now_fails_the_fetch_and_not_the_next(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.chunks("p-1", b"aa", b"bb")

        async def broken(*_: Any) -> Any:
            raise StorageError("the disk does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(interop_module, "earlier_chunks", broken)
            assert (await log.fetch(1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert records_of(await log.batches(1)) == [(1, b"aabb")]

    with_broker(scenario)


def test_a_client_that_waits_for_a_conversion_hears_of_the_stop(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interop_module, "AT_ONCE_BYTES_MAX", -1)
    may_go_on = threading.Event()
    monkeypatch.setattr(interop_module, "to_kafka", lambda work, budget: may_go_on.wait(10))

    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.pulsar(b"0")
        waiting = asyncio.ensure_future(log.fetch(0))
        for _ in range(10):
            await asyncio.sleep(0)
        assert log.interop._tasks
        log.interop.close()
        assert (await waiting).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        may_go_on.set()
        assert (await log.fetch(0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    with_broker(scenario)


def test_forms_are_kept_up_to_a_number_of_bytes(with_broker: Run) -> None:
    assert load()

    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        forms = log.interop._for_kafka
        forms.bytes_max = 5000
        for index in range(20):
            await log.pulsar(b"%d" % index * 400)
        await log.batches()
        assert 0 < forms.bytes_used <= 5000
        assert forms.bytes_used == sum(map(interop_module._charge, forms._kept.values()))
        assert list(forms._kept)[-1][1] == 19
        assert len(await log.batches()) == 20

    with_broker(scenario)


# --- offsets by time -------------------------------------------------------------------------------------------------


async def offset_for(client: Any, timestamp_ms: int) -> tuple[int, int]:
    wanted = ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic("mixed", [ListOffsetsPartition(0, -1, timestamp_ms)])]
    )
    row = (await client.ask("list_offsets", 7, wanted)).topics[0].partitions[0]
    assert row.error_code == 0
    return row.offset, row.timestamp


def test_offsets_by_time_are_those_of_the_records(with_broker: Run, way: str) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(b"0", b"1", at_ms=BASE_MS)
        await log.pulsar(b"2", b"3", at_ms=BASE_MS + 100, event_ms=(BASE_MS + 10, BASE_MS + 20))
        await log.pulsar(b"4", b"5", at_ms=BASE_MS + 200)
        await log.chunks("u", b"6", b"7")
        assert await offset_for(client, BASE_MS) == (0, BASE_MS)
        assert await offset_for(client, BASE_MS + 2) == (2, BASE_MS + 10)
        assert await offset_for(client, BASE_MS + 11) == (3, BASE_MS + 20)
        assert await offset_for(client, BASE_MS + 21) == (4, BASE_MS + 200)
        assert await offset_for(client, BASE_MS + 201) == (-1, -1)
        assert await offset_for(client, -3) == (4, BASE_MS + 200)

    with_broker(scenario)


def test_the_greatest_time_where_event_times_lie_behind(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.pulsar(b"0", b"1", at_ms=BASE_MS, event_ms=(7, 5))
        assert await offset_for(client, -3) == (0, 7)
        await log.pulsar(b"2", b"3", at_ms=BASE_MS + 1, event_ms=(4, 9))
        assert await offset_for(client, -3) == (3, 9)
        await log.pulsar(b"nothing to read", at_ms=BASE_MS + 2, marker_type=10)
        assert await offset_for(client, -3) == (-1, -1)

    with_broker(scenario)


# --- Pulsar's side ---------------------------------------------------------------------------------------------------


def test_a_kafka_batch_is_a_pulsar_batch_of_as_many_messages(with_broker: Run, way: str) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(b"0", b"1")
        await log.pulsar(b"2", b"3")
        await log.kafka(b"4" * 3000, b"5" * 3000, codec=3)
        for _ in range(2):
            first, second, third = await log.formed()
            assert first.payload is not None
            assert third.payload is not None
            assert (first.entry.base_offset, first.entry.last_offset) == (0, 1)
            assert read_entry(memoryview(first.payload), verify=True).num_messages == 2
            assert second.payload is second.entry.payload
            compressed = read_entry(memoryview(third.payload), verify=True).metadata
            assert (compressed.num_messages_in_batch, compressed.compression) == (2, CompressionType.LZ4)
        assert log.interop.counters.entries_to_pulsar == 2

    with_broker(scenario)


def test_what_has_no_message_for_pulsar_has_no_payload(with_broker: Run, way: str) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        partition: Any = log.partition
        partition.topic._is_in_transaction = lambda *_: True
        await client.append(partition, 2)
        for commit, producer_id in ((False, 7), (True, 8)):
            await _transaction(client, partition, producer_id, commit)
        await log.pulsar(b"note", marker_type=10)
        shown = [one.payload is not None for one in await log.formed()]
        #                aborted, its marker, committed, its marker, note
        assert shown == [True, False, False, True, False, False]

    with_broker(scenario)


async def _transaction(client: Any, partition: Any, producer_id: int, commit: bool) -> None:

    batch = record_batch(2, client.broker.clock.now_ms(), producer_id)
    struct.pack_into(">h", batch, 21, 0x10)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    now_ms = client.broker.clock.now_ms()
    appends: list[Callable[[Any], Any]] = [
        lambda done: partition.append(memoryview(batch), now_ms, done),
        lambda done: partition.end_transaction(producer_id, 0, commit, 0, done),
    ]
    for append in appends:
        durable: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        append(durable.set_result)
        assert await durable is None


def test_a_batch_that_clients_would_refuse_is_compressed_or_else_said_and_has_no_payload(
    with_broker: Run, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Java's client closes its connection over a larger frame, and again when it comes again."""

    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        log.interop = Interop(1 << 20, 1000, Opener())
        await log.kafka(b"x" * 900)
        await log.kafka(b"x" * 1000)
        await log.kafka(random.Random(1).randbytes(1000))
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                first, second, third = await log.formed()
                views = [read_entry(memoryview(one.payload or b""), verify=True) for one in (first, second)]
                codecs = [view.metadata.compression for view in views]
                assert codecs == [CompressionType.NONE, CompressionType.ZSTD]
                assert third.payload is None
                log.interop._for_pulsar._kept.clear()
        assert log.interop.counters.undecodable_to_pulsar == 1
        assert len([one for one in caplog.records if "Pulsar clients get nothing" in one.getMessage()]) == 1
        log.interop.close()

    with_broker(scenario)
