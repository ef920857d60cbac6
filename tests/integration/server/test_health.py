"""Health that can fail, and that is answered while all other slots are taken."""

import http.client
import json
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.error_codes import ErrorCode

from .disks import MIB, fill, frozen, small_disk
from .wire import Wire, eventually, record_batch

SETTINGS = {"journal.bytes": str(64 * MIB), "health.disk.free.min.bytes": str(8 * MIB)}
PARTS = {"tasks", "metadata_write", "storage", "metadata", "disk_space", "open_files"}


def ask(
    server: MagnetarProcess, path: str = "/health", method: str = "GET", **headers: str
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=10)
    try:
        body = b"{}" if method == "POST" else None
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content[:1] == b"{" else {"text": content.decode()}
    finally:
        connection.close()


def wrong(server: MagnetarProcess) -> set[str]:
    """The parts that fail; the status and the other doors say the same."""
    status, answer = ask(server)
    found = {name for name, problem in answer["checks"].items() if problem}
    assert set(answer["checks"]) == PARTS
    assert (status, answer["status"]) == ((503, "failing") if found else (200, "ok"))
    return found


@pytest.mark.slow
def test_a_full_disk_is_no_health_until_there_is_room(disk: Path) -> None:
    """Produce and create were refused, and health was 200."""
    with MagnetarProcess(data_dir=disk / "data", settings=SETTINGS) as server, Wire(server.ports[0]) as wire:
        wire.create("t")
        assert wire.produce("t", record_batch([b"x"])).error_code == ErrorCode.NONE
        assert wrong(server) == set()
        ballast = fill(disk)
        for _ in range(1000):
            if wire.produce("t", record_batch([b"x" * 200_000])).error_code != ErrorCode.NONE:
                break
        eventually(lambda: {"storage", "disk_space"} <= wrong(server), "the full disk is told", patience_s=30)
        assert ask(server, "/ready")[0] == 503
        status, answer = ask(server, "/admin/v2/brokers/health")
        assert (status, "make room" in answer["reason"]) == (503, True)
        ballast.unlink()
        eventually(lambda: wrong(server) == set(), "it is well again", patience_s=30)
        assert ask(server, "/admin/v2/brokers/health") == (200, {"text": "ok"})


@pytest.mark.slow
def test_a_disk_that_hangs_is_told_without_waiting_for_it(tmp_path: Path) -> None:
    with (
        small_disk("ext4", tmp_path) as disk,
        MagnetarProcess(data_dir=disk / "data", settings=SETTINGS) as server,
    ):
        assert wrong(server) == set()
        with frozen(disk):
            eventually(lambda: "metadata_write" in wrong(server), "the hanging disk is told", patience_s=30)
            assert "has not been answered" in ask(server)[1]["checks"]["metadata_write"]
        eventually(lambda: wrong(server) == set(), "it is well again", patience_s=30)


def test_monitoring_is_answered_while_idle_sockets_and_requests_take_every_slot() -> None:
    """256 idle sockets: health and the worker's lease got 503, and still did after 36 s."""
    with MagnetarProcess() as server, ExitStack() as stack:
        with Wire(server.ports[0]) as wire:
            wire.create("t")
        token = (server.data_dir / "worker-token").read_text().strip()
        assert wrong(server) == set()

        def connect(sent: bytes) -> socket.socket:
            made = stack.enter_context(socket.create_connection(("127.0.0.1", server.http_port), 10))
            made.sendall(sent)
            return made

        half = b"POST /magnetar/v1/offsets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        for _ in range(300):
            connect(half + b"Content-Type: application/json\r\n\r\n{")
        for number in range(600):
            connect((b"", b"GET /health HTTP/1.1\r\nHost: loc")[number % 2])
        eventually(lambda: ask(server, "/admin/v2/clusters")[0] == 503, "every slot of this address is taken")
        for _ in range(20):
            assert ask(server)[0] == 200
            assert ask(server, "/ready")[0] == 200
            assert ask(server, "/admin/v2/brokers/health")[0] == 200
        assert ask(server, "/metrics")[0] == 200
        lease = {"Authorization": f"Bearer {token}"}
        assert (
            ask(server, "/magnetar/v1/worker/lease", "POST", **lease)[0] == 400
        )  # it is heard, and says nothing
        assert ask(server, "/magnetar/v1/worker", "GET", **lease)[0] == 200
        assert ask(server, "/magnetar/v1/worker")[0] == 503, "only the worker has that room"
        assert "Traceback" not in server.log
