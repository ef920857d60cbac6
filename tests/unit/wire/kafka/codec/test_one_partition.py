"""Produce and Fetch of one partition are read and written as by the generated codec, whatever there is in it."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.wire.kafka import one_partition
from magnetar.wire.kafka.messages import asking, fetch, produce
from magnetar.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from magnetar.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from magnetar.wire.kafka.one_partition import (
    decode_fetch_request,
    decode_produce_request,
    encode_fetch_response,
    encode_produce_response,
)

VERSIONS = range(produce.VERSIONS[0], produce.VERSIONS[1] + 1)
INT16, INT32 = st.integers(-(1 << 15), (1 << 15) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UUID = st.binary(min_size=16, max_size=16)
NAMES = st.sampled_from(["", "t", "größe", "n" * 126, "n" * 127, "n" * 249])
RECORDS = st.sampled_from(
    [None, *(bytes(size) for size in (0, 1, 61, 125, 126, 127, 200, 16_382, 16_383, 70_000))]
)

some_partitions = st.lists(st.builds(PartitionProduceData, INT32, RECORDS), max_size=2)
some_topics = st.lists(st.builds(TopicProduceData, NAMES, UUID, some_partitions), max_size=2)
requests = st.builds(ProduceRequest, st.sampled_from([None, None, "", "id"]), INT16, INT32, some_topics)

rows = st.builds(
    PartitionProduceResponse,
    INT32,
    st.sampled_from([0, 0, 0, 3]),
    INT64,
    INT64,
    INT64,
    st.lists(st.builds(BatchIndexAndErrorMessage, INT32, st.none()), max_size=1),
    st.sampled_from([None, None, "", "why"]),
    st.sampled_from([None, None, LeaderIdAndEpoch(1, 2)]),
)
responses = st.builds(
    ProduceResponse,
    st.lists(st.builds(TopicProduceResponse, NAMES, UUID, st.lists(rows, max_size=2)), max_size=2),
    INT32,
    st.sampled_from([[], [], [NodeEndpoint(1, "host", 9092, None)]]),
)
A_BATCH = TopicProduceData("t", bytes(16), [PartitionProduceData(0, bytes(200))])


wanted = st.builds(FetchPartition, INT32, INT32, INT64, st.just(-1), INT64, INT32)
fetches = st.builds(
    FetchRequest,
    replica_id=INT32, max_wait_ms=INT32, min_bytes=INT32, max_bytes=INT32, isolation_level=st.integers(0, 1),
    session_id=INT32, session_epoch=INT32,
    topics=st.lists(st.builds(FetchTopic, NAMES, st.just(bytes(16)), st.lists(wanted, max_size=2)), max_size=2),
    forgotten_topics_data=st.sampled_from([[], [], [ForgottenTopic("t", bytes(16), [1])]]),
    rack_id=st.sampled_from(["", "", "rack"]),
)  # fmt: skip
ONE_FETCH = FetchRequest(replica_id=-1, max_bytes=1, topics=[FetchTopic("t", bytes(16), [FetchPartition(0)])])

found = st.builds(
    PartitionData, INT32, st.sampled_from([0, 3]), INT64, INT64, INT64, st.none(), st.none(), st.none(),
    st.sampled_from([None, None, [], [AbortedTransaction(1, 2)]]), INT32,
    st.sampled_from([None, b"", b"abc", [b"abc"], [b"abc", b"d"]]),
)  # fmt: skip
fetched = st.builds(
    FetchResponse, INT32, st.sampled_from([0, 3]), INT32,
    st.lists(st.builds(FetchableTopicResponse, NAMES, UUID, st.lists(found, max_size=2)), max_size=2),
)  # fmt: skip


def wire_of(version: int, request: Any, codec: Any = produce) -> bytes:
    parts: list[Any] = []
    asking.load(codec.API_KEY).encode_request(version, request, parts)
    return b"".join(parts)


def outcome(decode: Any, version: int, data: bytes) -> object:
    try:
        return decode(version, memoryview(data), 0)
    except WireError as error:
        return str(error)


@given(st.sampled_from(VERSIONS), requests, st.binary(max_size=3))
def test_a_request_says_the_same(version: int, request: ProduceRequest, behind: bytes) -> None:
    data = wire_of(version, request) + behind
    assert outcome(decode_produce_request, version, data) == outcome(produce.decode_request, version, data)


@given(st.sampled_from(VERSIONS), st.data())
def test_damage_is_told_in_the_same_words(version: int, data: st.DataObject) -> None:
    frame = bytearray(wire_of(version, ProduceRequest(None, -1, 30_000, [A_BATCH])))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, min(len(frame) - 1, 48)))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    for one in (bytes(frame), cut):
        assert outcome(decode_produce_request, version, one) == outcome(produce.decode_request, version, one)


@given(st.sampled_from(VERSIONS), responses)
@example(13, ProduceResponse([TopicProduceResponse("", b"i" * 16, [PartitionProduceResponse(7, 0, 5)])], 9))
def test_a_response_has_the_same_bytes(version: int, response: ProduceResponse) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    encode_produce_response(version, response, ours)
    produce.encode_response(version, response, theirs)
    assert b"".join(ours) == b"".join(theirs)


@pytest.mark.parametrize("version", range(9, 14))
def test_one_partition_needs_no_generated_codec(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = wire_of(version, ProduceRequest(None, -1, 30_000, [A_BATCH]))
    expected = produce.decode_request(version, memoryview(data))
    answer = ProduceResponse([TopicProduceResponse("t", bytes(16), [PartitionProduceResponse(0, 0, 5)])])
    monkeypatch.setattr(one_partition, "produce", None)
    assert decode_produce_request(version, memoryview(data)) == expected
    parts: list[Any] = []
    encode_produce_response(version, answer, parts)
    assert len(parts) == 1


@given(st.sampled_from([10, 11, 12]), fetches, st.binary(max_size=3))
def test_a_fetch_says_the_same(version: int, request: FetchRequest, behind: bytes) -> None:
    data = wire_of(version, request, fetch) + behind
    assert outcome(decode_fetch_request, version, data) == outcome(fetch.decode_request, version, data)


@given(st.data())
def test_damage_of_a_fetch_is_told_in_the_same_words(data: st.DataObject) -> None:
    frame = bytearray(wire_of(11, ONE_FETCH, fetch))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    for one in (bytes(frame), cut):
        assert outcome(decode_fetch_request, 11, one) == outcome(fetch.decode_request, 11, one)


@given(st.sampled_from([10, 11, 12]), fetched)
def test_what_was_fetched_has_the_same_bytes(version: int, response: FetchResponse) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    encode_fetch_response(version, response, ours)
    fetch.encode_response(version, response, theirs)
    assert b"".join(ours) == b"".join(theirs)


def test_a_fetch_of_one_partition_needs_no_generated_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    data = wire_of(11, ONE_FETCH, fetch)
    monkeypatch.setattr(one_partition, "fetch", None)
    assert decode_fetch_request(11, memoryview(data)) == ONE_FETCH
    row = PartitionData(0, aborted_transactions=None, records=[b"abc"])
    parts: list[Any] = []
    encode_fetch_response(11, FetchResponse(responses=[FetchableTopicResponse("t", bytes(16), [row])]), parts)
    assert parts[1:] == [b"abc"]
