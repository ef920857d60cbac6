"""Readers end where the bytes do, and nothing but WireError comes out of bad ones."""

import random
import struct
from copy import copy
from functools import cache
from typing import Any

import pytest

from magnetar.base.errors import WireError
from magnetar.wire.kafka.messages import (
    api_versions,
    asking,
    consumer_group_heartbeat,
    consumer_protocol_subscription,
    create_topics,
    fetch,
    find_coordinator,
    metadata,
    produce,
)
from magnetar.wire.kafka.messages.asking import api_versions as ask_api_versions
from magnetar.wire.kafka.messages.asking import fetch as ask_fetch
from magnetar.wire.kafka.messages.asking import metadata as ask_metadata
from magnetar.wire.kafka.messages.asking import produce as ask_produce
from magnetar.wire.kafka.runtime import (
    REQUEST_ELEMENTS_MAX,
    WHOLE_REQUEST_ELEMENTS_MAX,
    ZERO_UUID,
    Buffer,
    varint,
)
from tests.fuzz.kafka_instances import Case, messages, named

MESSAGES = messages()


@cache
def small_instance(case: Case) -> Any:
    """The instance with the shortest encoding that still has something in its arrays.  Nobody changes it."""
    rng = random.Random(str(case))
    candidates = sorted(
        (case.encode(message), i, message) for i, message in ((i, case.instance(rng)) for i in range(8))
    )
    return candidates[len(candidates) // 2][2]


# A test for each message and not for each version: of thousands of tests, pytest's share is most of what they cost.
each_message = pytest.mark.parametrize("name", MESSAGES)


@each_message
def test_a_message_cut_anywhere_is_refused(name: str) -> None:
    for case in MESSAGES[name]:
        with named(case):
            data = case.encode(small_instance(case))
            for size in range(len(data)):
                with pytest.raises(WireError):
                    case.decode(data[:size])


@each_message
def test_bytes_behind_the_last_field_of_a_response_are_refused(name: str) -> None:
    for case in MESSAGES[name]:
        with named(case):
            message = small_instance(case)
            data = case.encode(message) + b"\0"
            if case.kind != "response":  # a newer member's fields; what Kafka overlooks in a request
                assert case.decode(data) == message
            else:
                with pytest.raises(WireError, match="1 bytes behind its last field"):
                    case.decode(data)


@each_message
def test_reading_starts_at_the_position_given(name: str) -> None:
    for case in MESSAGES[name]:
        with named(case):
            message = small_instance(case)
            assert case.decode(b"\xaa" * 13 + case.encode(message), 13) == message


def is_flexible(case: Case) -> bool:
    since = getattr(case.module, "FLEXIBLE_SINCE", None)
    return since is not None and case.version >= since


FLEXIBLE = [name for name, versions in MESSAGES.items() if any(map(is_flexible, versions))]


@pytest.mark.parametrize("name", FLEXIBLE)
def test_unknown_tagged_fields_are_skipped(name: str) -> None:
    section = varint(2) + varint(9000) + varint(3) + b"abc" + varint(9001) + varint(200) + bytes(200)
    for case in filter(is_flexible, MESSAGES[name]):
        with named(case):
            message = copy(small_instance(case))
            for field in case.fields:
                if case.version in field.tagged:  # so that the outermost section is empty, and one byte
                    setattr(message, field.name, type(message)().__getattribute__(field.name))
            data = case.encode(message)
            assert data.endswith(b"\0")
            assert case.decode(data[:-1] + section) == message


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (b"\x01\xa8\x46\x05abc", "larger than the frame"),
        (b"\x01\xa8\x46\xff\xff\xff\xff\x0f", "larger than the frame"),
        (b"\x01\xff\xff\xff\xff\xff\x01\x00", "longer than 5 bytes"),
        (b"\x01\xff\xff\xff\xff\x1f\x00", "does not fit 32 bits"),
        (b"\xff\xff\xff\xff\x0f" + b"\x05\x00" * 9, "4294967295 tagged fields are more"),
        (b"\x02\x07\x00", "index out of"),
    ],
)
def test_a_broken_tagged_section_is_refused(section: bytes, reason: str) -> None:
    body = b"".join(encoded(ask_produce.encode_request, 9, produce.ProduceRequest()))[:-1]
    with pytest.raises(WireError, match=reason):
        produce.decode_request(9, memoryview(body + section))


def encoded(encode: Any, version: int, message: object) -> list[Buffer]:
    out: list[Buffer] = []
    encode(version, message, out)
    return out


def test_a_known_tagged_field_of_another_size_than_stated_is_refused() -> None:
    cluster_id = b"\x03ab"
    good = b"".join(encoded(ask_fetch.encode_request, 12, fetch.FetchRequest(cluster_id="ab")))
    assert good.endswith(b"\x01\x00\x03" + cluster_id)
    for size in (2, 4):
        bad = good[: -len(cluster_id) - 1] + bytes((size,)) + cluster_id + b"\0"
        with pytest.raises(WireError):
            fetch.decode_request(12, memoryview(bad))


