"""A Kafka broker that only answers: it keeps nothing, and has always what a consumer asks for.

    python -m bench.sink PORT

What a load generator reaches against it is the generator's own ceiling.  Every topic exists, with four partitions; the
number at the end of its name is the size of its records in bytes.  A batch that is produced is acknowledged; a Fetch is
answered with one batch of a megabyte for each partition, the same bytes each time under the offset that was asked for.
"""

import functools
import selectors
import socket
import sys
from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any, Final

from kafka.record.default_records import DefaultRecordBatchBuilder

from magnetar.base.errors import WireError
from magnetar.wire.kafka.header import encode_response_front, read_request_header
from magnetar.wire.kafka.messages import api_versions, fetch, list_offsets, metadata, produce

HOST: Final = "127.0.0.1"
PARTITIONS: Final = 4
BATCH_BYTES: Final = 1_000_000
END: Final = 1 << 40
FRAME_BYTES_MAX: Final = 64 << 20
_NODE: Final = 1
_BUFFER_BYTES: Final = 4 << 20
_EARLIEST: Final = -2
_LAST_OFFSET_DELTA_AT: Final = 23

Answer = Callable[[int, memoryview, int], Any]


@functools.cache
def batch(size: int) -> bytes:
    """A record batch of about a megabyte, of values of `size` bytes, at offset 0."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, BATCH_BYTES)
    value, number = bytes(size), 0
    while builder.append(number, 0, None, value, []) is not None:
        number += 1
    return bytes(builder.build())


class Answers:
    """What each API is answered.  Versions are few, so that no request has tags or topic ids."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends: dict[tuple[str, int], int] = {}
        self.apis: dict[int, tuple[Any, tuple[int, int], Answer]] = {
            produce.API_KEY: (produce, (3, 7), self._produce),
            fetch.API_KEY: (fetch, (4, 11), self._fetch),
            list_offsets.API_KEY: (list_offsets, (1, 2), self._list_offsets),
            metadata.API_KEY: (metadata, (0, 4), self._metadata),
            api_versions.API_KEY: (api_versions, (0, 4), self._api_versions),
        }

    def answer(self, frame: memoryview) -> list[Any]:
        """The parts of an answer with its front.  WireError for what is not served."""
        key, version, correlation_id, _, position = read_request_header(frame)
        if key not in self.apis:
            raise WireError(f"the sink does not serve API {key}")
        module, _, make = self.apis[key]
        parts: list[Any] = []
        module.encode_response(version, make(version, frame, position), parts)
        front = encode_response_front(sum(map(len, parts)), key, version, correlation_id)
        return [front, *parts]

    def _api_versions(self, _version: int, _frame: memoryview, _at: int) -> Any:
        rows = [api_versions.ApiVersion(key, low, high) for key, (_, (low, high), _) in self.apis.items()]
        return api_versions.ApiVersionsResponse(api_keys=rows)

    def _metadata(self, version: int, frame: memoryview, at: int) -> Any:
        asked = metadata.decode_request(version, frame, at)
        partitions = [
            metadata.MetadataResponsePartition(
                partition_index=index, leader_id=_NODE, replica_nodes=[_NODE], isr_nodes=[_NODE]
            )
            for index in range(PARTITIONS)
        ]
        topics = [
            metadata.MetadataResponseTopic(name=one.name, partitions=partitions) for one in asked.topics or ()
        ]
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(_NODE, HOST, self._port)],
            controller_id=_NODE,
            topics=topics,
        )

    def _produce(self, version: int, frame: memoryview, at: int) -> Any:
        asked = produce.decode_request(version, frame, at)
        topics = []
        for topic in asked.topic_data:
            rows = []
            for row in topic.partition_data:
                place = topic.name, row.index
                base = self._ends.get(place, 0)
                (delta,) = unpack_from(">i", row.records or bytes(64), _LAST_OFFSET_DELTA_AT)
                self._ends[place] = base + delta + 1
                rows.append(produce.PartitionProduceResponse(row.index, 0, base))
            topics.append(produce.TopicProduceResponse(topic.name, partition_responses=rows))
        return produce.ProduceResponse(responses=topics)

    def _list_offsets(self, version: int, frame: memoryview, at: int) -> Any:
        asked = list_offsets.decode_request(version, frame, at)
        topics = []
        for topic in asked.topics:
            rows = [
                list_offsets.ListOffsetsPartitionResponse(
                    row.partition_index, offset=0 if row.timestamp == _EARLIEST else END
                )
                for row in topic.partitions
            ]
            topics.append(list_offsets.ListOffsetsTopicResponse(topic.name, rows))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _fetch(self, version: int, frame: memoryview, at: int) -> Any:
        asked = fetch.decode_request(version, frame, at)
        topics = []
        for topic in asked.topics:
            records = memoryview(batch(int(topic.topic.rpartition("-")[2])))[8:]
            rows = [
                fetch.PartitionData(
                    row.partition,
                    high_watermark=END,
                    last_stable_offset=END,
                    aborted_transactions=None,
                    records=[pack(">q", row.fetch_offset), records],
                )
                for row in topic.partitions
            ]
            topics.append(fetch.FetchableTopicResponse(topic.topic, partitions=rows))
        return fetch.FetchResponse(responses=topics)


class Peer:
    """One client's connection; it blocks while an answer is sent."""

    def __init__(self, connection: socket.socket, answers: Answers) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._answers = answers
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0

    def heard(self) -> bool:
        """Take what has come, and answer what is complete; false when the client has gone."""
        count = self.socket.recv_into(memoryview(self._buffer)[self._filled :])
        if not count:
            return False
        self._filled += count
        begin, view = 0, memoryview(self._buffer)
        parts: list[Any] = []
        while self._filled - begin >= 4:
            (size,) = unpack_from(">i", view, begin)
            if not 0 < size <= FRAME_BYTES_MAX:
                raise WireError(f"a frame of {size} bytes")
            if self._filled - begin - 4 < size:
                break
            parts += self._answers.answer(view[begin + 4 : begin + 4 + size])
            begin += 4 + size
        self._send(parts)
        self._keep(begin, needed=4 + size if self._filled - begin >= 4 else 4)
        return True

    def _keep(self, begin: int, *, needed: int) -> None:
        """Move what is left to the front of a buffer in which the next frame has room."""
        left = self._filled - begin
        if needed > len(self._buffer):
            wider = bytearray(needed)
            wider[:left] = memoryview(self._buffer)[begin : self._filled]
            self._buffer = wider
        elif begin:
            self._buffer[:left] = bytes(memoryview(self._buffer)[begin : self._filled])
        self._filled = left

    def _send(self, parts: list[Any]) -> None:
        left = [memoryview(part).cast("B") for part in parts]
        while left:
            sent = self.socket.sendmsg(left[:256])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]


def serve(port: int) -> None:
    """Serve until the process is ended."""
    answers = Answers(port)
    selector = selectors.DefaultSelector()
    with socket.create_server((HOST, port)) as listening:
        selector.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    connection, _ = listening.accept()
                    selector.register(connection, selectors.EVENT_READ, Peer(connection, answers))
                    continue
                try:
                    is_there = key.data.heard()
                except (OSError, WireError) as error:
                    print(f"a connection ends: {error}", flush=True)
                    is_there = False
                if not is_there:
                    selector.unregister(key.fileobj)
                    key.data.socket.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
