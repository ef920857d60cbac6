"""ListOffsets: the log's start and end, and offsets by record time.

Served: v1-11.  Special timestamps: -1 latest (the high watermark; for readers of committed records the last stable
offset), -2 earliest, -3 the first record with the greatest timestamp (KIP-734). -4 is the earliest local offset
(KIP-405), which is equal to earliest, because all data is local. -5 is the latest tiered offset (none: -1).  For any
other timestamp the server finds the first record at or after it, not only the batch.  It looks at a few partitions at a
time; a thread looks at the records of a batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from magnetar.base.errors import BrokerError, WireError
from magnetar.broker.log.model import TimestampLookup
from magnetar.broker.usecases.handles import PartitionHandle
from magnetar.broker.usecases.reading import OffsetLookup
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.leaders import leader_error
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import list_offsets as codec
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

VERSIONS = (1, 11)
PIECES = Pieces("topics", "partitions", "topics")

_TIERED_SINCE: Final = {
    TimestampLookup.MAX_TIMESTAMP: 7,
    TimestampLookup.EARLIEST_LOCAL: 8,
    TimestampLookup.LATEST_TIERED: 9,
}

_READ_COMMITTED: Final = 1
_SEARCHES_AT_A_TIME: Final = 4


def handle(
    context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    response = ListOffsetsResponse()
    searches = []
    for wanted_topic in request.topics:
        rows: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(wanted_topic.name, rows))
        seen: set[int] = set()
        for wanted in wanted_topic.partitions:
            rows.append(row := ListOffsetsPartitionResponse(wanted.partition_index))
            if wanted.partition_index in seen:
                row.error_code = ErrorCode.INVALID_REQUEST
                continue
            seen.add(wanted.partition_index)
            try:
                lookup = context.cases.reading.to_look_up(
                    context.caller, wanted_topic.name, wanted.partition_index
                )
            except BrokerError as error:
                row.error_code = error_code(error)
                continue
            row.error_code = leader_error(context, lookup.partition, wanted.current_leader_epoch)
            if row.error_code == ErrorCode.NONE and not _answer_at_once(
                context, lookup.partition, wanted, row, request.isolation_level == _READ_COMMITTED
            ):
                searches.append(partial(_search, context, lookup, wanted.timestamp, row))
    return _search_all(response, searches) if searches else response


def _answer_at_once(
    context: RequestContext,
    partition: PartitionHandle,
    wanted: ListOffsetsPartition,
    row: ListOffsetsPartitionResponse,
    reads_committed: bool,
) -> bool:
    log = partition.log
    if context.api_version < _TIERED_SINCE.get(wanted.timestamp, 0):  # type: ignore[call-overload]
        row.error_code = ErrorCode.UNSUPPORTED_VERSION
        return True
    match wanted.timestamp:
        case TimestampLookup.LATEST:
            row.offset = log.high_watermark
            if reads_committed:
                try:
                    partition.check_committed(row.offset)
                except BrokerError as error:
                    row.offset, row.error_code = -1, error_code(error)
                    return True
                row.offset = partition.last_stable_offset
            row.leader_epoch = log.leader_epoch
        case TimestampLookup.EARLIEST | TimestampLookup.EARLIEST_LOCAL:
            row.offset, row.leader_epoch = log.log_start, log.epoch_at(log.log_start)
        case TimestampLookup.LATEST_TIERED:
            pass
        case TimestampLookup.MAX_TIMESTAMP:
            return False
        case timestamp_ms if timestamp_ms >= 0:
            return False
        case _:
            row.error_code = ErrorCode.UNSUPPORTED_VERSION
    return True


async def _search_all(
    response: ListOffsetsResponse, searches: Sequence[Callable[[], Awaitable[None]]]
) -> ListOffsetsResponse:
    left = iter(searches)

    async def work() -> None:
        for search in left:
            await search()

    await asyncio.gather(*[work() for _ in range(min(len(searches), _SEARCHES_AT_A_TIME))])
    return response


async def _search(
    context: RequestContext, lookup: OffsetLookup, timestamp_ms: int, row: ListOffsetsPartitionResponse
) -> None:
    try:
        if timestamp_ms == TimestampLookup.MAX_TIMESTAMP:
            found = await lookup.newest(context.connection_id)
        else:
            found = await lookup.first_at(timestamp_ms, context.connection_id)
    except WireError:
        row.error_code = ErrorCode.CORRUPT_MESSAGE
    except BrokerError as error:
        row.error_code = error_code(error)
    else:
        if found is not None:
            row.offset, row.timestamp = found
            row.leader_epoch = lookup.partition.log.epoch_at(row.offset)


API = Api.of(codec, VERSIONS, handle, PIECES)
