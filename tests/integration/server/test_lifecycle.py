"""Stops, kills, second servers, and what is there afterwards."""

import os
import socket
import struct
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess, ServerFailed, free_ports
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from magnetar.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .wire import Wire, eventually, fetch_request, frame, payload, record_batch, values_of


def test_sigterm_ends_with_0_at_once_though_consumers_wait_for_records() -> None:
    with MagnetarProcess() as server, ExitStack() as stack:
        idle, fetching, half = [stack.enter_context(Wire(server.ports[0])) for _ in range(3)]
        idle.create("t")
        assert idle.produce("t", record_batch([b"v"])).error_code == 0
        half.send(struct.pack(">ih", 500, 3))
        # Both leave in one piece, so the second one is being waited on when the first is answered.
        fetching.send(
            frame("fetch", 12, fetch_request("t", 0))
            + frame("fetch", 12, fetch_request("t", 1, max_wait_ms=600_000))
        )
        fetching.answer("fetch", 12)
        began = time.monotonic()
        server.terminate()
        assert time.monotonic() - began < 20
        answer = fetching.answer("fetch", 12)
        assert (answer.error_code, answer.responses[0].partitions[0].high_watermark) == (0, 1)
        assert fetching.is_closed()
        assert "Traceback" not in server.log


def test_sigterm_ends_with_0_soon_though_clients_do_not_let_go() -> None:
    with MagnetarProcess() as server, ExitStack() as stack:
        joining, lazy = [stack.enter_context(Wire(server.ports[0], receive_buffer=4096)) for _ in range(2)]
        joining.create("t")
        for _ in range(20):
            joining.produce("t", record_batch([b"x" * 900_000]))
        protocol = JoinGroupRequestProtocol("range", b"")
        join = JoinGroupRequest("g", 300_000, 600_000, protocol_type="consumer", protocols=[protocol])
        joining.send(frame("join_group", 3, join))
        for _ in range(50):
            lazy.send(frame("fetch", 12, fetch_request("t", 0)))
        began = time.monotonic()
        server.terminate()
        assert time.monotonic() - began < 15
        assert "Traceback" not in server.log


def test_an_older_metadata_file_is_refused_and_the_data_is_there_when_the_right_one_is_back(
    tmp_path: Path,
) -> None:
    """Two seconds after such a start everything newer than the copy was gone."""
    with MagnetarProcess(data_dir=tmp_path) as server:
        with Wire(server.ports[0]) as wire:
            wire.create("old")
        server.terminate()
        old = (tmp_path / "metadata.sqlite").read_bytes()
        server.start()
        with Wire(server.ports[0]) as wire:
            wire.create("t")
            assert wire.produce("t", record_batch([b"v"])).error_code == 0
        server.kill()
        names = [name for name in os.listdir(tmp_path) if name.startswith("metadata.sqlite")]
        right = {name: (tmp_path / name).read_bytes() for name in names}
        for name in names:
            (tmp_path / name).unlink()
        for content in (old, None):
            if content is not None:
                (tmp_path / "metadata.sqlite").write_bytes(content)
            with pytest.raises(ServerFailed) as refused:
                server.start()
            said = "is older than the ledgers" if content is not None else "is missing or empty"
            assert f"metadata.sqlite {said}" in str(refused.value)
            for name in os.listdir(tmp_path):
                if name.startswith("metadata.sqlite"):
                    (tmp_path / name).unlink()
        for name, content in right.items():
            (tmp_path / name).write_bytes(content)
        server.start()
        with Wire(server.ports[0]) as wire:
            wire.send(frame("fetch", 12, fetch_request("t", 0)))
            assert values_of(wire.answer("fetch", 12).responses[0].partitions[0].records) == [b"v"]
        assert "Traceback" not in server.log


@pytest.mark.parametrize("removed", [(), ("lock", "metadata.sqlite.lock")])
def test_two_servers_cannot_share_a_data_directory(tmp_path: Path, removed: tuple[str, ...]) -> None:
    with MagnetarProcess(data_dir=tmp_path) as server:
        for name in removed:  # by somebody who takes them for stale
            (tmp_path / name).unlink()
        second = MagnetarProcess(data_dir=tmp_path)
        with pytest.raises(ServerFailed) as refused:
            second.start()
        assert "in use" in str(refused.value) or "lock" in str(refused.value)
        assert "Traceback" not in second.log
        with Wire(server.ports[0]) as wire:
            wire.create("t")
            assert wire.produce("t", record_batch([b"v"])).error_code == 0


