"""The hand-packed Metadata v4 exchange, against kio: another implementation of both of its ends."""

import io
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.metadata.v4.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

from bench import probe


def _topic(name: str, *, leader: int = 0, error: ErrorCode = ErrorCode.none) -> MetadataResponseTopic:
    node = BrokerId(0)
    partition = MetadataResponsePartition(
        error_code=ErrorCode.none,
        partition_index=i32(0),
        leader_id=BrokerId(leader),
        replica_nodes=(node, node),
        isr_nodes=(node,),
    )
    return MetadataResponseTopic(error_code=error, name=TopicName(name), partitions=(partition, partition))


def _response() -> bytes:
    answer = MetadataResponse(
        throttle_time=i32Timedelta.parse(timedelta(milliseconds=7)),
        brokers=(MetadataResponseBroker(node_id=BrokerId(0), host="localhost", port=i32(9092), rack=None),),
        cluster_id="c" * 22,
        controller_id=BrokerId(0),
        topics=(
            _topic("good"),
            _topic("leaderless", leader=-1),
            _topic("faulty", error=ErrorCode.leader_not_available),
            _topic("fine"),
        ),
    )
    buffer = io.BytesIO()
    buffer.write((1).to_bytes(4, "big"))
    entity_writer(MetadataResponse)(buffer, answer)
    return buffer.getvalue()


@pytest.mark.parametrize("all_topics", [False, True])
def test_request_is_what_another_reader_expects(all_topics: bool) -> None:
    frame = probe.request(all_topics=all_topics)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, size = entity_reader(RequestHeader)(frame, 4)
    body, body_size = entity_reader(MetadataRequest)(frame, 4 + size)
    assert (header.request_api_key, header.request_api_version) == (3, 4)
    assert body.topics is None if all_topics else body.topics == ()
    assert body.allow_auto_topic_creation is False
    assert 4 + size + body_size == len(frame)


def test_only_topics_without_error_and_with_leaders_are_serving() -> None:
    answer = probe.parse(_response())
    assert (answer.brokers, answer.topics, answer.topics_serving) == (1, 4, 2)


def test_every_cut_response_is_a_value_error() -> None:
    whole = _response()
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="cut short"):
            probe.parse(whole[:length])
