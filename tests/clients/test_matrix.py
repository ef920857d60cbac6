"""Every client reads what every client wrote: content, order, timestamps and offsets, in each compression."""

import random
from collections.abc import Callable

import pytest

from tests.clients.adapters import CLIENTS, Client, Record, create_topic

# kafka-python leaves sockets for the garbage collector to close.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PARTITIONS = 2
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
SIZES = (1, 1 << 10, 100 << 10, 900 << 10)
SMALL_RECORDS = 300
BASE_MS = 1_700_000_000_123


def corpus() -> list[Record]:
    """Odd records on partition 0 between a long run of small ones on partition 1; the same every time."""
    source = random.Random(20260101)  # incompressible, so that 900 KiB stay 900 KiB on the wire
    odd: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"k", b"v", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (None, None, ()),
        (b"", b"", ()),
        (b"\x00\xff\xfe", b"\x00" * 9, (("binary", bytes(range(256))),)),
        (b"h", b"null header", (("null", None), ("empty", b""))),
        (b"h", b"twice", (("same", b"1"), ("same", b"2"), ("other", b"3"), ("same", b"1"))),
        ("schlüssel".encode(), "wert \U0001f9f2".encode(), (("gruß", b"x"),)),
        *((b"size", source.randbytes(size), ()) for size in SIZES),
    ]
    large = [Record(0, *fields, BASE_MS + 1000 * index) for index, fields in enumerate(odd)]
    # Timestamps that go backwards now and then: order is the log's, not the clock's.
    small = [
        Record(1, b"%d" % (n % 7), b"record %d" % n, (("n", b"%d" % n),), BASE_MS + n - 50 * (n % 11 == 0))
        for n in range(SMALL_RECORDS)
    ]
    every = SMALL_RECORDS // len(large)
    mixed: list[Record] = []
    for index, record in enumerate(large):
        mixed += [record, *small[index * every : (index + 1) * every]]
    return mixed + small[len(large) * every :]


CORPUS = corpus()


def corpus_for(producer: Client) -> list[Record]:
    return [record for record in CORPUS if producer.can_write(record)]


@pytest.fixture(scope="module")
def written(bootstrap: str) -> Callable[[Client, str], str]:
    """The topic that a producer wrote with a compression; written once, read by three consumers."""
    topics: dict[tuple[str, str], str] = {}

    def write(producer: Client, compression: str) -> str:
        at = (producer.name, compression)
        if at not in topics:
            topic = f"matrix-{producer.name}-{compression}-{random.SystemRandom().randrange(1 << 32):08x}"
            create_topic(bootstrap, topic, PARTITIONS)
            records = corpus_for(producer)
            offsets = producer.produce(bootstrap, topic, compression, records)
            assert offsets == expected_offsets(records)
            topics[at] = topic
        return topics[at]

    return write


def expected_offsets(records: list[Record]) -> list[int]:
    """Dense from 0 in each partition, in the order of writing."""
    following = [0] * PARTITIONS
    offsets = []
    for record in records:
        offsets.append(following[record.partition])
        following[record.partition] += 1
    return offsets


@pytest.mark.parametrize("consumer", CLIENTS, ids=lambda client: f"to-{client.name}")
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("producer", CLIENTS, ids=lambda client: f"from-{client.name}")
def test_what_one_client_writes_another_reads(
    bootstrap: str,
    written: Callable[[Client, str], str],
    producer: Client,
    compression: str,
    consumer: Client,
) -> None:
    topic = written(producer, compression)
    records = corpus_for(producer)
    found = consumer.consume(bootstrap, topic, PARTITIONS, len(records))
    expected = [record.at(offset) for record, offset in zip(records, expected_offsets(records), strict=True)]
    for partition in range(PARTITIONS):
        have = [record for record in found if record.partition == partition]
        want = [record for record in expected if record.partition == partition]
        assert [record.offset for record in have] == [record.offset for record in want]
        # One by one: a whole list of 900 KiB values is no help in a failure's text.
        for one, other in zip(have, want, strict=True):
            assert one.headers == other.headers, one.offset
            assert one.timestamp_ms == other.timestamp_ms, one.offset
            assert one.key == other.key, one.offset
            assert (one.value is None) == (other.value is None), one.offset
            assert len(one.value or b"") == len(other.value or b""), one.offset
            assert one == other, one.offset