def test_a_port_in_use_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        port = free_ports(1)[0]
        taken.bind(("127.0.0.1", port))
        taken.listen()
        server = MagnetarProcess(data_dir=tmp_path)
        server._command[server._command.index("--kafka-port") + 1] = str(port)
        with pytest.raises(ServerFailed) as refused:
            server.start()
        assert f"127.0.0.1:{port}" in str(refused.value)
        assert "Traceback" not in server.log


def test_everything_that_was_acknowledged_is_there_after_a_kill() -> None:
    with MagnetarProcess(settings={"log.segment.bytes": "1048576"}) as server:
        stamp = 1_700_000_000_000
        with Wire(server.ports[0]) as wire:
            wire.create("t")
            for number in range(100):
                values = [f"{number}-{place}".encode().ljust(5_000, b".") for place in range(10)]
                answer = wire.produce("t", record_batch(values, timestamp_ms=stamp + number * 1000))
                assert (answer.error_code, answer.base_offset) == (0, number * 10)
            cut = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 123)])], 1000)
            assert wire.ask("delete_records", 2, cut).topics[0].partitions[0].low_watermark == 123
            mark = OffsetCommitRequestPartition(0, 456, committed_metadata="here")
            commit = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=[mark])])
            assert wire.ask("offset_commit", 8, commit).topics[0].partitions[0].error_code == 0
        epochs = []
        for _ in range(3):
            server.kill()
            server.restart()
            with Wire(server.ports[0]) as wire:
                assert wire.offset_of("t", -2) == (0, 123)
                assert wire.offset_of("t", -1) == (0, 1000)
                assert wire.offset_of("t", stamp) == (0, 123)
                assert wire.offset_of("t", stamp + 12_000) == (0, 123)
                assert wire.offset_of("t", stamp + 12_001) == (0, 130)
                assert wire.offset_of("t", stamp + 98_500) == (0, 990)
                assert wire.offset_of("t", stamp + 99_001) == (0, -1)
                found: list[bytes] = []
                offset = 130
                while offset < 1000:
                    rows = values_of(payload(wire.fetch("t", offset, partition_max_bytes=300_000)))
                    found += rows
                    offset += len(rows)
                assert [one.rstrip(b".") for one in found] == [
                    b"%d-%d" % divmod(at, 10) for at in range(130, 1000)
                ]
                asked = OffsetFetchRequest("g", topics=[OffsetFetchRequestTopic("t", [0])])
                kept = wire.ask("offset_fetch", 5, asked).topics[0].partitions[0]
                assert (kept.committed_offset, kept.metadata) == (456, "here")
                ends = OffsetForLeaderEpochRequest(
                    topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, leader_epoch=0)])]
                )
                end = wire.ask("offset_for_leader_epoch", 3, ends).topics[0].partitions[0]
                assert (end.leader_epoch, end.end_offset) == (0, 1000)
                epochs.append(wire.fetch("t", 1000).error_code)
        assert epochs == [0, 0, 0]
        assert "Traceback" not in server.log


def test_a_deleted_log_is_gone_from_the_disk_after_a_kill() -> None:
    with MagnetarProcess() as server:
        with Wire(server.ports[0]) as wire:
            wire.create("t")
            for _ in range(30):
                wire.produce("t", record_batch([b"x" * 900_000]))
            cut = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 30)])], 1000)
            assert wire.ask("delete_records", 2, cut).topics[0].partitions[0].low_watermark == 30
        server.kill()
        server.restart()
        with Wire(server.ports[0]) as wire:
            assert wire.offset_of("t", -2) == (0, 30)
            assert wire.offset_of("t", -1) == (0, 30)
            assert wire.produce("t", record_batch([b"v"])).base_offset == 30


def test_connections_over_the_limits_are_refused_and_idle_ones_closed() -> None:
    settings = {"max.connections.per.ip": "5", "connections.max.idle.ms": "3000"}
    with MagnetarProcess(settings=settings) as server, ExitStack() as stack:
        held = [stack.enter_context(Wire(server.ports[0])) for _ in range(5)]
        for one in held:
            assert one.ask("api_versions", 3, ApiVersionsRequest("a", "1")).error_code == 0
        assert _is_refused(server)
        held[0].send(b"\0\0\0")  # three bytes and no more
        began = time.monotonic()
        assert all(one.is_closed() for one in held)
        assert 2 < time.monotonic() - began < 20
        eventually(lambda: not _is_refused(server), "there is room again")
        assert server.log.count("refusing a connection") >= 1
        assert "Traceback" not in server.log


def _is_refused(server: MagnetarProcess) -> bool:
    with Wire(server.ports[0]) as wire:
        try:
            wire.send(frame("api_versions", 3, ApiVersionsRequest("a", "1")))
        except OSError:
            return True
        return wire.is_closed()
