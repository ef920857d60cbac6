"""Produce and Fetch of one partition, as most are: what the generated codec reads and writes, in a third of the steps.

Only what is plain: one topic with one partition, no transaction, no tagged field, nothing forgotten, and in the answer
no error.  Of Produce these are the flexible versions, as today's clients send them.  Of Fetch it is version 11: clients
without fetch sessions ask again and again for all that they read, while clients with sessions leave out what has not
changed.  All else, and every malformed frame, is left to the generated codec; the tests hold both to the same answers.
"""

from struct import Struct
from typing import Final

from magnetar.base.errors import WireError
from magnetar.wire.kafka.messages import fetch, produce
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magnetar.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magnetar.wire.kafka.runtime import DECODE_FAILURES, ZERO_UUID, Buffer, varint, varint_tail

_FLEXIBLE: Final = 9
_TOPIC_IDS_SINCE: Final = 13
_NO_TAGS: Final = (0, 0, 0)
_ONE: Final = 2  # the length of a compact array of one element

# transactional id (null), acks, timeout, topics; then the name's length, or the id
_unpack_named: Final = Struct(">BhiBB").unpack_from
_unpack_by_id: Final = Struct(">BhiB16s").unpack_from
# partitions, index, and the first two bytes of the records' length
_unpack_partition: Final = Struct(">BiBB").unpack_from
# of the partition, of its topic, of the request
_unpack_tags: Final = Struct(">BBB").unpack_from
# partitions; index, error code, base offset, append time, log start, record errors (none), error message (null), tags;
# tags of the topic; throttle time, tags of the response
_pack_row: Final = Struct(">BihqqqBxxxix").pack

_FETCH: Final = 11
# replica, longest wait, fewest and most bytes, isolation, session and its epoch; topics, and the name's length
_unpack_fetch: Final = Struct(">iiiibiiih").unpack_from
# partitions, index, leader epoch, offset, log start, most bytes; forgotten topics, and the length of the rack's name
_unpack_wanted: Final = Struct(">iiiqqiih").unpack_from
# throttle time, error code, session; topics, and the name's length
_pack_fetched: Final = Struct(">ihiih").pack
# partitions; index, error code, high watermark, last stable offset, log start, aborted transactions, preferred replica,
# the records' length
_pack_found: Final = Struct(">iihqqqiii").pack


def decode_produce_request(version: int, buffer: memoryview, position: int = 0) -> ProduceRequest:
    """As `produce.decode_request`."""
    if version >= _FLEXIBLE:
        try:
            request = _decode_one(version, buffer, position)
        except (WireError, *DECODE_FAILURES):
            request = None
        if request is not None:
            return request
    return produce.decode_request(version, buffer, position)


def _decode_one(version: int, buffer: memoryview, position: int) -> ProduceRequest | None:
    if version < _TOPIC_IDS_SINCE:
        transaction, acks, timeout_ms, topics, size = _unpack_named(buffer, position)
        position += 9
        stop = position + size - 1
        if transaction or topics != _ONE or not 0 < size < 128:
            return None
        name, topic_id = str(buffer[position:stop], "utf-8"), ZERO_UUID
        position = stop
    else:
        transaction, acks, timeout_ms, topics, topic_id = _unpack_by_id(buffer, position)
        if transaction or topics != _ONE:
            return None
        name = ""
        position += 24
    partitions, index, size, more = _unpack_partition(buffer, position)
    position += 6
    if size > 127:
        if more < 128:
            size += (more << 7) - 128
            position += 1
        else:
            size, position = varint_tail(buffer, position, size)
    stop = position + size - 1
    if partitions != _ONE or not size or _unpack_tags(buffer, stop) != _NO_TAGS:
        return None
    partition = PartitionProduceData(index, buffer[position:stop])
    return ProduceRequest(None, acks, timeout_ms, [TopicProduceData(name, topic_id, [partition])])


def encode_produce_response(version: int, message: ProduceResponse, out: list[Buffer]) -> None:
    """As `produce.encode_response`."""
    responses = message.responses
    if version >= _FLEXIBLE and len(responses) == 1 and not message.node_endpoints:
        topic = responses[0]
        rows = topic.partition_responses
        if len(rows) == 1:
            row = rows[0]
            if not (
                row.error_code or row.record_errors or row.error_message is not None or row.current_leader
            ):
                if version < _TOPIC_IDS_SINCE:
                    name = topic.name.encode()
                    key = varint(len(name) + 1) + name
                else:
                    key = topic.topic_id
                out.append(
                    b"\x02" + key + _pack_row(
                        _ONE, row.index, 0, row.base_offset, row.log_append_time_ms, row.log_start_offset, 1,
                        message.throttle_time_ms,
                    )
                )  # fmt: skip
                return
    produce.encode_response(version, message, out)


def decode_fetch_request(version: int, buffer: memoryview, position: int = 0) -> FetchRequest:
    """As `fetch.decode_request`."""
    if version == _FETCH:
        try:
            request = _decode_one_wanted(buffer, position)
        except DECODE_FAILURES:
            request = None
        if request is not None:
            return request
    return fetch.decode_request(version, buffer, position)


def _decode_one_wanted(buffer: memoryview, position: int) -> FetchRequest | None:
    replica_id, wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch, topics, size = (
        _unpack_fetch(buffer, position)
    )
    position += 31
    stop = position + size
    if topics != 1 or size < 0:
        return None
    name = str(buffer[position:stop], "utf-8")
    partitions, index, leader_epoch, offset, log_start, partition_bytes_max, forgotten, size = _unpack_wanted(
        buffer, stop
    )
    if partitions != 1 or forgotten or size:
        return None
    wanted = FetchPartition(index, leader_epoch, offset, -1, log_start, partition_bytes_max)
    return FetchRequest(
        None, replica_id, None, wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch,
        [FetchTopic(name, ZERO_UUID, [wanted])], [], "",
    )  # fmt: skip


def encode_fetch_response(version: int, message: FetchResponse, out: list[Buffer]) -> None:
    """As `fetch.encode_response`."""
    responses = message.responses
    if version == _FETCH and len(responses) == 1:
        topic = responses[0]
        rows = topic.partitions
        if len(rows) == 1:
            row = rows[0]
            records = row.records
            if row.aborted_transactions is None and isinstance(records, list):
                name = topic.topic.encode()
                out.append(
                    _pack_fetched(message.throttle_time_ms, message.error_code, message.session_id, 1, len(name))
                    + name
                    + _pack_found(
                        1, row.partition_index, row.error_code, row.high_watermark, row.last_stable_offset,
                        row.log_start_offset, -1, row.preferred_read_replica, sum(map(len, records)),
                    )
                )  # fmt: skip
                out += records
                return
    fetch.encode_response(version, message, out)
