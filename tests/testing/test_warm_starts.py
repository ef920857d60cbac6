"""Servers that are forked behave as servers that are started: their commands, their ends, and what is theirs alone."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess, ServerFailed, answers
from tests.warm_starts import Forked, WarmStarts


@pytest.fixture(scope="module")
def starts() -> Iterator[WarmStarts]:
    made = WarmStarts()
    before, MagnetarProcess.starts = MagnetarProcess.starts, made
    yield made
    MagnetarProcess.starts = before
    made.close()
    assert made._program is not None
    assert made._program.returncode == 0


def is_forked(server: MagnetarProcess) -> bool:
    return isinstance(server._process, Forked)


def test_a_forked_server_serves_restarts_and_ends_with_0(starts: WarmStarts, tmp_path: Path) -> None:
    with MagnetarProcess(data_dir=tmp_path / "data") as server:
        assert is_forked(server)
        first = server.pid
        assert answers("127.0.0.1", server.ports[0], 20)
        server.kill()
        assert not answers("127.0.0.1", server.ports[0], 20)
        server.restart()
        assert server.pid != first
        assert answers("127.0.0.1", server.ports[0], 20)
        server.terminate()
        assert server.log.count("stopping") == 1
    assert server._process is not None
    assert server._process.returncode == 0
    assert starts.cpu_seconds > 0


def test_its_command_line_and_its_environment_are_its_own(starts: WarmStarts) -> None:
    two = MagnetarProcess(nodes=2)
    with MagnetarProcess(environment={"MAGNETAR_LOG_FORMAT": "json"}) as one, two:
        assert is_forked(one)
        assert is_forked(two)
        assert (len(one.listeners), len(two.listeners)) == (1, 2)
        one.terminate()
        two.terminate()
        assert '"stopping"' in one.log
        assert '"stopping"' not in two.log
        assert "stopping" in two.log


def test_a_refused_start_says_why_and_ends_with_its_code(starts: WarmStarts) -> None:
    server = MagnetarProcess(settings={"num.partition": "4"})
    with pytest.raises(ServerFailed, match=r"(?s)ended with 2: .*did you mean num\.partitions"):
        server.start()
    assert is_forked(server)


def test_what_an_interpreter_reads_at_its_start_needs_one(starts: WarmStarts) -> None:
    with MagnetarProcess(environment={"PYTHONFAULTHANDLER": "1"}) as server:
        assert not is_forked(server)
        assert isinstance(server._process, subprocess.Popen)


def test_a_wait_ends_when_the_server_does_and_not_before(starts: WarmStarts) -> None:
    with MagnetarProcess() as server:
        process = server._process
        assert isinstance(process, Forked)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None
        ended: list[int] = []
        waiting = threading.Thread(target=lambda: ended.append(process.wait()))
        waiting.start()
        server.kill()
        waiting.join()
        assert ended == [-9]
        process.send_signal(15)  # nobody gets it


def test_servers_draw_other_random_numbers(starts: WarmStarts) -> None:
    ids = []
    for _ in range(2):
        with MagnetarProcess() as server:
            ids.append((server.data_dir / "worker-token").read_text())
    assert len(set(ids)) == 2


def test_the_end_of_its_output_is_seen_though_another_was_forked_meanwhile(starts: WarmStarts) -> None:
    with MagnetarProcess() as one, MagnetarProcess():
        one.terminate()
        assert one._reader is not None
        assert not one._reader.is_alive()
