"""Small requests that stand for millions of records: off the loop, within budgets, with every producer's order kept."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from crc32c import crc32c

from magnetar.broker.interop import lookups as interop_offsets
from magnetar.broker.log.batch_check import RECORD_ERRORS_MAX, RECORDS_MAX
from magnetar.broker.topics.model import NewTopic
from magnetar.protocols.kafka.session import KafkaSession
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_configs, heartbeat, list_offsets, produce
from magnetar.wire.kafka.messages.asking import describe_configs as ask_describe_configs
from magnetar.wire.kafka.messages.asking import list_offsets as ask_list_offsets
from magnetar.wire.kafka.messages.asking import produce as ask_produce
from magnetar.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.broker.test_opening import Gate
from tests.unit.protocols.kafka.test_session_life import Peer, request

Run = Callable[..., None]
MILLION = 1_000_000
KEYLESS = bytes([12, 0, 0, 0, 1, 0, 0])  # a record of 7 bytes: deltas 0, no key, an empty value, no headers
KEYED = bytes([14, 0, 0, 0, 2, 107, 0, 0])
NOW_MS = 1_700_000_000_000
PRODUCE_VERSION = 9


def batch(
    records: bytes, count: int, codec: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytearray:
    times = (NOW_MS, NOW_MS)
    checked = struct.pack(">hiqqqhii", codec, count - 1, *times, *producer, count) + records
    return bytearray(struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked)


def bomb(record: bytes, count: int, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytearray:
    return batch(bytes(cramjam.zstd.compress(record * count)), count, 4, producer)


def produce_of(data: bytes | bytearray, topic: str = "compacted", acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        topic_data=[TopicProduceData(topic, partition_data=[PartitionProduceData(0, memoryview(data))])],
    )


async def make(client: Any, name: str, policy: str) -> Any:
    topics = client.broker.topics
    wanted = NewTopic(client.broker.kafka_topics.name(name), 1, configs={"cleanup.policy": policy})
    await topics.create([topics.plan(wanted)])
    return client.broker.kafka_topics.get(name).partition(0)


async def produced(client: Any, data: bytes | bytearray, topic: str = "compacted") -> Any:
    response = await client.ask("produce", PRODUCE_VERSION, produce_of(data, topic))
    return response.responses[0].partition_responses[0]


class ListeningPeer(Peer):
    """Wakes the test at every answer."""

    def __init__(self) -> None:
        super().__init__()
        self._sent = asyncio.Event()

    def send(self, parts: list[Any]) -> None:
        super().send(parts)
        self._sent.set()

    async def until_answered(self, count: int) -> list[int]:
        """The correlation ids of the answers, once there are `count`."""
        while len(ids := self.answered()) < count:
            self._sent.clear()
            await self._sent.wait()
        return ids


class Connection:
    """One connection to the broker, without its socket."""

    def __init__(self, client: Any, connection_id: int) -> None:
        self.peer = ListeningPeer()
        node = next(iter(client.broker.nodes.by_id.values()))
        service = client.service
        self.session = KafkaSession(
            service, self.peer, node, "PLAINTEXT", connection_id, "127.0.0.1", "127.0.0.1"
        )

    def send(self, data: bytes) -> None:
        while data:
            room = self.session.get_buffer()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.session.received(size)

    def produce(self, data: bytes | bytearray, correlation_id: int, acks: int = -1) -> None:
        self.send(request(produce, PRODUCE_VERSION, produce_of(data, acks=acks), correlation_id))

    async def answers(self, count: int) -> list[Any]:
        """The responses to Produce requests, in order, once there are `count`."""
        await self.peer.until_answered(count)
        found = []
        view = memoryview(self.peer.bytes)
        while len(view):
            (size,) = struct.unpack_from(">i", view)
            # Behind the correlation id there is one byte: no tagged fields.
            found.append(ask_produce.decode_response(PRODUCE_VERSION, view[9 : 4 + size]))
            view = view[4 + size :]
        return [one.responses[0].partition_responses[0] for one in found]


def gated(client: Any) -> Gate:
    return Gate(client.broker.opener)


def test_a_lookup_by_time_in_a_million_records_leaves_the_loop_to_others(with_broker: Run) -> None:
    """It decompressed and made objects of all records on the event loop: all clients waited for seconds."""

    async def scenario(client: Any) -> None:
        await make(client, "plain", "delete")
        assert (await produced(client, bomb(KEYLESS, MILLION), "plain")).error_code == ErrorCode.NONE
        gate = gated(client)
        await gate.close(2)
        bomber, other = Connection(client, 1), Connection(client, 2)
        wanted = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("plain", [ListOffsetsPartition(0, -1, NOW_MS)])])
        bomber.send(request(list_offsets, 5, wanted))
        for correlation_id in range(3):
            other.send(request(heartbeat, 0, HeartbeatRequest("g", 0, "m"), correlation_id))
            await other.peer.until_answered(correlation_id + 1)
        assert bomber.peer.answered() == []
        gate.open.set()
        await bomber.peer.until_answered(1)
        row = ask_list_offsets.decode_response(5, memoryview(bomber.peer.bytes)[8:]).topics[0].partitions[0]
        assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.NONE, 0, NOW_MS)
        assert client.broker.opener.large_done == 1

    with_broker(scenario)


def test_the_newest_record_is_looked_for_within_budgets_too(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "plain", "delete")
        await produced(client, bomb(KEYLESS, MILLION), "plain")
        wanted = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("plain", [ListOffsetsPartition(0, -1, -3)])])
        row = (await client.ask("list_offsets", 7, wanted)).topics[0].partitions[0]
        assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.NONE, 0, NOW_MS)
        assert client.broker.opener.large_done == 1

    with_broker(scenario)


def test_a_lookup_that_finds_only_claims_is_given_up_when_its_client_has(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interop_offsets, "SEARCH_S_MAX", -1.0)

    async def scenario(client: Any) -> None:
        await make(client, "plain", "delete")
        lying = bytearray(batch(KEYLESS, 1))
        struct.pack_into(">q", lying, 35, NOW_MS + 1000)  # a greatest time that no record has
        struct.pack_into(">I", lying, 17, crc32c(lying[21:]))
        for _ in range(2):
            assert (await produced(client, lying, "plain")).error_code == ErrorCode.NONE
        wanted = ListOffsetsRequest(
            -1, 0, [ListOffsetsTopic("plain", [ListOffsetsPartition(0, -1, NOW_MS + 1)])]
        )
        row = (await client.ask("list_offsets", 7, wanted)).topics[0].partitions[0]
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT

    with_broker(scenario)


def test_a_million_keyless_records_get_a_hundred_error_rows(with_broker: Run) -> None:
    """One row for each record made an answer of 60 MB out of 671 bytes."""

    async def scenario(client: Any) -> None:
        await make(client, "compacted", "compact")
        answer = await produced(client, bomb(KEYLESS, MILLION))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [row.batch_index for row in answer.record_errors] == list(range(RECORD_ERRORS_MAX))
        assert f"{MILLION} records" in answer.error_message
        assert client.broker.opener.large_done == 1

    with_broker(scenario)


def test_small_batches_of_a_compacted_topic_are_looked_into_at_once(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "compacted", "compact")
        for data in (batch(KEYED, 1), bomb(KEYED, 100)):
            assert (await produced(client, data)).error_code == ErrorCode.NONE
        opener = client.broker.opener
        assert (opener.small_done, opener.large_done) == (0, 0)

    with_broker(scenario)


@pytest.mark.parametrize(
    ("size", "codec"), [(1 << 20, 4), (20 << 10, 0)], ids=["many behind compression", "many as they are"]
)
def test_a_few_records_of_many_bytes_are_not_looked_into_on_the_loop(
    with_broker: Run, size: int, codec: int
) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "compacted", "compact")
        value = bytes(
            [size << 1 & 0x7F | 0x80, size >> 6 & 0x7F | 0x80, size >> 13 & 0x7F | 0x80, size >> 20]
        )
        body = bytes([0, 0, 0, 2, 107]) + value + bytes(size) + b"\0"
        length = len(body)
        head = bytes(
            [length << 1 & 0x7F | 0x80, length >> 6 & 0x7F | 0x80, length >> 13 & 0x7F | 0x80, length >> 20]
        )
        data = bomb(head + body, 1) if codec else batch(head + body, 1)
        assert (await produced(client, data)).error_code == ErrorCode.NONE
        assert client.broker.opener.small_done == 1

    with_broker(scenario)


def test_more_than_may_be_opened_gets_the_code_that_makes_a_producer_split_its_batch(
    with_broker: Run,
) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "compacted", "compact")
        zeros = bytes(cramjam.zstd.compress(bytes((256 << 20) + 1)))
        answer = await produced(client, batch(zeros, 1, 4))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        answer = await produced(client, bomb(KEYED, RECORDS_MAX + 1))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await produced(client, batch(KEYED, 1))).base_offset == 0

    with_broker(scenario)


@pytest.mark.parametrize(
    ("codec", "possible"),
    [(0, 14), (1, 100 * 1032 // 7), (2, 314), (3, 100 * 255 // 7), (4, 100 * 32768 // 7)],
)
def test_a_batch_claims_no_more_records_than_its_codec_can_have_made_of_its_bytes(
    with_broker: Run, codec: int, possible: int
) -> None:
    """Batches of other topics are not opened, so a claim would stand: a million offsets for a hundred bytes."""

    async def scenario(client: Any) -> None:
        partition = await make(client, "plain", "delete")
        answer = await produced(client, batch(bytes(100), possible + 1, codec), "plain")
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert partition.log.next_offset == 0
        answer = await produced(client, batch(bytes(100), possible, codec), "plain")
        assert answer.error_code == ErrorCode.NONE

    with_broker(scenario)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_compresses_best_is_within_what_its_codec_can_make(with_broker: Run, codec: str) -> None:
    number = ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    module = getattr(cramjam, codec)
    compress = module.compress_raw if codec == "snappy" else module.compress

    async def scenario(client: Any) -> None:
        await make(client, "plain", "delete")
        data = bytes(compress(KEYLESS * MILLION))
        assert (await produced(client, batch(data, MILLION, number), "plain")).error_code == ErrorCode.NONE

    with_broker(scenario)


def test_pipelined_batches_of_a_producer_keep_their_order_while_one_is_looked_into(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        partition = await make(client, "compacted", "compact")
        gate = gated(client)
        await gate.close(2)
        producer, other = Connection(client, 1), Connection(client, 2)
        producer.produce(bomb(KEYED, 5000, (7, 0, 0)), 1)
        producer.produce(batch(KEYED, 1, 0, (7, 0, 5000)), 2)  # small: it would be looked into at once
        producer.produce(bomb(KEYED, 3000, (7, 0, 5001)), 3)
        producer.produce(batch(KEYED, 1, 0, (7, 0, 8001)), 4)
        other.produce(batch(KEYED, 1), 1)
        producer.session.peer_is_slow(True)
        producer.session.peer_is_slow(False)  # reading on is not begun by this while a batch is at work
        (first,) = await other.answers(1)
        assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 0)
        assert partition.log.next_offset == 1, "what comes behind a batch at work waits for it"
        gate.open.set()
        answers = await producer.answers(4)
        assert [(one.error_code, one.base_offset) for one in answers] == [
            (ErrorCode.NONE, 1),
            (ErrorCode.NONE, 5001),
            (ErrorCode.NONE, 5002),
            (ErrorCode.NONE, 8002),
        ]
        assert producer.peer.reading

    with_broker(scenario)


def test_batches_of_one_request_keep_their_order_behind_one_that_is_looked_into(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "compacted", "compact")
        batches = [bomb(KEYED, 5000, (7, 0, 0)), batch(KEYED, 1, 0, (7, 0, 5000))]
        data = [PartitionProduceData(0, memoryview(one)) for one in batches]
        wanted = ProduceRequest(acks=-1, topic_data=[TopicProduceData("compacted", partition_data=data)])
        response = await client.ask("produce", PRODUCE_VERSION, wanted)
        answers = response.responses[0].partition_responses
        assert [(one.error_code, one.base_offset) for one in answers] == [(0, 0), (0, 5000)]

    with_broker(scenario)


def test_without_acknowledgements_the_order_is_kept_and_nothing_is_answered(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        partition = await make(client, "compacted", "compact")
        producer = Connection(client, 1)
        producer.produce(bomb(KEYED, 5000, (7, 0, 0)), 1, acks=0)
        producer.produce(bomb(KEYLESS, 5000, (7, 0, 5000)), 2, acks=0)
        producer.produce(batch(KEYED, 1, 0, (7, 0, 5000)), 3)
        (answer,) = await producer.answers(1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 5000)
        assert partition.log.next_offset == 5001

    with_broker(scenario)


def test_what_waits_for_its_turn_goes_with_its_client(with_broker: Run) -> None:
    """A client that sends a bomb and comes again with the next one must not leave a queue behind."""

    async def scenario(client: Any) -> None:
        partition = await make(client, "compacted", "compact")
        gate = gated(client)
        await gate.close(2)
        for connection_id in range(10):
            bomber = Connection(client, connection_id)
            bomber.produce(bomb(KEYED, 5000), 1)
            if connection_id % 2:
                await asyncio.sleep(0)  # its job is queued; the others' has not even begun
            bomber.session.closed()
        gate.open.set()
        await asyncio.gather(*gate.holders)
        assert (await produced(client, bomb(KEYED, 5000))).base_offset == 0
        assert partition.log.next_offset == 5000
        assert client.broker.opener.small_done == 3, "two that held the threads, and the last one"
        assert client.service.queued_bytes == 0

    with_broker(scenario)


def test_settings_of_very_many_resources_leave_turns_to_others(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "plain", "delete")
        asking, other = Connection(client, 1), Connection(client, 2)
        wanted = DescribeConfigsRequest([DescribeConfigsResource(2, "plain", None)] * 200)
        asking.send(request(describe_configs, 3, wanted))
        for correlation_id in range(3):
            other.send(request(heartbeat, 0, HeartbeatRequest("g", 0, "m"), correlation_id))
            await other.peer.until_answered(correlation_id + 1)
        assert asking.peer.answered() == []
        await asking.peer.until_answered(1)
        response = ask_describe_configs.decode_response(3, memoryview(asking.peer.bytes)[8:])
        assert len(response.results) == 200
        assert all(row.configs for row in response.results)

    with_broker(scenario)
