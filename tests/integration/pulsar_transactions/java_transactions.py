"""Pulsar's Java client, which has transactions, at the other end of a pipe: `TransactionsBridge.java`."""

from pathlib import Path

from tests.java_classes import with_pulsar
from tests.java_process import JavaProcess

_SOURCE = Path(__file__).with_name("TransactionsBridge.java")


class Refused(Exception):
    """The client says that something went wrong; the text begins with the class of its exception."""


class JavaTransactions(JavaProcess):
    def __init__(self, url: str, log: Path) -> None:
        class_path = with_pulsar(_SOURCE)
        super().__init__(["java", "-cp", class_path, "-Dlog4j2.level=error", _SOURCE.stem, url], log)

    def ask(self, *words: object) -> list[str]:
        """The words of the answer to a command.  Raises Refused."""
        self.begin(*words)
        return self.end()

    def begin(self, *words: object) -> None:
        """Give a command, the answer to which `end` waits for."""
        self.write(" ".join(map(str, words)) + "\n")

    def end(self) -> list[str]:
        for line in self.lines():
            status, _, rest = line.partition(" ")
            if status == "OK":
                return rest.split()
            if status == "FAILED":
                raise Refused(rest)
        raise AssertionError("the Java client has ended")
