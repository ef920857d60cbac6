"""A Java program over Kafka's jars that runs beside a test, is killed by it and started again."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.class_archives import options_of
from tests.java_classes import with_kafka
from tests.peers import kafka_jars

OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=warn")


class ProgramFailed(Exception):
    """The program has ended, or does not say what it should; the text carries the end of what it said."""


class JavaProgram:
    """The process of one main class, by the same command each time; what it prints is kept over all its lives."""

    def __init__(
        self, main: str, arguments: list[str], *, source: Path | None = None, timeout_s: float
    ) -> None:
        class_path = f"{kafka_jars()}/*" if source is None else with_kafka(source)
        self._command = ["java", *OPTIONS, *options_of("kafka"), "-cp", class_path, main, *arguments]
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._changed = threading.Condition()
        self._is_open = False
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def tail(self) -> str:
        return "\n".join(self.lines[-40:])

    def start(self) -> None:
        assert not self.running
        self._is_open = True
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone and all that it printed is here."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def terminate(self) -> int:
        """SIGTERM, and wait; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.ends()

    def ends(self) -> int:
        """Wait until it ends by itself; its exit code."""
        self._wait(lambda: not self._is_open, "its end")
        return self._ended()

    def says(self, text: str, since: int = 0) -> str:
        """Wait for a line that has this text, among those from number `since` on; the line."""

        def found() -> str | None:
            return next((line for line in self.lines[since:] if text in line), None)

        self._wait(lambda: found() is not None or not self._is_open, repr(text))
        line = found()
        if line is None:
            raise ProgramFailed(f"it has ended and did not say {text!r}:\n{self.tail}")
        return line

    def wait_until(self, holds: Callable[[list[str]], bool], what: str) -> None:
        """Until this is true of all lines so far."""
        self._wait(lambda: holds(self.lines) or not self._is_open, what)
        if not holds(self.lines):
            raise ProgramFailed(f"it has ended before {what}:\n{self.tail}")

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(holds, self._timeout_s):
                raise ProgramFailed(f"not within {self._timeout_s:g} s: {what}\n{self.tail}")

    def _ended(self) -> int:
        assert self._process is not None
        assert self._reader is not None
        code = self._process.wait()
        self._reader.join()
        return code

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