@pytest.mark.parametrize("count", [1, 100, 0x7FFFFFFF])
def test_an_array_that_cannot_fit_is_refused_before_it_is_built(count: int) -> None:
    classic = struct.pack(">hhii", -1, 1, 0, count)
    with pytest.raises(WireError, match=f"topic_data claims {count} elements"):
        produce.decode_request(3, memoryview(classic))
    compact = b"\0" + struct.pack(">hi", 1, 0) + varint(count + 1)
    with pytest.raises(WireError, match=f"topic_data claims {count} elements"):
        produce.decode_request(9, memoryview(compact))


def many_topics(topics: int, tail: bytes) -> memoryview:
    """A Produce v9 request of as many empty topics, of three bytes each."""
    return memoryview(b"\0" + struct.pack(">hi", 1, 0) + varint(topics + 1) + b"\x01\x01\0" * topics + tail)


def test_a_request_has_a_budget_of_elements() -> None:
    most = WHOLE_REQUEST_ELEMENTS_MAX
    assert len(produce.decode_request(9, many_topics(most, b"\0")).topic_data) == most
    with pytest.raises(WireError, match="topic_data claims 16385 elements"):
        produce.decode_request(9, many_topics(most + 1, b"\0"))


def test_what_is_handled_in_pieces_may_have_more_elements() -> None:
    def named(count: int) -> memoryview:
        return memoryview(struct.pack(">i", count) + b"\0\1t" * count)

    assert len(metadata.decode_request(1, named(REQUEST_ELEMENTS_MAX)).topics or ()) == REQUEST_ELEMENTS_MAX
    with pytest.raises(WireError, match="topics claims 262145 elements"):
        metadata.decode_request(1, named(REQUEST_ELEMENTS_MAX + 1))


def test_nested_arrays_and_tagged_fields_share_the_budget() -> None:
    half = WHOLE_REQUEST_ELEMENTS_MAX // 2
    partitions = struct.pack(">i", half) + struct.pack(">ii", 0, -1) * half
    for topics, refused in ((1, False), (2, True)):
        body = struct.pack(">hhii", -1, 1, 0, topics) + (b"\0\x01t" + partitions) * topics
        if refused:  # two halves and the two topics themselves
            with pytest.raises(WireError, match="partition_data claims 8192 elements"):
                produce.decode_request(3, memoryview(body))
        else:
            produce.decode_request(3, memoryview(body))
    tags = varint(half) + b"\x07\0" * half
    produce.decode_request(9, many_topics(half, tags))
    with pytest.raises(WireError, match="8192 tagged fields are more"):
        produce.decode_request(9, many_topics(half + 1, tags))


def test_the_answer_to_a_tool_may_be_larger_than_a_request() -> None:
    brokers = REQUEST_ELEMENTS_MAX + 1
    body = struct.pack(">i", brokers) + struct.pack(">ihi", 0, 0, 0) * brokers + bytes(4)
    assert len(ask_metadata.decode_response(0, memoryview(body)).brokers) == brokers


def test_an_array_of_numbers_that_cannot_fit_is_refused() -> None:
    body = (
        struct.pack(">i", 1) + struct.pack(">h", 1) + b"t" + struct.pack(">ihiii", 1, 1, 1, 0, 5) + bytes(16)
    )
    with pytest.raises(WireError, match=r"broker_ids claims 5 elements"):
        create_topics.decode_request(4, memoryview(body))


@pytest.mark.parametrize("length", [-2, -32768])
def test_minus_one_is_the_only_negative_length(length: int) -> None:
    with pytest.raises(WireError, match=f"transactional_id has length {length}"):
        produce.decode_request(3, memoryview(struct.pack(">hhii", length, 1, 0, 0)))


@pytest.mark.parametrize("length", [-1, -2])
def test_null_is_refused_where_the_version_has_none(length: int) -> None:
    with pytest.raises(WireError, match=r"MetadataRequest\.topics has length"):
        metadata.decode_request(0, memoryview(struct.pack(">i", length)))
    with pytest.raises(WireError, match=r"FindCoordinatorRequest\.key has length"):
        find_coordinator.decode_request(0, memoryview(struct.pack(">h", length)))
    with pytest.raises(WireError, match=r"TopicProduceData\.name has length -1"):
        produce.decode_request(9, memoryview(b"\0" + struct.pack(">hi", 1, 0) + b"\x02\0\x01\0\0"))
    assert metadata.decode_request(1, memoryview(struct.pack(">i", -1))).topics is None


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireError, match="utf-8"):
        find_coordinator.decode_request(0, memoryview(b"\0\x02\xff\xfe"))


