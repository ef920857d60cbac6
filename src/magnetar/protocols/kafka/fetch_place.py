"""Whether the offset that a fetch requests is in the partition's log, and the response's rows without records.

Epochs are compared by KIP-320 (the leader epoch that the client knows) and KIP-595 (the epoch of its last record).
"""

from enum import Enum, auto
from typing import Final

from magnetar.broker.usecases.handles import ReadablePartition
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.leaders import leader_error
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    LeaderIdAndEpoch,
    PartitionData,
)


class Place(Enum):
    """`INSIDE`: the row has the log's start and end, and the caller adds records.  Otherwise the row is complete."""

    INSIDE = auto()
    OUTSIDE = auto()
    ELSEWHERE = auto()
    """The client must ask another broker, which the row names."""


INSIDE: Final = Place.INSIDE  # the usual result, without a look-up in the class


def place_of(
    context: RequestContext, wanted: FetchPartition, partition: ReadablePartition, row: PartitionData
) -> Place:
    """The place of `wanted`; fills in `row` accordingly."""
    log = partition.log
    code = leader_error(context, partition, wanted.current_leader_epoch)
    if code:
        refuse(row, code)
        if code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return Place.OUTSIDE
        row.current_leader = LeaderIdAndEpoch(partition.leader_id, log.leader_epoch)
        return Place.ELSEWHERE
    row.high_watermark = log.high_watermark
    row.last_stable_offset = partition.last_stable_offset
    row.log_start_offset = log.log_start
    if wanted.last_fetched_epoch >= 0:
        end = log.epoch_end(wanted.last_fetched_epoch)
        if end is None:
            refuse(row, ErrorCode.OFFSET_OUT_OF_RANGE)
            return Place.OUTSIDE
        if end.leader_epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
            row.diverging_epoch = EpochEndOffset(end.leader_epoch, end.end_offset)
            return Place.OUTSIDE
    if not log.log_start <= wanted.fetch_offset <= log.next_offset:
        refuse(row, ErrorCode.OFFSET_OUT_OF_RANGE)
        return Place.OUTSIDE
    return INSIDE


def is_at_end(node_id: int, wanted: FetchPartition, partition: ReadablePartition) -> bool:
    """Whether it is certain, at little cost, that the place of `wanted` is inside, and that there is nothing to read.

    Most partitions of most fetches are so: a client that follows a topic names all of its partitions.
    """
    log = partition.log
    if wanted.fetch_offset != log.high_watermark or partition.leader_id != node_id:
        return False
    epoch = log.leader_epoch
    return wanted.current_leader_epoch in (-1, epoch) and wanted.last_fetched_epoch in (-1, epoch)


def row_at_end(partition: ReadablePartition, index: int, reads_committed: bool) -> PartitionData:
    """The row of a partition in which there is nothing to read."""
    log = partition.log
    return PartitionData(
        index,
        0,
        log.high_watermark,
        partition.last_stable_offset,
        log.log_start,
        aborted_transactions=[] if reads_committed else None,
        records=b"",  # not null: librdkafka treats a null record set as a protocol error
    )


def refuse(row: PartitionData, code: ErrorCode) -> None:
    """Answer a partition with only an error."""
    row.error_code = code
    # Not the real high watermark: librdkafka interprets an error at the high watermark as the end of the log.
    row.high_watermark = row.last_stable_offset = -1
