"""DescribeLogDirs: how much each partition has stored (KIP-113), and the space on the volume (KIP-827).

Served: v1-5.  The server has one data directory.  A node lists the partitions that it has a replica of; nodes of one
process share the stored bytes.  A partition that nobody has written to has none.  Sizes are those of the log as stored,
before the store gives deleted space back.
"""

import asyncio
import os
from typing import TYPE_CHECKING

from magnetar.base.errors import BrokerError
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from magnetar.broker.topics.topic import Topic
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "describe_log_dirs"
VERSIONS = (1, 5)


async def handle(context: "RequestContext", request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    node_id = context.node.node_id
    directory = context.broker.settings.data_dir
    result = DescribeLogDirsResult(log_dir=directory)
    for name, topic, indexes in _wanted(context, request):
        rows = [
            DescribeLogDirsPartition(index, _size_bytes(topic, index))
            for index in indexes
            if 0 <= index < topic.partition_count and node_id in topic.replicas[index]
        ]
        if rows:
            result.topics.append(DescribeLogDirsTopic(name, rows))
    try:
        result.total_bytes, result.usable_bytes = await asyncio.to_thread(_volume_bytes, directory)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResponse(results=[result])


def _wanted(
    context: "RequestContext", request: DescribeLogDirsRequest
) -> "Iterator[tuple[str, Topic, Iterable[int]]]":
    broker = context.broker
    if request.topics is None:
        for topic in broker.topics:
            yield broker.kafka_name(topic.name), topic, range(topic.partition_count)
        return
    for wanted in request.topics:
        try:
            topic = broker.kafka_topic(wanted.topic)
        except BrokerError:
            continue  # what is not here has no size: it is left out, as Kafka does
        yield wanted.topic, topic, dict.fromkeys(wanted.partitions)


def _size_bytes(topic: "Topic", index: int) -> int:
    partition = topic.opened(index)
    return 0 if partition is None else partition.log.size_bytes


def _volume_bytes(directory: str) -> tuple[int, int]:
    volume = os.statvfs(directory or ".")
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
