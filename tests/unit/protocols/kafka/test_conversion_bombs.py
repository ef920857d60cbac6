"""Readers of what the other protocol compressed: what is expanded and given out at a time is bounded for all."""

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import cramjam
import pytest

from magnetar.broker.interop import convert as interop_convert
from magnetar.broker.interop import interop as interop_module
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.opening import SMALL
from magnetar.broker.subscriptions import forms as forms_module
from magnetar.broker.subscriptions.forms import Cutting, cut
from magnetar.wire.convert.engine import load
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata
from tests.unit.broker.test_opening import Gate
from tests.unit.protocols.kafka.mixed_logs import BASE_MS, Mixed
from tests.unit.protocols.kafka.test_bombs import batch
from tests.unit.wire.kafka.test_record_reader import record

Run = Callable[..., None]
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    assert load()


def kafka_bomb(count: int) -> bytearray:
    records = b"".join(record(delta, 0, b"k", b"") for delta in range(count))
    return batch(bytes(cramjam.zstd.compress(records)), count, 4)


def pulsar_bomb(size: int) -> bytes:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=BASE_MS, compression=CompressionType.ZLIB
    )
    metadata.uncompressed_size = size
    return frame_entry(metadata, zlib.compress(bytes(size)))


async def append(log: Mixed, data: bytearray) -> None:
    await log._durable(lambda done: log.partition.append(memoryview(data), BASE_MS, done))


async def formed_for_pulsar(log: Mixed) -> Any:
    end = log.partition.log.high_watermark
    entries = log.partition.log.read_cached(0, 1 << 30, end)
    found = log.interop.pulsar_form(log.partition, entries)
    return await found if isinstance(found, Awaitable) else found


def test_conversions_of_bombs_run_one_at_a_time_and_small_ones_beside_them(with_broker: Run) -> None:
    """Twenty readers of such entries had each of them expanded at once."""

    async def scenario(client: Any) -> None:
        opener = client.broker.opener
        logs = [await Mixed.create(client, f"bombs-{number}") for number in range(5)]
        for log in logs:
            await append(log, kafka_bomb(30_000))
        other = await Mixed.create(client, "small")
        await append(other, kafka_bomb(10))
        gate = Gate(opener)
        await gate.close(1, is_large=True)
        readers = [asyncio.ensure_future(formed_for_pulsar(log)) for log in logs]
        (small,) = await formed_for_pulsar(other)
        assert small.payload is not None
        while opener.waiting < len(logs):
            await opener.run("turn", lambda budget: None)
        assert not any(reader.done() for reader in readers)
        gate.open.set()
        await asyncio.gather(*readers)
        assert opener.large_done == 1 + len(logs)

    with_broker(scenario)


def test_what_exceeds_the_largest_budget_is_said_once_and_read_past(
    with_broker: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.publish(pulsar_bomb(256 * MIB + 1))
        await log.pulsar(b"after")
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                batches = await log.batches()
                assert [batch.is_cover for batch in batches] == [True, False]
                log.interop._for_kafka._kept.clear()
        assert log.interop.counters.undecodable_to_kafka == 1
        assert len([one for one in caplog.records if "Kafka clients get nothing" in one.getMessage()]) == 1

    with_broker(scenario)


@pytest.mark.parametrize("reader", ["kafka", "pulsar"])
def test_a_reader_gets_the_first_ones_when_all_together_are_large(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    monkeypatch.setattr(interop_module, "_GIVEN_BYTES_MAX", 3000)
    monkeypatch.setattr(interop_module, "AT_ONCE_BYTES_MAX", -1)
    client_budget = SMALL._replace(bytes_max=1)
    for module in (interop_module, interop_convert):
        monkeypatch.setattr(module, "SMALL", client_budget)

    async def scenario(client: Any) -> None:
        client.broker.opener._small.budget = client_budget
        log = await Mixed.create(client)
        for number in range(6):
            if reader == "kafka":
                await log.pulsar(bytes([65 + number]) * 1000)
            else:
                await log.kafka(bytes([65 + number]) * 1000)
        entries = log.partition.log.read_cached(0, 1 << 20, 6)
        assert entries is not None
        given: list[int] = []
        while entries:
            if reader == "kafka":
                found: Any = await log.interop.kafka_form_later(log.partition, entries)
                assert all(len(one.payload) > 1000 for one in found)
                given.append(len(found))
            else:
                found = await log.interop._pulsar_form_later(log.partition, entries)
                assert [one.entry for one in found] == entries[: len(found)]
                given.append(len(found))
            entries = entries[len(found) :]
        assert given == [3, 3]
        assert not log.interop._for_kafka.pending
        assert not log.interop._for_pulsar.pending

    with_broker(scenario)


def test_readers_of_one_log_at_several_places_all_get_on(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that wait for what another one has begun, and has left for later, begin it themselves."""
    monkeypatch.setattr(interop_module, "_GIVEN_BYTES_MAX", 1)
    monkeypatch.setattr(interop_module, "AT_ONCE_BYTES_MAX", -1)
    client_budget = SMALL._replace(bytes_max=1)
    for module in (interop_module, interop_convert):
        monkeypatch.setattr(module, "SMALL", client_budget)

    async def scenario(client: Any) -> None:
        client.broker.opener._small.budget = client_budget
        log = await Mixed.create(client)
        for number in range(6):
            await log.pulsar(bytes([65 + number]) * 1000)
        entries = log.partition.log.read_cached(0, 1 << 20, 6)
        assert entries is not None
        found = await asyncio.gather(
            *(log.interop.kafka_form_later(log.partition, entries[at:]) for at in range(6))
        )
        assert [one[0].base_offset for one in found] == list(range(6))

    with_broker(scenario)


def test_large_batches_are_not_cut_by_key_and_together_no_more_than_their_share(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Any) -> None:
        log = await Mixed.create(client)
        await log.kafka(*(b"%d" % number for number in range(3)))
        await append(log, kafka_bomb(50))
        await log.kafka(*(b"%d" % number for number in range(3)))
        formed = await formed_for_pulsar(log)
        sizes = list(map(forms_module._bytes_to_cut, formed))
        monkeypatch.setattr(forms_module, "CUT_BYTES_MAX", sizes[1] - 1)
        monkeypatch.setattr(forms_module, "_CUT_AT_ONCE_BYTES_MAX", -1)
        entries = [one.entry for one in formed]
        cutting = cut(formed, entries, Cutting(by_key=True))
        assert isinstance(cutting, Awaitable), "more than a little is cut on a thread"
        pieces = await cutting
        assert [one.parts is not None for one in pieces] == [True, False, True]
        monkeypatch.setattr(forms_module, "CUT_BYTES_MAX", sizes[1] + sizes[0])
        assert [one.entry for one in await cut(formed, entries, Cutting(by_key=True))] == entries[:2]  # type: ignore[misc]
        assert all(isinstance(one, Formed) for one in pieces)

    with_broker(scenario)
