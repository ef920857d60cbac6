"""Pulsar's Java client, which has transactions, at the other end of a pipe: `TransactionsBridge.java`."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers import PEERS_HOME, installed

_SOURCE = Path(__file__).with_name("TransactionsBridge.java")
_STOP_S = 20.0


class Refused(Exception):
    """The client says that something went wrong; the text begins with the class of its exception."""


class JavaTransactions:
    def __init__(self, url: str, log: Path) -> None:
        installed("pulsar")
        (libraries,) = PEERS_HOME.glob("apache-pulsar-*/lib")
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            ["java", "-cp", f"{libraries}/*", "-Dlog4j2.level=error", str(_SOURCE), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def ask(self, *words: object) -> list[str]:
        """The words of the answer to a command.  Raises Refused."""
        self.begin(*words)
        return self.end()

    def begin(self, *words: object) -> None:
        """Give a command, the answer to which `end` waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def end(self) -> list[str]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            status, _, rest = line.rstrip("\n").partition(" ")
            if status == "OK":
                return rest.split()
            if status == "FAILED":
                raise Refused(rest)
        raise AssertionError("the Java client has ended")
