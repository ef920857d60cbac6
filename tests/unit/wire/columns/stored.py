"""A log as it lies in a segment file, and its rows as clients read them that we did not write."""

from typing import Any, NamedTuple

from crc32c import crc32c

from magnetar.ledger.entry_format import EntryPrefix
from magnetar.wire.columns import Columns
from magnetar.wire.convert import pulsar_to_kafka
from magnetar.wire.kafka.records import assign_offset, read_header
from magnetar.wire.pulsar.entry import EntryView, read_entry
from magnetar.wire.stored import RECORD, RECORD_REST
from tests.unit.wire.convert.records import Received, read_by_kafka

NOW_MS = 1_700_000_000_000
LEDGER = 9


class Seen(NamedTuple):
    """A row, as its columns say."""

    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Log:
    """Records of a store side by side, and the rows that Kafka's clients get of them."""

    def __init__(self, first_offset: int = 0) -> None:
        self.next_offset = first_offset
        self.parts: list[bytes] = []
        self.rows: list[Received] = []
        self._prefix = EntryPrefix()

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)

    def kafka(self, batch: Any, *, readable: bool = True) -> int:
        """Store a batch as a broker does; its base offset."""
        mine = bytearray(batch)
        header = read_header(memoryview(mine))
        base_offset = self.next_offset
        assign_offset(memoryview(mine), base_offset, 0)
        slots = header.last_offset_delta + 1
        prefix = self._prefix.kafka(NOW_MS, base_offset + slots - 1, slots)
        self.entry(prefix + mine, slots)
        if readable:
            self.rows += read_by_kafka(memoryview(mine))
        return base_offset

    def pulsar(self, view: EntryView, *, readable: bool = True) -> int:
        """Store what a Pulsar client sent; its base offset."""
        base_offset = self.next_offset
        count = view.num_messages
        prefix = self._prefix.pulsar(NOW_MS, base_offset + count - 1, count)
        self.entry(prefix + bytes(view.data), count)
        if readable:
            batch = pulsar_to_kafka(read_entry(view.data, verify=True), base_offset, 0)
            if not read_header(batch).is_control:
                self.rows += read_by_kafka(batch)
        return base_offset

    def entry(self, body: bytes, slots: int) -> None:
        """Store any bytes as an entry that takes so many offsets."""
        self.next_offset += slots
        rest = RECORD_REST.pack(LEDGER, len(self.parts), self.next_offset - 1, NOW_MS)
        checksum = crc32c(body, crc32c(rest))
        self.parts.append(
            RECORD.pack(len(body), checksum, LEDGER, len(self.parts), self.next_offset - 1, NOW_MS) + body
        )


def rows_of(columns: Columns) -> list[Seen]:
    """The rows of columns that have key, value, offset, timestamp and headers."""
    assert columns.key is not None
    assert columns.value is not None
    assert columns.offset is not None
    assert columns.timestamp_us is not None
    assert columns.headers is not None
    return [
        Seen(
            int(columns.offset[at]),
            int(columns.timestamp_us[at]),
            columns.key[at],
            columns.value[at],
            columns.headers[at],
        )
        for at in range(columns.count)
    ]


def expected(rows: list[Received]) -> list[Seen]:
    return [Seen(one.offset, one.timestamp_ms * 1000, one.key, one.value, list(one.headers)) for one in rows]
