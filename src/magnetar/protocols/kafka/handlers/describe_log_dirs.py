"""DescribeLogDirs: how much each partition has stored (KIP-113), and the space on the volume (KIP-827).

Served: v1-5.  The server has one data directory.  A node lists the partitions of which it has a replica; nodes of one
process share the stored bytes.  A partition without records has none.  Sizes are those of the stored log, before the
store gives deleted space back.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.counted import counted
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_log_dirs as codec
from magnetar.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

VERSIONS = (1, 5)

_PARTITION_BYTES: Final = 400  # of a topic with one partition, as objects and encoded


async def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse | Large:
    if request.topics is not None:
        wanted = [(topic.topic, topic.partitions) for topic in request.topics]
        return Large(await _answer(context, wanted))
    objects_bytes = context.cases.topics.partition_count * _PARTITION_BYTES
    return await counted(context, objects_bytes, partial(_answer, context, None))


async def _answer(
    context: RequestContext, wanted: Sequence[tuple[str, Sequence[int]]] | None
) -> DescribeLogDirsResponse:
    try:
        found = await context.cases.nodes.log_dir(context.caller, context.node, wanted)
    except BrokerError as refusal:
        return DescribeLogDirsResponse(error_code=error_code(refusal))
    result = DescribeLogDirsResult(log_dir=found.path)

    def show(topic: tuple[str, Sequence[tuple[int, int]]]) -> None:
        name, sizes = topic
        rows = [DescribeLogDirsPartition(index, size) for index, size in sizes]
        result.topics.append(DescribeLogDirsTopic(name, rows))

    await context.service.large.each(found.topics, show)
    if found.total_bytes is None or found.usable_bytes is None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.total_bytes, result.usable_bytes = found.total_bytes, found.usable_bytes
    return DescribeLogDirsResponse(results=[result])


API = Api.of(codec, VERSIONS, handle)
