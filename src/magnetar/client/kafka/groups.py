"""Committed offsets of a group without members, as a small durable storage that every Kafka cluster has."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from magnetar.client.kafka.cluster import Cluster, CoordinatorKind, error_of
from magnetar.client.kafka.connection import OFFSET_COMMIT, OFFSET_FETCH
from magnetar.client.kafka.errors import UnknownTopic
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

RETENTION_MS: Final = 10 * 365 * 24 * 3600 * 1000
METADATA_BYTES_MAX: Final = 4096  # Kafka's default of offset.metadata.max.bytes


def commit_metadata(
    cluster: Cluster, group: str, topic: str, notes: Mapping[int, str], *, is_new: bool = False
) -> None:
    """Commit offset 0 of these partitions of `topic`, each with its note, in one request.

    The cluster keeps them for ten years, whatever its own retention.  `is_new`: the topic was created a moment ago,
    and not every broker may know it yet.

    Raises:
        UnknownTopic: the topic does not exist, or has fewer partitions. NotInTime, Refused.
    """
    request = OffsetCommitRequest(
        group_id=group,
        retention_time_ms=RETENTION_MS,
        topics=[
            OffsetCommitRequestTopic(
                topic,
                partitions=[
                    OffsetCommitRequestPartition(index, 0, committed_metadata=note)
                    for index, note in sorted(notes.items())
                ],
            )
        ],
    )

    def code(answer: Any) -> ErrorCode:
        codes = {error_of(row.error_code) for found in answer.topics for row in found.partitions}
        if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes and not is_new:
            raise UnknownTopic(f"topic '{topic}' does not exist, or has fewer than {len(notes)} partitions")
        return min(codes - {ErrorCode.NONE}, key=lambda one: one.retriable, default=ErrorCode.NONE)

    where = partial(cluster.coordinator, CoordinatorKind.GROUP, group)
    cluster.ask(f"committing offsets of group '{group}'", where, OFFSET_COMMIT, request, code)


def committed_metadata(cluster: Cluster, group: str, topic: str, partition_count: int) -> Mapping[int, str]:
    """The notes of the partitions of `topic` that have one.  Raises NotInTime, Refused."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(topic, list(range(partition_count)))]
    )

    def code(answer: Any) -> ErrorCode:
        codes = [error_of(row.error_code) for found in answer.topics for row in found.partitions]
        wrong = {error_of(answer.error_code), *codes} - {ErrorCode.NONE}
        return min(wrong, key=lambda one: one.retriable, default=ErrorCode.NONE)

    where = partial(cluster.coordinator, CoordinatorKind.GROUP, group)
    answer = cluster.ask(f"fetching offsets of group '{group}'", where, OFFSET_FETCH, request, code)
    return {
        row.partition_index: row.metadata
        for found in answer.topics
        for row in found.partitions
        if row.committed_offset >= 0 and row.metadata
    }
