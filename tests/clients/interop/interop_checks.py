"""The crossings themselves, for any client of either side: `tests/compat/java` runs them with Java's."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tests.clients.adapters import Record, create_topic
from tests.clients.interop.interop_corpus import (
    MIB,
    Message,
    Mode,
    kafka_corpus,
    pulsar_corpus,
    seen_by_kafka,
    seen_by_pulsar,
    strictly_increasing,
    without_properties,
)
from tests.clients.interop.interop_doors import Doors
from tests.clients.interop.interop_headers import by_name, headers_of

PARTITIONS = 2
CHUNKED_BYTES = 6 * MIB
LARGE_BYTES = 5 * MIB - 1024
LARGE_TOPIC = {"max.message.bytes": str(8 * MIB)}
FreshName = Callable[[str], str]
Position = tuple[int, int, int]  # ledger, entry, index in the batch


class KafkaSide(Protocol):
    name: str

    def can_write(self, record: Record) -> bool: ...
    def produce(
        self, bootstrap: str, topic: str, compression: str, records: Sequence[Record]
    ) -> list[int]: ...
    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Record]: ...


class PulsarSide(Protocol):
    name: str

    def produce(self, url: str, topic: str, mode: Mode, messages: Sequence[Message]) -> list[Position]: ...
    def consume(self, url: str, topic: str, count: int) -> list[Message]: ...


def kafka_to_pulsar(
    doors: Doors, fresh_name: FreshName, producer: KafkaSide, compression: str, readers: Sequence[PulsarSide]
) -> None:
    topic = _topic(doors, fresh_name)
    records = [record for n in range(PARTITIONS) for record in kafka_corpus(n) if producer.can_write(record)]
    producer.produce(doors.kafka, topic, compression, records)
    for reader in readers:
        _same_messages(reader.consume(doors.pulsar, topic, len(records)), records)


def pulsar_to_kafka(
    doors: Doors, fresh_name: FreshName, producer: PulsarSide, mode: Mode, readers: Sequence[KafkaSide]
) -> None:
    topic = _topic(doors, fresh_name)
    began = _now_ms()
    written: list[Message] = []
    for n in range(PARTITIONS):
        messages = pulsar_corpus(n)
        positions = producer.produce(doors.pulsar, f"{topic}-partition-{n}", mode, messages)
        assert strictly_increasing(positions)
        written += messages
    times = range(began, _now_ms() + 1)
    for reader in readers:
        _same_records(reader.consume(doors.kafka, topic, PARTITIONS, len(written)), written, times)


def chunks_are_one_record(
    doors: Doors,
    fresh_name: FreshName,
    producer: PulsarSide,
    readers: Sequence[KafkaSide],
) -> None:
    topic = fresh_name("chunked")
    big = bytes(range(256)) * (CHUNKED_BYTES // 256)
    messages = [
        Message(0, "before", b"1", {}, 1_700_000_000_000),
        Message(0, "big", big, {"kind": "chunked"}, 1_700_000_000_001),
        Message(0, "after", b"3", {}, 1_700_000_000_002),
    ]
    assert strictly_increasing(producer.produce(doors.pulsar, topic, Mode(packing="chunked"), messages))
    for reader in readers:
        found = reader.consume(doors.kafka, topic, 1, len(messages))
        # Each chunk has an offset of its own; the record stands at that of the last one.
        assert [record.offset for record in found] == [0, 2, 3]
        for record, message in zip(found, messages, strict=True):
            assert record.value == message.value, "the content differs"
            assert record == seen_by_kafka(message).at(record.offset)
    again = producer.consume(doors.pulsar, topic, len(messages))
    assert [message.value for message in again] == [message.value for message in messages]


def large_records_reach_pulsar(
    doors: Doors, fresh_name: FreshName, producer: KafkaSide, reader: PulsarSide
) -> None:
    """Nearly as large as Pulsar's clients take from a broker that has not told them a larger limit."""
    topic = _topic(doors, fresh_name)
    big = bytes(range(256)) * (LARGE_BYTES // 256)
    records = [
        Record(0, b"big", big, (), 1_700_000_000_000),
        Record(0, b"after", b"2", (), 1_700_000_000_001),
    ]
    producer.produce(doors.kafka, topic, "none", records)
    _same_messages(reader.consume(doors.pulsar, topic, len(records)), records)


def writers_take_turns(
    doors: Doors,
    fresh_name: FreshName,
    kafka: Sequence[KafkaSide],
    pulsar: Sequence[PulsarSide],
) -> None:
    """Both write one log, and all clients read the same one."""
    topic = _topic(doors, fresh_name)
    expected: list[bytes | None] = []
    for turn in range(6):
        values = [b"turn %d, message %d" % (turn, n) for n in range(7)]
        expected += values
        if turn % 2:
            messages = [Message(0, "k", value, {}, 1_700_000_000_000) for value in values]
            mode = Mode("zstd", "batched" if turn % 4 == 1 else "plain")
            pulsar[turn % len(pulsar)].produce(doors.pulsar, f"{topic}-partition-0", mode, messages)
        else:
            records = [Record(0, b"k", value, (), 1_700_000_000_000) for value in values]
            kafka[turn // 2 % len(kafka)].produce(doors.kafka, topic, "lz4", records)
    for reader in pulsar:
        seen = reader.consume(doors.pulsar, topic, len(expected))
        assert [message.value for message in seen] == expected
    for consumer in kafka:
        found = consumer.consume(doors.kafka, topic, PARTITIONS, len(expected))
        assert [record.value for record in found] == expected
        assert [record.offset for record in found] == list(range(len(expected)))


def _same_messages(have: Sequence[Message], want: Sequence[Record]) -> None:
    """Partition by partition: one by one, as a list of values of a MiB is no help in a failure's text."""
    for partition in range(PARTITIONS):
        found = [message for message in have if message.partition == partition]
        written = [record for record in want if record.partition == partition]
        assert len(found) == len(written)
        assert strictly_increasing([message.position for message in found])
        for offset, (message, record) in enumerate(zip(found, written, strict=True)):
            expected = seen_by_pulsar(record)
            assert headers_of(message.properties) == by_name(record.headers), offset
            assert (message.value is None) == (expected.value is None), offset
            assert len(message.value or b"") == len(expected.value or b""), offset
            assert without_properties(message) == expected, offset
            assert message.index in (None, offset)  # not every client shows it


def _same_records(have: Sequence[Record], want: Sequence[Message], times: range) -> None:
    """`times`: when the messages were published, which counts for those without an event time."""
    for partition in range(PARTITIONS):
        found = [record for record in have if record.partition == partition]
        written = [message for message in want if message.partition == partition]
        assert [record.offset for record in found] == list(range(len(written)))
        for record, message in zip(found, written, strict=True):
            expected = seen_by_kafka(message)
            assert by_name(record.headers) == by_name(expected.headers), record.offset
            assert record.key == expected.key, record.offset
            assert (record.value is None) == (expected.value is None), record.offset
            assert len(record.value or b"") == len(expected.value or b""), record.offset
            assert record.value == expected.value, record.offset
            if message.event_ms:
                assert record.timestamp_ms == message.event_ms, record.offset
            else:
                assert record.timestamp_ms in times, record.offset


def _topic(doors: Doors, fresh_name: FreshName) -> str:
    topic = fresh_name("interop")
    create_topic(doors.kafka, topic, PARTITIONS, LARGE_TOPIC)
    return topic


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
