"""Small requests for very large answers, and requests of very many elements: others are served in between."""

from contextlib import ExitStack

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .wire import Wire, frame, payload, record_batch, resident_bytes

MIB = 1 << 20
COUNT = 250_000


def lives(wire: Wire, topic: str) -> None:
    for _ in range(20):
        offset = wire.produce(topic, record_batch([b"v"])).base_offset
        assert payload(wire.fetch(topic, offset))


def test_requests_of_a_quarter_of_a_million_elements_are_answered_beside_others(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    # Three of them held up all clients for four seconds.
    before = resident_bytes(server)
    rows = [ListOffsetsPartition(index, timestamp=-1) for index in range(COUNT)]
    asked = frame("list_offsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(topic, rows)]))
    with ExitStack() as stack:
        greedy = [stack.enter_context(Wire(server.ports[0])) for _ in range(3)]
        for one in greedy:
            one.send(asked)
        lives(wire, topic)
        found = [row for part in greedy[0].answer("list_offsets", 7).topics for row in part.partitions]
        assert [row.partition_index for row in found] == list(range(COUNT))
    assert resident_bytes(server) < before + 600 * MIB
    lives(wire, topic)


def test_a_topic_of_many_partitions_that_is_named_often_is_described_once(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    # 4 KB of names held the event loop for 7 s and took 650 MB.
    made = CreateTopicsRequest([CreatableTopic("vast", 10_000, 1)], 60_000)
    assert wire.ask("create_topics", 7, made).topics[0].error_code == 0
    before = resident_bytes(server)
    with Wire(server.ports[0]) as other:
        other.send(frame("metadata", 12, MetadataRequest([MetadataRequestTopic(name="vast")] * 200)))
        lives(wire, topic)
        told = other.answer("metadata", 12).topics
        assert [(one.name, len(one.partitions)) for one in told] == [("vast", 10_000)]
    assert resident_bytes(server) < before + 150 * MIB


def test_more_elements_than_can_be_handled_in_one_go_end_the_connection(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    rows = [PartitionProduceData(index, b"") for index in range(20_000)]
    with Wire(server.ports[0]) as other:
        other.send(
            frame(
                "produce",
                9,
                ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic, partition_data=rows)]),
            )
        )
        assert other.is_closed()
    answer = wire.ask(
        "produce",
        9,
        ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic, partition_data=rows[:8000])]),
    )
    assert all(row.error_code != ErrorCode.NONE for row in answer.responses[0].partition_responses)
    lives(wire, topic)
