"""Readers that wait at the end of a topic of many partitions, and one record at a time for all of them.

The load is ours, because what is measured is the server: clients of a library would cost more than it does.  There are
two kinds of readers.  Those without a fetch session name all partitions in each Fetch (librdkafka does so, in version
11); those with one name only what has changed (KIP-227, as Kafka's Java client does).

A round is one record to one partition, acknowledged, and the answers of all readers with it, after which each of them
asks again.
"""

import selectors
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Final, NamedTuple

from kafka.record.default_records import DefaultRecordBatchBuilder

from bench.connection import PATIENCE_S, Connection
from bench.process import RunFailed
from magnetar.wire.kafka.messages import asking, fetch, produce

WAIT_MS: Final = 500  # the longest wait of a Fetch, as clients have it by default
PLAIN, IN_SESSION = 11, 12
_PRODUCE: Final = 9
_VALUE: Final = bytes(100)


class Rounds(NamedTuple):
    """`delivered`: records that readers have got; `produce_s`: how long each acknowledgement took."""

    delivered: int
    produce_s: list[float]


class Reader:
    """One group's only member, which reads all partitions."""

    def __init__(self, connection: Connection, topic: str, partitions: int, version: int) -> None:
        self.connection = connection
        self._topic = topic
        self._version = version
        self._rows = [
            fetch.FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20)
            for index in range(partitions)
        ]
        self._session_id = 0
        self._epoch = 0 if version == IN_SESSION else -1
        self.got = 0

    def ask(self, rows: list[fetch.FetchPartition] | None = None) -> None:
        """Ask for what is new; in a session only `rows` have changed."""
        wanted = rows if self._session_id and rows is not None else self._rows
        request = fetch.FetchRequest(
            replica_id=-1, max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=50 << 20,
            session_id=self._session_id, session_epoch=self._epoch,
            topics=[fetch.FetchTopic(self._topic, partitions=wanted)] if wanted else [],
        )  # fmt: skip
        self.connection.say(fetch.API_KEY, self._version, request)

    def hear(self) -> None:
        """Take what has come, and ask for more."""
        for frame in self.connection.frames():
            start = 1 if self._version == IN_SESSION else 0  # a flexible header has tags
            answer = asking.load(fetch.API_KEY).decode_response(self._version, memoryview(frame), start)
            if answer.error_code:
                raise RunFailed(f"a reader was answered with error {answer.error_code}")
            if self._version == IN_SESSION:
                self._session_id = answer.session_id
                self._epoch += 1
            moved = []
            for topic in answer.responses:
                for row in topic.partitions:
                    if row.error_code:
                        raise RunFailed(f"a reader's partition was answered with error {row.error_code}")
                    if row.records:
                        wanted = self._rows[row.partition_index]
                        self.got += row.high_watermark - wanted.fetch_offset
                        wanted.fetch_offset = row.high_watermark
                        moved.append(wanted)
            self.ask(moved)


class Tails:
    """A topic's readers, and its producer."""

    def __init__(self, producer: Connection, readers: list[Reader], topic: str, partitions: int) -> None:
        self._producer = producer
        self._readers = readers
        self._topic = topic
        self._partitions = partitions
        self._numbers = count()
        self._selector = selectors.DefaultSelector()
        self._selector.register(producer.socket, selectors.EVENT_READ, None)
        for reader in readers:
            self._selector.register(reader.connection.socket, selectors.EVENT_READ, reader)
            reader.ask()
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
        builder.append(0, int(time.time() * 1000), None, _VALUE, [])
        self._batch = bytes(builder.build())

    def run(self, rounds: int) -> Rounds:
        """RunFailed if a record does not come."""
        before = sum(reader.got for reader in self._readers)
        times = [self._round() for _ in range(rounds)]
        return Rounds(sum(reader.got for reader in self._readers) - before, times)

    def _round(self) -> float:
        wanted = [reader.got + 1 for reader in self._readers]
        row = produce.PartitionProduceData(next(self._numbers) % self._partitions, self._batch)
        topic = produce.TopicProduceData(self._topic, partition_data=[row])
        began_s = time.perf_counter()
        self._producer.say(
            produce.API_KEY, _PRODUCE, produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        )
        took_s = None
        give_up_s = time.monotonic() + PATIENCE_S
        while took_s is None or any(
            reader.got < least for reader, least in zip(self._readers, wanted, strict=True)
        ):
            if time.monotonic() > give_up_s:
                raise RunFailed("a record did not come to all readers")
            ready = self._selector.select(1.0)
            # The acknowledgement first: reading answers takes this program as long as the server takes for them.
            for key, _ in sorted(ready, key=lambda event: event[0].data is not None):
                if key.data is not None:
                    key.data.hear()
                elif list(self._producer.frames()):
                    took_s = time.perf_counter() - began_s
        return took_s

    def close(self) -> None:
        self._selector.close()


@contextmanager
def tails(
    host: str, port: int, topic: str, *, readers: int, partitions: int, version: int
) -> Iterator[Tails]:
    """`readers` that wait at the end of an empty topic."""
    with ExitStack() as opened:
        connections = []
        for _ in range(readers + 1):
            connections.append(Connection(host, port))
            opened.callback(connections[-1].socket.close)
        members = [Reader(one, topic, partitions, version) for one in connections[1:]]
        found = Tails(connections[0], members, topic, partitions)
        opened.callback(found.close)
        yield found
