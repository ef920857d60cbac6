"""Servers and commands that are forked behave as if they were started: their ends, and what is theirs alone."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess, ServerFailed, answers
from magnetar.wire import convert
from tests import warm_starts
from tests.crash.power.cuts import COMMAND as SMALL_SERVER
from tests.warm_starts import Forked, WarmStarts, run_command

PROGRAM = """
import atexit
import sys
import threading


def work():
    threading.main_thread().join()
    print("worked")


atexit.register(print, "done")
threading.Thread(target=work).start()
print(__name__, *sys.argv[1:])
sys.exit(3)
"""


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


def test_a_program_ends_behind_its_threads_and_what_it_has_registered(
    starts: WarmStarts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    monkeypatch.setattr(warm_starts, "PROGRAMS", (script,))
    child = starts([sys.executable, str(script), "word"], os.environ)
    assert isinstance(child, Forked)
    assert child.stdout is not None
    with child.stdout as output:
        assert output.read().split("\n") == ["__main__ word", "worked", "done", ""]
    assert child.wait() == 3


def test_the_server_of_power_cuts_is_forked(starts: WarmStarts) -> None:
    with MagnetarProcess(command=SMALL_SERVER) as server:
        assert is_forked(server)
        assert journal_files_of(server) == {1 << 20}


@pytest.mark.parametrize(
    ("settings", "file_bytes"), [({}, 16 << 20), ({"journal.bytes": str(128 << 20)}, 32 << 20)]
)
def test_a_journal_is_small_unless_the_test_says_otherwise(
    starts: WarmStarts, settings: dict[str, str], file_bytes: int
) -> None:
    with MagnetarProcess(settings=settings) as server:
        assert is_forked(server)
        assert journal_files_of(server) == {file_bytes}


def journal_files_of(server: MagnetarProcess) -> set[int]:
    """How large they are."""
    return {path.stat().st_size for path in server.data_dir.glob("journal/*.journal")}


def test_what_was_compiled_is_imported_before_a_server_is_forked(starts: WarmStarts) -> None:
    """It would take a second of the server."""
    assert convert.load()
    with MagnetarProcess() as server:
        assert is_forked(server)
        assert "llvmlite" in Path(f"/proc/{server.pid}/maps").read_text()


def test_a_command_has_its_own_input_output_environment_and_end(starts: WarmStarts, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    added = run_command("context", "add", "here", "--url", "http://localhost:8080", environment=environment)
    assert (added.returncode, added.stdout, added.stderr) == (0, "", "here is added and used\n")
    listed = run_command("context", "list", environment=environment)
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "* here  http://localhost:8080\n", "")
    shown = run_command("tokens", "show", "--stdin", environment=environment, stdin="no token")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith("magnetar: ")
