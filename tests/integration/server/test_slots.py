"""Connections take what is meant for them, and no more: storage always finds a file to open."""

import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from magnetar.testing.server import MagnetarProcess, default_command
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest

from .wire import Wire, eventually, frame, payload, record_batch

OPEN_FILES = 400
WIDTH = 60


def metric(server: MagnetarProcess, name: str) -> float:
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def test_connections_leave_files_to_storage(tmp_path: Path) -> None:
    # With every file taken by idle connections segments could not be opened: most produces failed.
    command = ["/bin/sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh", *default_command()]
    with MagnetarProcess(command=command) as server, Wire(server.ports[0]) as wire, ExitStack() as stack:
        for _ in range(OPEN_FILES):
            asks = stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port)))
            asks.sendall(b"GET /metrics HTTP/1.1\r\n")
        made = CreateTopicsRequest([CreatableTopic("wide", WIDTH, 1)], 10_000)
        assert wire.ask("create_topics", 7, made).topics[0].error_code == 0
        hello = frame("api_versions", 3, ApiVersionsRequest("a", "1"))
        for number in range(2 * OPEN_FILES):
            one = stack.enter_context(Wire(server.ports[0] if number % 2 else server.pulsar_port))
            one.send(hello if number % 2 else b"\0\0\0")
        eventually(lambda: metric(server, "magnetar_connections_refused_total") > 0, "some are one too many")
        assert metric(server, "kop_server_ALIVE_CHANNEL_COUNT") <= OPEN_FILES // 2
        for index in range(WIDTH):
            assert wire.produce("wide", record_batch([b"v" * 1000]), index=index).error_code == 0
            assert payload(wire.fetch("wide", 0, index=index))
        with urllib.request.urlopen(f"{server.http_url}/health", timeout=30) as answer:
            assert answer.status == 200
        said = [line for line in server.log.splitlines() if "refusing a connection" in line]
        assert 1 <= len(said) < 20, "once in a while, not for each"
        assert "Traceback" not in server.log
