"""The records that cross from one protocol to the other, and what the other side must see of them.

`docs/reference/interop.md` has the rules in words; this module states what they come to for a client.  It is
written against the page, not against the code that converts.
"""

import base64
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.clients.adapters import Record
from tests.clients.interop.interop_headers import ORDERING_KEY

BASE_MS = 1_700_000_000_123
MIB = 1 << 20
SMALL_COUNT = 60
HEADER_COUNTS = (0, 1, 2, 20)


@dataclass(frozen=True)
class Message:
    """What a Pulsar client shows of a message.  `key` is "" where there is none: clients do not tell these apart."""

    partition: int
    key: str
    value: bytes | None
    properties: Mapping[str, str]
    event_ms: int
    ordering_key: str = ""
    position: tuple[int, int, int] = (-1, -1, -1)  # ledger, entry, index in the batch
    index: int | None = None  # in the log, of a client that shows it


@dataclass(frozen=True)
class Mode:
    """How a producer packs: one message an entry, batches, or large messages in chunks."""

    compression: str = "none"
    packing: str = "plain"  # or batched, chunked

    def __str__(self) -> str:
        return f"{self.packing}-{self.compression}"


KAFKA_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PULSAR_COMPRESSIONS = ("none", "lz4", "zlib", "zstd", "snappy")
MODES = tuple(
    Mode(compression, packing) for packing in ("plain", "batched") for compression in PULSAR_COMPRESSIONS
)


def kafka_corpus(partition: int = 0) -> list[Record]:
    """Everything that Kafka's protocol can say, the small ones first; the same every time."""
    source = random.Random(20261121)  # incompressible, so that a MiB stays a MiB on the wire
    odd: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"k", b"v", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (b"", b"empty key", ()),
        (b"empty value", b"", ()),
        (b"\x00\xff\xfe", b"\x00" * 9, (("binary", bytes(range(256))),)),
        (b"h", b"null header", (("null", None), ("empty", b""))),
        (b"h", b"twice", (("same", b"1"), ("same", b"2"), ("other", b"3"), ("same", b"1"))),
        ("schlüssel".encode(), "wert \U0001f9f2".encode(), (("gruß", "grün".encode()),)),
        *(
            (b"%d headers" % count, b"v", tuple((f"h{n:02}", b"value %d" % n) for n in range(count)))
            for count in HEADER_COUNTS
        ),
        (
            b"mixed",
            b"v",
            tuple((f"h{n % 7}", None if n % 5 == 0 else source.randbytes(n)) for n in range(20)),
        ),
    ]
    small = [(b"%d" % (n % 7), b"record %d" % n, (("n", b"%d" % n),)) for n in range(SMALL_COUNT)]
    large: list[tuple[bytes, bytes, tuple[()]]] = [
        (b"large", source.randbytes(MIB), ()),
        (b"after", b"large", ()),
    ]
    # Timestamps go backwards now and then: order is the log's, not the clock's.
    return [
        Record(partition, key, value, headers, BASE_MS + 10 * n - 50 * (n % 11 == 0))
        for n, (key, value, headers) in enumerate([*odd, *small, *large])
    ]


def pulsar_corpus(partition: int = 0) -> list[Message]:
    """Everything that a Pulsar client can say of a message; keys and properties are text there."""
    source = random.Random(20261122)
    odd: list[tuple[str, bytes | None, dict[str, str]]] = [
        ("k", b"v", {}),
        ("", b"no key", {}),
        ("tombstone", None, {}),
        ("empty value", b"", {}),
        ("binary", bytes(range(256)), {}),
        ("schlüssel", "wert \U0001f9f2".encode(), {"gruß": "grün", "empty": ""}),
        *(
            (f"{count} properties", b"v", {f"p{n:02}": f"value {n}" for n in range(count)})
            for count in HEADER_COUNTS
        ),
    ]
    small = [(f"{n % 7}", b"message %d" % n, {"n": str(n)}) for n in range(SMALL_COUNT)]
    large: list[tuple[str, bytes, dict[str, str]]] = [
        ("large", source.randbytes(MIB), {}),
        ("after", b"large", {}),
    ]
    return [
        # Every fifth has no event time: then the time of publishing counts.
        Message(
            partition,
            key,
            value,
            properties,
            0 if n % 5 == 4 else BASE_MS + 10 * n,
            f"order-{n}" if n % 9 == 0 else "",
        )
        for n, (key, value, properties) in enumerate([*odd, *small, *large])
    ]


def key_in_pulsar(key: bytes | None) -> str:
    """Keys are text in Pulsar: one that is none comes as base64, with the flag that says so."""
    if key is None:
        return ""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return base64.b64encode(key).decode()


def seen_by_pulsar(record: Record) -> Message:
    """Headers are left out: `headers_of` gets them back from the properties."""
    return Message(record.partition, key_in_pulsar(record.key), record.value, {}, record.timestamp_ms)


def seen_by_kafka(message: Message) -> Record:
    """The order of headers is not compared: it is that of the properties on the wire, and clients have maps."""
    headers = tuple((name, value.encode()) for name, value in sorted(message.properties.items()))
    if message.ordering_key:
        headers += ((ORDERING_KEY, message.ordering_key.encode()),)
    key = message.key.encode() if message.key else None
    return Record(message.partition, key, message.value, headers, message.event_ms)


def without_properties(message: Message) -> Message:
    return replace(message, properties={}, position=(-1, -1, -1), index=None)


def strictly_increasing(positions: Sequence[tuple[int, int, int]]) -> bool:
    return all(one < other for one, other in itertools.pairwise(positions))
