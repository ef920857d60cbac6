"""The test kit itself, against a stand-in that behaves as badly as a server can."""

import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess, ServerFailed

GOOD = """
    import signal, sys
    port = sys.argv[sys.argv.index("--kafka-port") + 1]
    data = sys.argv[sys.argv.index("--data-dir") + 1]
    with open(data + "/starts", "a") as starts:
        starts.write("x")
    print(f"kafka  PLAINTEXT://127.0.0.1:{port}")
    print("magnetar is ready", flush=True)
    signal.sigwait({signal.SIGTERM})
"""


def stand_in(folder: Path, body: str) -> list[str]:
    script = folder / "stand_in.py"
    script.write_text("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n")
    with script.open("a") as out:
        out.write(textwrap.dedent(body))
    return [sys.executable, str(script)]


def test_ready_server_is_found_where_it_says(tmp_path: Path) -> None:
    with MagnetarProcess(command=stand_in(tmp_path, GOOD), nodes=1) as server:
        assert server.listeners == [server.bootstrap]
        assert server.running
        data_dir = server.data_dir
    assert not server.running
    assert not data_dir.exists()


def test_restart_keeps_data_and_ports(tmp_path: Path) -> None:
    with MagnetarProcess(command=stand_in(tmp_path, GOOD)) as server:
        bootstrap = server.bootstrap
        server.kill()
        assert not server.running
        server.restart()
        server.restart()
        assert server.bootstrap == bootstrap
        assert (server.data_dir / "starts").read_text() == "xxx"


def test_log_file_gets_every_start(tmp_path: Path) -> None:
    log_file = tmp_path / "server.log"
    with MagnetarProcess(command=stand_in(tmp_path, GOOD), log_file=log_file) as server:
        server.restart()
    assert log_file.read_text() == server.log
    assert server.log.count("ready") == 2


def test_a_data_dir_that_was_brought_is_left_alone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    with MagnetarProcess(command=stand_in(tmp_path, GOOD), data_dir=data_dir):
        pass
    assert (data_dir / "starts").exists()


def test_server_that_ends_at_start_is_reported_with_its_log(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "print('no such setting: colour'); raise SystemExit(3)")
    with pytest.raises(ServerFailed, match=r"(?s)ended with 3.*no such setting: colour"):
        MagnetarProcess(command=command).__enter__()


def test_server_that_never_gets_ready_is_killed(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "print('already thinking', flush=True); signal.pause()")
    server = MagnetarProcess(command=command, ready_timeout_s=0.5)
    with pytest.raises(ServerFailed, match=r"(?s)not ready after 0\.5 s.*already thinking"):
        server.__enter__()
    assert not server.running
    assert not server.data_dir.exists()


def test_a_start_that_is_interrupted_leaves_no_process(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    server = MagnetarProcess(command=stand_in(tmp_path, "print('thinking', flush=True); signal.pause()"))

    def interrupt_when_it_thinks() -> None:
        while "thinking" not in server.log:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    threading.Thread(target=interrupt_when_it_thinks, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            server.__enter__()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not server.running


def test_server_that_dies_during_the_test_fails_it(tmp_path: Path) -> None:
    dies = GOOD.replace("signal.sigwait({signal.SIGTERM})", "raise SystemExit(9)")
    server = MagnetarProcess(command=stand_in(tmp_path, dies))
    with pytest.raises(ServerFailed, match="ended by itself with 9"), server:
        server.wait()


def test_a_server_that_has_ended_does_not_pass_the_check(tmp_path: Path) -> None:
    dies = GOOD.replace("signal.sigwait({signal.SIGTERM})", "print('no more', flush=True); sys.exit(9)")
    server = MagnetarProcess(command=stand_in(tmp_path, dies))
    server.start()
    server.wait()
    with pytest.raises(ServerFailed, match=r"(?s)ended by itself with 9.*no more"):
        server.check()
    with pytest.raises(ServerFailed, match="ended by itself with 9"):
        server.close()


LISTENS = """
    import socket, sys
    listening = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--kafka-port") + 1])))
    print("magnetar is ready", flush=True)
    def serve():
        while True:
            {then}
    serve()
"""


def test_a_server_that_answers_passes_the_check(tmp_path: Path) -> None:
    then = "one = listening.accept()[0]; one.recv(14); one.sendall(b'12345')"
    server = MagnetarProcess(command=stand_in(tmp_path, LISTENS.format(then=then)))
    server.start()
    server.check()
    server.kill()


def test_a_server_that_does_not_answer_is_aborted_and_says_where_it_was(tmp_path: Path) -> None:
    command = stand_in(tmp_path, LISTENS.format(then="pass"))
    with MagnetarProcess(command=command, environment={"PYTHONFAULTHANDLER": "1"}) as server:
        with pytest.raises(ServerFailed, match=r"(?s)did not answer .* within 0\.5 s, .* -6 .*in serve"):
            server.check(0.5)
        assert not server.running


def test_a_server_that_was_stopped_does_not_keep_the_check(tmp_path: Path) -> None:
    command = stand_in(tmp_path, LISTENS.format(then="import os; os.kill(os.getpid(), signal.SIGSTOP)"))
    with MagnetarProcess(command=command) as server:
        with pytest.raises(ServerFailed, match="ended with -9 when it was aborted"):
            server.check(0.5)
        assert not server.running


def test_server_that_ends_badly_on_sigterm_fails_the_test(tmp_path: Path) -> None:
    command = stand_in(tmp_path, GOOD + "    raise SystemExit(5)\n")
    with pytest.raises(ServerFailed, match="ended with 5 instead of 0"), MagnetarProcess(command=command):
        pass


def test_the_tests_own_failure_stays_the_headline(tmp_path: Path) -> None:
    command = stand_in(tmp_path, GOOD + "    raise SystemExit(5)\n")
    with pytest.raises(LookupError) as caught, MagnetarProcess(command=command):
        raise LookupError("what the test found")
    assert "ended with 5" in caught.value.__notes__[0]
