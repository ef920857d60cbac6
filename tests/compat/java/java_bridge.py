"""Java's Kafka and Pulsar clients with the faces of the interop tests: `Bridge.java` at the other end of a pipe."""

import base64
from collections.abc import Sequence
from pathlib import Path

from tests.clients.adapters import Record
from tests.clients.interop.interop_corpus import Message, Mode, key_in_pulsar
from tests.clients.interop.interop_doors import Doors
from tests.java_process import JavaProcess

NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()


class JavaFailed(AssertionError):
    """A command failed on the Java side; the trace is in the bridge's log."""


class Bridge(JavaProcess):
    def __init__(self, class_path: str, doors: Doors, log: Path) -> None:
        super().__init__(["java", "-cp", class_path, "Bridge", doors.kafka, doors.pulsar], log)

    def ask(self, words: Sequence[str | int], lines: Sequence[str] = ()) -> list[str]:
        """Send a command with its lines; returns the lines of the answer."""
        self.write("\n".join(["\t".join(str(word) for word in words), *lines, ""]))
        answer: list[str] = []
        for line in self.lines():
            if line == "OK":
                return answer
            if line.startswith("FAILED"):
                raise JavaFailed(line)
            answer.append(line)
        raise JavaFailed("the Java process has ended")


class JavaKafka:
    name = "java-kafka"

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def can_write(self, record: Record) -> bool:
        return True

    def produce(self, bootstrap: str, topic: str, compression: str, records: Sequence[Record]) -> list[int]:
        lines = [
            _line(record.partition, record.timestamp_ms, record.key, record.value, record.headers)
            for record in records
        ]
        answer = self._bridge.ask(["kafka-produce", topic, compression, len(lines)], lines)
        return [int(offset) for offset in answer]

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Record]:
        found = []
        for line in self._bridge.ask(["kafka-consume", topic, partitions, count]):
            partition, time_ms, key, value, headers, offset = line.split("\t")
            found.append(
                Record(int(partition), _bytes(key), _bytes(value), _pairs(headers), int(time_ms), int(offset))
            )
        return found


class JavaPulsar:
    name = "java-pulsar"

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def produce(
        self, url: str, topic: str, mode: Mode, messages: Sequence[Message]
    ) -> list[tuple[int, int, int]]:
        lines = []
        for message in messages:
            headers = [(name, text.encode()) for name, text in message.properties.items()]
            key = message.key.encode() if message.key else None
            line = _line(message.partition, message.event_ms, key, message.value, headers)
            lines.append(f"{line}\t{_text(message.ordering_key.encode() or None)}")
        words: list[str | int] = ["pulsar-produce", topic, mode.packing, mode.compression, len(lines)]
        return [_position(line.split(":")) for line in self._bridge.ask(words, lines)]

    def consume(self, url: str, topic: str, count: int) -> list[Message]:
        found = []
        for line in self._bridge.ask(["pulsar-consume", topic, count]):
            partition, time_ms, key, value, properties, where, ordering_key = line.split("\t")
            *position, index = where.split(":")
            found.append(
                Message(
                    int(partition),
                    key_in_pulsar(_bytes(key)),
                    _bytes(value),
                    {name: (text or b"").decode() for name, text in _pairs(properties)},
                    int(time_ms),
                    (_bytes(ordering_key) or b"").decode(),
                    _position(position),
                    None if index == "~" else int(index),
                )
            )
        return found


def _line(
    partition: int,
    time_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> str:
    pairs = ",".join(f"{_text(name.encode())}:{_text(content)}" for name, content in headers)
    return "\t".join([str(partition), str(time_ms), _text(key), _text(value), pairs])


def _text(data: bytes | None) -> str:
    return "~" if data is None else base64.b64encode(data).decode()


def _bytes(text: str) -> bytes | None:
    return None if text == "~" else base64.b64decode(text)


def _pairs(text: str) -> tuple[tuple[str, bytes | None], ...]:
    if not text:
        return NO_HEADERS
    pairs = [pair.split(":") for pair in text.split(",")]
    return tuple((base64.b64decode(name).decode(), _bytes(value)) for name, value in pairs)


def _position(words: Sequence[str]) -> tuple[int, int, int]:
    ledger, entry, index = words
    return (int(ledger), int(entry), int(index))
