"""A disk that is really full: producers hear of it, reads go on, writing resumes, nothing acknowledged is lost."""

from pathlib import Path

import confluent_kafka
import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.error_codes import ErrorCode

from .disks import MIB, fill
from .wire import Wire, eventually, payload, record_batch, values_of

SETTINGS = {"journal.bytes": str(64 * MIB), "log.segment.bytes": str(8 * MIB)}


def _consume(wire: Wire, topic: str) -> list[bytes]:
    """Every value from the log's start to its end."""
    found: list[bytes] = []
    offset = 0
    _, end = wire.offset_of(topic, -1)
    while offset < end:
        values = values_of(payload(wire.fetch(topic, offset, partition_max_bytes=4 * MIB)))
        assert values, offset
        found += values
        offset += len(values)
    return found


def _value(number: int) -> bytes:
    return str(number).encode().ljust(200_000, b".")


@pytest.mark.slow
def test_a_full_disk_refuses_writes_and_serves_reads_until_there_is_room(disk: Path) -> None:
    acknowledged: list[bytes] = []

    def produce(wire: Wire, number: int) -> ErrorCode:
        code = ErrorCode(wire.produce("t", record_batch([_value(number)])).error_code)
        if code == ErrorCode.NONE:
            acknowledged.append(_value(number))
        return code

    def produce_until_refused(wire: Wire, first: int) -> int:
        for number in range(first, first + 1000):
            if (code := produce(wire, number)) != ErrorCode.NONE:
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                return number + 1
        raise AssertionError("the disk never filled up")

    with MagnetarProcess(data_dir=disk / "data", settings=SETTINGS) as server, Wire(server.ports[0]) as wire:
        wire.create("t")
        for number in range(20):
            assert produce(wire, number) == ErrorCode.NONE
        ballast = fill(disk)
        number = produce_until_refused(wire, 20)
        for _ in range(20):  # and again, and again: each answer comes, and none leaves anything behind
            assert produce(wire, number) == ErrorCode.KAFKA_STORAGE_ERROR
        assert _consume(wire, "t") == acknowledged

        # Space comes back: writing resumes by itself.
        ballast.unlink()
        eventually(lambda: produce(wire, number) == ErrorCode.NONE, "writing resumes", patience_s=20)
        for number in range(1000, 1020):
            assert produce(wire, number) == ErrorCode.NONE
        assert _consume(wire, "t") == acknowledged

        # Full again, and killed: what was acknowledged is there when there is room again.
        ballast = fill(disk)
        produce_until_refused(wire, 2000)
        server.kill()
        ballast.unlink()
        server.restart()
        with Wire(server.ports[0]) as again:
            assert _consume(again, "t") == acknowledged
            assert produce(again, 3000) == ErrorCode.NONE
            assert _consume(again, "t") == acknowledged
            fill(disk)
            produce_until_refused(again, 4000)
            server.terminate()  # a full disk is no reason not to stop
            (disk / "ballast").unlink()
            server.start()
        with Wire(server.ports[0]) as last:
            assert _consume(last, "t") == acknowledged
        assert "Traceback" not in server.log, server.log[-4000:]
        assert server.log.count("cannot roll over") < 20, "one line now and then, not one for each append"


@pytest.mark.slow
@pytest.mark.clients
def test_an_idempotent_producer_rides_out_a_full_disk_with_every_record_once(disk: Path) -> None:
    settings = {**SETTINGS, "num.partitions": "3"}
    with MagnetarProcess(data_dir=disk / "data", settings=settings) as server:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
            }
        )
        sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        failed: list[object] = []
        delivered = 0

        def report(error: object, _: object) -> None:
            nonlocal delivered
            if error is not None:
                failed.append(error)
            else:
                delivered += 1

        def produce(count: int) -> None:
            for _ in range(count):
                partition = len(sent[0] + sent[1] + sent[2]) % 3
                value = f"{partition}-{len(sent[partition])}".encode().ljust(50_000, b".")
                sent[partition].append(value)
                producer.produce("t", value, partition=partition, on_delivery=report)
                producer.poll(0)

        produce(60)
        assert producer.flush(30) == 0
        ballast = fill(disk)
        produce(3000)  # 150 megabytes
        producer.poll(3)
        assert delivered < 3060, "the disk was not full"
        ballast.unlink()
        assert producer.flush(60) == 0
        assert not failed, failed[:3]
        assert delivered == 3060
        with Wire(server.ports[0]) as wire:
            for partition, expected in sent.items():
                found: list[bytes] = []
                while len(found) < len(expected):
                    rows = values_of(payload(wire.fetch("t", len(found), index=partition)))
                    assert rows
                    found += rows
                assert found == expected
        assert "Traceback" not in server.log, server.log[-4000:]
