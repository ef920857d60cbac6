"""The answer of a fetch: a row for each partition, or in a session for each that has news (KIP-227).

Partitions with records come first, and those that the fetch has looked at for another reason.  This module makes the
rows of all others, which the client has read to their end; in a session only rows that the client does not know yet.
"""

from collections.abc import Iterable, Sequence

from magnetar.broker.usecases.handles import ReadablePartition
from magnetar.protocols.kafka.fetch_place import row_at_end
from magnetar.protocols.kafka.fetch_sessions import FetchPlan, FetchTarget, TopicKey
from magnetar.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from magnetar.wire.kafka.records import read_header
from magnetar.wire.kafka.runtime import ZERO_UUID


def answer_of(
    plan: FetchPlan,
    found: Sequence[tuple[FetchTarget, PartitionData]],
    at_end: Iterable[tuple[FetchTarget, ReadablePartition]],
    reads_committed: bool,
) -> FetchResponse:
    """Make the response, and note in the session what its client knows from now on."""
    is_incremental = plan.is_incremental
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    for target, row in found:
        if row.records or not is_incremental or target.is_news(row):
            _add(topics, target, row)
    for target, partition in at_end:
        if not (is_incremental and target.knows(partition.log)):
            _add(topics, target, row_at_end(partition, target.partition, reads_committed))
    return FetchResponse(0, 0, plan.session_id, list(topics.values()), [])


def aborted_in(
    partition: ReadablePartition, offset: int, end_offset: int, payloads: Sequence[memoryview]
) -> list[AbortedTransaction]:
    """The aborted transactions in `payloads`, the batches from `offset` to `end_offset`; no others, because fifty
    thousand may be open.
    """
    transactions = partition.transactions
    if not transactions.any_aborted(offset, end_offset):
        return []
    producers = {read_header(payload).producer_id for payload in payloads}
    return [
        AbortedTransaction(one.producer_id, one.first_offset)
        for one in transactions.aborted_between(offset, end_offset, producers)
    ]


def _add(topics: dict[TopicKey, FetchableTopicResponse], target: FetchTarget, row: PartitionData) -> None:
    target.told_high_watermark = row.high_watermark
    target.log_start = row.log_start_offset
    key = target.topic
    topic = topics.get(key)
    if topic is None:
        topic = topics[key] = (
            FetchableTopicResponse("", key, [])
            if isinstance(key, bytes)
            else FetchableTopicResponse(key, ZERO_UUID, [])
        )
    topic.partitions.append(row)
