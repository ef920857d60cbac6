"""`magnetar sql` as a user starts it: exit codes, what goes where, and the prompt at a terminal."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.spark.writers import Writers

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

SQL = [sys.executable, "-c", "from magnetar.cli.main import main; main()", "sql", "--master", "local[2]"]
ANSWER_S = 240.0  # for a machine with other things to do: it is ten seconds on an idle one


@pytest.fixture
def numbers(writers: Writers, topic: Callable[[], str]) -> str:
    name = topic().replace("-", "_")
    writers.kafka(name, [(f"k{i}".encode(), str(i).encode()) for i in range(100)])
    return name


def run(server: MagnetarProcess, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*SQL, "--url", server.http_url, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )


def test_rows_are_on_standard_output_and_nothing_else_is(
    server: MagnetarProcess, numbers: str, tmp_path: Path
) -> None:
    text = "cast(cast(value as string) as int)"
    done = run(
        server,
        "--output",
        "json",
        f"select {text} as n from {numbers} where __offset < 3 order by 1; select 1 as one",
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"n": 0},
        {"n": 1},
        {"n": 2},
        {"one": 1},
    ]
    assert "(3 rows, " in done.stderr
    assert "WARN" not in done.stderr

    file = tmp_path / "numbers.parquet"
    done = run(
        server, "--output", "parquet", "--output-file", str(file), f"select {text} as n from {numbers}"
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert sorted(pq.read_table(file).column("n").to_pylist()) == list(range(100))


def test_a_pipe_of_statements_ends_at_the_first_that_fails(server: MagnetarProcess, numbers: str) -> None:
    done = run(
        server,
        "--output",
        "csv",
        stdin=f"select count(*) as n from {numbers};\nselect cast('x' as int) from {numbers}; select 2 as two;",
    )
    assert done.returncode == 1
    assert done.stdout == '"n"\n100\n'
    (complaint,) = [line for line in done.stderr.splitlines() if line.startswith("magnetar: ")]
    assert "cannot be cast" in complaint
    done = run(server, "select * from nowhere_at_all")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no topic nowhere_at_all" in done.stderr


class Terminal:
    """A person at a prompt."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._fd, inside = pty.openpty()
        self._process = subprocess.Popen(
            arguments,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "PYTHONFAULTHANDLER": "1", **environment},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(inside)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, pattern: str) -> str:
        """What came up to and with `pattern`, since it was last asked."""
        give_up_at = time.monotonic() + ANSWER_S
        while (match := re.search(pattern, self.seen)) is None:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, give_up_at - time.monotonic()))
            assert ready, f"{pattern!r} did not come; what came is {self.seen!r}\n{self._stacks()}"
            try:
                data = os.read(self._fd, 65_536)
            except OSError:
                data = b""
            assert data, f"it ended before {pattern!r}; what came is {self.seen!r}"
            self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
        found, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return found

    def _stacks(self) -> str:
        """Where its threads stand, as Python says when it is told to abort."""
        self._process.send_signal(signal.SIGABRT)
        said = b""
        with contextlib.suppress(OSError):
            while select.select([self._fd], [], [], 10.0)[0] and (data := os.read(self._fd, 65_536)):
                said += data
        return said.decode(errors="replace")

    def end(self) -> int:
        with contextlib.suppress(OSError):
            while os.read(self._fd, 65_536):
                pass
        return self._process.wait(ANSWER_S)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(ANSWER_S)
        os.close(self._fd)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal to the process, as at a real terminal


@pytest.fixture
def terminal(server: MagnetarProcess, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal([*SQL, "--url", server.http_url], {"XDG_STATE_HOME": str(tmp_path)})
    try:
        yield opened
    finally:
        opened.close()


def test_a_session_at_the_prompt(terminal: Terminal, numbers: str, tmp_path: Path) -> None:
    terminal.expect("magnetar> ")
    terminal.type(f"select count(*) as n\nfrom {numbers};\n")
    assert re.search(r"\b100\b", terminal.expect(r"\(1 row, "))
    terminal.expect("magnetar> ")

    # A query that takes very long is cancelled, and the prompt is there again.
    terminal.type("select sum(a.id * b.id) from range(10000000) a cross join range(10000000) b;\n")
    terminal.expect(r"of \d+ tasks")
    terminal.type("\x03")
    terminal.expect("the query is cancelled")
    terminal.expect("magnetar> ")

    # Ctrl-C forgets half a statement; a statement that is wrong is explained.
    terminal.type("select 'half\n")
    terminal.expect(r"\.\.\.> ")
    terminal.type("\x03")
    terminal.expect("magnetar> ")
    terminal.type("select * frm x;\n")
    terminal.expect("magnetar: Syntax error")
    terminal.expect("magnetar> ")

    # The same data again: in time for a person.
    terminal.type(f"select max(__offset) as newest from {numbers};\n")
    assert "99" in terminal.expect(r"\(1 row, ")
    terminal.expect("magnetar> ")
    terminal.type("exit\n")
    assert terminal.end() == 0
    assert "cross join" in (tmp_path / "magnetar" / "sql_history").read_text()