def test_a_compact_string_is_at_most_as_long_as_a_classic_one_can_be() -> None:
    name = "x" * 32767
    data = b"".join(encoded(ask_api_versions.encode_request, 3, api_versions.ApiVersionsRequest(name)))
    assert api_versions.decode_request(3, memoryview(data)).client_software_name == name
    data = b"".join(encoded(ask_api_versions.encode_request, 3, api_versions.ApiVersionsRequest(name + "x")))
    with pytest.raises(WireError, match="32768 bytes is longer"):
        api_versions.decode_request(3, memoryview(data))


@pytest.mark.parametrize("version", [-1, 2, 14, 99])
def test_a_version_that_is_not_there_is_refused(version: int) -> None:
    with pytest.raises(WireError, match=f"ProduceRequest has no version {version}"):
        produce.decode_request(version, memoryview(b""))
    with pytest.raises(WireError, match=f"ProduceResponse has no version {version}"):
        produce.encode_response(version, produce.ProduceResponse(), [])


def test_records_are_a_slice_of_what_came_in() -> None:
    message = produce.ProduceRequest(
        acks=-1,
        topic_data=[
            produce.TopicProduceData(
                name="t",
                partition_data=[produce.PartitionProduceData(0, b"batch"), produce.PartitionProduceData(1)],
            )
        ],
    )
    frame = bytearray(b"".join(encoded(ask_produce.encode_request, 9, message)))
    first, second = produce.decode_request(9, memoryview(frame)).topic_data[0].partition_data
    assert isinstance(first.records, memoryview)
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(first.records) == b"Batch"
    assert second.records is None


@pytest.mark.parametrize("version", [4, 12, 18])
def test_records_go_out_as_the_very_objects_that_were_given(version: int) -> None:
    parts: list[Buffer] = [b"one", memoryview(b"three"), bytearray(b"four")]
    partitions = [
        fetch.PartitionData(0, records=parts),
        fetch.PartitionData(1, records=parts[1]),
        fetch.PartitionData(2, records=None),
        fetch.PartitionData(3, records=[]),
    ]
    response = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=partitions)])
    out = encoded(fetch.encode_response, version, response)
    for part in parts:
        assert any(sent is part for sent in out)
    read = ask_fetch.decode_response(version, memoryview(b"".join(out))).responses[0].partitions
    assert [None if p.records is None else bytes(p.records) for p in read] == [  # type: ignore[arg-type]
        b"onethreefour",
        b"three",
        None,
        b"",
    ]


def test_fields_that_a_version_lacks_read_as_their_defaults() -> None:
    response = produce.PartitionProduceResponse(
        3, 0, 7, log_append_time_ms=5, log_start_offset=2, error_message="no"
    )
    message = produce.ProduceResponse([produce.TopicProduceResponse("t", b"i" * 16, [response])])
    read = ask_produce.decode_response(3, memoryview(b"".join(encoded(produce.encode_response, 3, message))))
    assert read.responses[0].topic_id == ZERO_UUID
    assert read.responses[0].partition_responses == [
        produce.PartitionProduceResponse(3, 0, 7, 5, -1, [], None)
    ]


def test_null_in_a_version_that_has_none_is_our_own_mistake() -> None:
    topic = metadata.MetadataResponseTopic(name=None)
    with pytest.raises(AssertionError, match="name cannot be null in v9"):
        metadata.encode_response(9, metadata.MetadataResponse(topics=[topic]), [])


def test_a_nullable_struct_has_a_byte_that_says_whether_it_is_there() -> None:
    heartbeat = consumer_group_heartbeat
    absent = b"".join(encoded(heartbeat.encode_response, 0, heartbeat.ConsumerGroupHeartbeatResponse()))
    assert absent.endswith(b"\xff\0")
    present = heartbeat.ConsumerGroupHeartbeatResponse(assignment=heartbeat.Assignment())
    data = b"".join(encoded(heartbeat.encode_response, 0, present))
    assert data.endswith(b"\x01\x01\0\0")
    assert asking.load(heartbeat.API_KEY).decode_response(0, memoryview(data)) == present


def test_a_subscription_of_a_newer_member_is_read_as_far_as_we_know_it() -> None:
    subscription = consumer_protocol_subscription.ConsumerProtocolSubscription(["t"], b"u", rack_id="r")
    data = b"".join(encoded(consumer_protocol_subscription.encode, 3, subscription)) + b"from v4"
    assert consumer_protocol_subscription.decode(3, memoryview(data)) == subscription


def test_librdkafkas_request_for_all_topics_is_read() -> None:
    # It writes the null array of topics as four bytes where one is right (2.15.1, every Metadata from v9 on).
    request = metadata.decode_request(13, memoryview(bytes(4) + b"\x01\x00\x00"))
    assert request.topics is None
