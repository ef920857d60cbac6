"""What a reader takes from files and from the server is together what a consumer sees."""

import threading
from typing import Any

import pulsar
import pytest
from confluent_kafka import Producer

from magnetar.client.errors import NotFound, OutOfRange, Refused
from magnetar.client.rest import Located, Range, RestClient
from magnetar.ledger.entry import EntryKind
from magnetar.ledger.entry_format import decode_entry
from magnetar.storage.store import LedgerId
from magnetar.testing.server import MagnetarProcess

from .reading import from_server, read_range, values, whole_records
from .topics import TIMEOUT_S, consumed, make_topic, produce

pytestmark = pytest.mark.clients


def test_files_and_tail_hold_what_a_consumer_sees_while_both_protocols_write(
    server: MagnetarProcess, client: RestClient
) -> None:
    make_topic(server, "mixed", segment_bytes=str(3 << 20))
    written = threading.Event()

    def publish() -> None:
        made = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = made.create_producer(
            "mixed-partition-0", compression_type=pulsar.CompressionType.LZ4, block_if_queue_full=True
        )
        for number in range(1500):
            producer.send_async(f"{number}:".encode().ljust(2000, b"p"), None)
        producer.flush()
        made.close()

    def write() -> None:
        for _ in range(6):
            compressed: dict[str, Any] = {"compression.type": "zstd"}
            produce(server, "mixed", 500, **compressed)
            produce(server, "mixed", 2000)
        written.set()

    threads = [threading.Thread(target=publish), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    reads: list[tuple[Located, dict[int, bytes | None], dict[int, bytes | None]]] = []
    while not written.is_set() or not reads:
        reads.append(read_range(client, Range("mixed", 0)))
    for thread in threads:
        thread.join()
    produce(server, "mixed", 3)  # too little to be written to the file at once
    reads.append(read_range(client, Range("mixed", 0)))

    located, in_files, in_tail = reads[-1]
    everything = consumed(server, "mixed", located.high_watermark)
    assert len(everything) == 16_503
    assert len(located.segments) >= 3, located
    assert [one.sealed for one in located.segments[:-2]] != []
    for located, in_files, in_tail in reads:
        assert not set(in_files) & set(in_tail)
        found = in_files | in_tail
        assert found == {
            offset: value for offset, value in everything.items() if offset < located.high_watermark
        }
    assert any(in_files and in_tail for _, in_files, in_tail in reads)


@pytest.mark.parametrize("first", [0, 1, 999, 2500, 3999])
def test_a_range_is_read_from_its_nearest_cut(
    server: MagnetarProcess, client: RestClient, first: int
) -> None:
    if not client.topics("ranges"):
        make_topic(server, "ranges")
        produce(server, "ranges", 4000)
    located, in_files, in_tail = read_range(client, Range("ranges", 0, first, first + 500))
    found = in_files | in_tail
    wanted = range(first, min(first + 500, 4000))
    assert set(wanted) <= set(found)
    assert (located.from_offset, located.to_offset) == (first, wanted.stop)
    assert all(found[offset] == f"{offset}:".encode().ljust(1000, b"k") for offset in found)
    if located.segments:  # of four megabytes, no more than the range and what its batches hold besides
        assert located.segments[0].bytes < 2 << 20


def test_times_stand_for_the_first_record_at_or_after_them(
    server: MagnetarProcess, client: RestClient
) -> None:
    make_topic(server, "times")
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(10):
        producer.produce("times", b"x", partition=0, timestamp=1_000 + number * 100)
        producer.flush(TIMEOUT_S)
    located = client.segments([Range("times", 0, from_timestamp_ms=1_250, to_timestamp_ms=1_500)]).partitions[
        0
    ]
    assert (located.from_offset, located.to_offset) == (3, 5)
    behind = client.segments([Range("times", 0, from_timestamp_ms=9_999)]).partitions[0]
    assert (behind.from_offset, behind.to_offset, behind.tail_from) == (10, 10, 10)


def test_an_unknown_topic_is_an_error_of_its_row_only(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "known")
    known, unknown, beyond, wrong = client.segments(
        [Range("known", 0), Range("unknown", 0), Range("known", 1), Range("not a name", 0)]
    ).partitions
    assert known.error is None
    assert (known.full, known.segments, known.tail_from) == ("persistent://public/default/known", (), 0)
    assert (unknown.error, beyond.error) == ("UNKNOWN_TOPIC", "UNKNOWN_TOPIC")
    assert wrong.error == "INVALID_TOPIC_NAME"
    assert unknown.reason


def test_a_non_persistent_topic_is_refused_with_a_sentence(
    server: MagnetarProcess, client: RestClient
) -> None:
    name = "non-persistent://public/default/passing"
    made = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    made.create_producer(name)
    located = client.segments([Range(name, 0)]).partitions[0]
    with pytest.raises(Refused, match="not persistent") as refusal:
        client.entries(name, 0, 0)
    made.close()
    assert located.error == refusal.value.code == "NON_PERSISTENT"
    assert "passing" not in [topic.topic for topic in client.topics()]


def test_entries_outside_of_the_log_are_refused(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "short")
    produce(server, "short", 3)
    assert client.entries("short", 0, 3).data == b""
    with pytest.raises(OutOfRange, match="from 0 to 3"):
        client.entries("short", 0, 4)
    with pytest.raises(NotFound) as unknown:
        client.entries("shorter", 0, 0)
    assert unknown.value.code == "UNKNOWN_TOPIC"


def test_topics_are_listed_by_pattern(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "listed-a", 3)
    make_topic(server, "listed-b")
    names = [(topic.topic, topic.full, topic.partitions) for topic in client.topics("listed-.*")]
    assert names == [
        ("listed-a", "persistent://public/default/listed-a", 3),
        ("listed-b", "persistent://public/default/listed-b", 1),
    ]
    assert [topic.topic for topic in client.topics("persistent://public/default/listed-a")] == ["listed-a"]
    assert client.topics("listed") == []
    with pytest.raises(Refused, match="regular expression"):
        client.topics("(")


def test_a_reader_that_waits_is_woken_by_an_append(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "awaited")
    located = client.segments([Range("awaited", 0)]).partitions[0]
    timer = threading.Timer(0.3, produce, (server, "awaited", 1))
    timer.start()
    answer = client.entries("awaited", 0, 0, wait_ms=20_000)
    timer.join()
    assert answer.high_watermark == 1
    assert answer.data
    assert located.high_watermark == 0
    assert from_server(client, client.segments([Range("awaited", 0)]).partitions[0])


def test_what_pulsar_clients_sent_is_given_as_kafka_batches_too(
    server: MagnetarProcess, client: RestClient
) -> None:
    make_topic(server, "converted")
    made = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = made.create_producer("converted-partition-0", compression_type=pulsar.CompressionType.ZSTD)
    for number in range(20):
        producer.send(f"{number}".encode() * 300)
    producer.close()
    chunked = made.create_producer("converted-partition-0", chunking_enabled=True, batching_enabled=False)
    long = bytes(range(256)) * 50_000  # of more than the 5 MiB that one message may have
    chunked.send(long)
    made.close()
    produce(server, "converted", 5)
    end = client.offsets([("converted", 0, None)])[0].high_watermark
    found: dict[int, bytes | None] = {}
    offset = 0
    while offset < end:
        answer = client.entries("converted", 0, offset, bytes_max=1 << 20, as_kafka=True)
        for ledger, stored in whole_records(memoryview(answer.data)):
            entry = decode_entry(LedgerId(ledger), stored)
            assert entry.kind is EntryKind.KAFKA
            assert entry.base_offset == offset
            offset = entry.last_offset + 1
        found |= values(memoryview(answer.data))[0]
    assert found == consumed(server, "converted", end)
    assert long in found.values()
    assert b"7" * 300 in found.values()


def test_many_small_entries_are_given_in_one_answer(server: MagnetarProcess, client: RestClient) -> None:
    make_topic(server, "small")
    produce(server, "small", 3000, size=10, **{"batch.num.messages": 1})
    answer = client.entries("small", 0, 17, bytes_max=8 << 20, end_offset=2500)
    found, consumed_bytes = values(memoryview(answer.data))
    assert consumed_bytes == len(answer.data)
    assert sorted(found) == list(range(17, 2500))
    whole = len(answer.data)
    some, _ = values(memoryview(client.entries("small", 0, 17, bytes_max=whole // 2).data))
    assert 1000 < len(some) < 1500
    assert sorted(some) == list(range(17, 17 + len(some)))
