"""A topic's statistics for Pulsar's tools: the keys of Pulsar's TopicStats, with this server's values.

Backlogs are counted in messages, so that a subscription's backlog is the lag of the Kafka group with that name
(Apache Pulsar counts entries).  Rates are those of the last ten seconds, except rates of acknowledgements and
redeliveries, which are averages since the consumer connected.  Sizes of backlogs are estimates from the sizes of
ledgers.  Keys that tools read and that have no meaning here (offloading) show that nothing happened.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from magnetar.broker.log.model import CompactionFigures
from magnetar.broker.policy.model import QuotaType
from magnetar.broker.producers.model import AccessMode
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.usecases.statistics import (
    ConsumerStatistics,
    CursorStatistics,
    InternalStatistics,
    ProducerStatistics,
    SubscriptionStatistics,
    TopicStatistics,
)
from magnetar.ledger.state import State

_TYPES: Final = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_LATEST_MS: Final = 253_402_300_799_000  # the last second of the year 9999
_MODES: Final = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}
# Keys of TopicStats and SubscriptionStats about things that never happen here.
_NEVER_TOPIC: Final[Mapping[str, Any]] = {
    "systemTopicBytesInCounter": 0,
    "bytesOutInternalCounter": 0,
    "publishRateLimitedTimes": 0,
    "offloadedStorageSize": 0,
    "lastOffloadLedgerId": 0,
    "lastOffloadSuccessTimeStamp": 0,
    "lastOffloadFailureTimeStamp": 0,
    "replication": {},
}
# Pulsar's names (`ManagedLedgerImpl.State`); a closed one still takes the next message.
_LEDGER_STATES: Final = {
    State.IDLE: "ClosedLedger",
    State.OPENING: "CreatingLedger",
    State.WRITING: "LedgerOpened",
    State.FAILED: "WriteFailed",
    State.CLOSED: "Closed",
}
# How the figures of partitions are combined for a whole topic.
_SUMMED: Final = (
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "bytesInCounter",
    "msgInCounter",
    "bytesOutCounter",
    "msgOutCounter",
    "storageSize",
    "backlogSize",
    "waitingPublishers",
    "nonContiguousDeletedMessagesRanges",
    "delayedMessageIndexSizeInBytes",
    "ongoingTxnCount",
    "committedTxnCount",
    "abortedTxnCount",
)
_SUMMED_CONSUMER: Final = (
    "msgRateOut",
    "msgThroughputOut",
    "bytesOutCounter",
    "msgOutCounter",
    "msgRateRedeliver",
    "messageAckRate",
    "unackedMessages",
)
_SUMMED_SUBSCRIPTION: Final = (
    "msgRateOut",
    "msgThroughputOut",
    "bytesOutCounter",
    "msgOutCounter",
    "msgRateRedeliver",
    "messageAckRate",
    "msgBacklog",
    "msgBacklogNoDelayed",
    "backlogSize",
    "msgDelayed",
    "delayedMessageIndexSizeInBytes",
    "unackedMessages",
    "totalMsgExpired",
    "nonContiguousDeletedMessagesRanges",
)


def topic_stats(found: TopicStatistics) -> dict[str, Any]:
    """The stats of one partition."""
    subscriptions = {one.name: _subscription(one) for one in found.subscriptions}
    size = found.policies.backlog_quotas.get(QuotaType.SIZE)
    age = found.policies.backlog_quotas.get(QuotaType.AGE)
    oldest = min((one["earliestMsgPublishTimeInBacklog"] or 0 for one in subscriptions.values()), default=0)
    rate_in = found.rate_in
    return {
        "msgRateIn": rate_in.messages,
        "msgThroughputIn": rate_in.size_bytes,
        "msgRateOut": _sum(subscriptions, "msgRateOut"),
        "msgThroughputOut": _sum(subscriptions, "msgThroughputOut"),
        "bytesInCounter": found.bytes_in,
        "msgInCounter": found.messages_in,
        "bytesOutCounter": _sum(subscriptions, "bytesOutCounter"),
        "msgOutCounter": _sum(subscriptions, "msgOutCounter"),
        "averageMsgSize": rate_in.size_bytes / rate_in.messages if rate_in.messages else 0.0,
        "msgChunkPublished": False,
        "storageSize": found.storage_bytes,
        "backlogSize": max((one["backlogSize"] for one in subscriptions.values()), default=0),
        "backlogQuotaLimitSize": -1 if size is None else size.limit,
        "backlogQuotaLimitTime": -1 if age is None else age.limit,
        "oldestBacklogMessageAgeSeconds": -1 if not oldest else max(0, found.now_ms - oldest) // 1000,
        "earliestMsgPublishTimeInBacklogs": oldest,
        "publishers": [_publisher(one) for one in found.producers],
        "waitingPublishers": 0,
        "subscriptions": subscriptions,
        "deduplicationStatus": "Enabled" if found.policies.deduplication else "Disabled",
        "nonContiguousDeletedMessagesRanges": _sum(subscriptions, "nonContiguousDeletedMessagesRanges"),
        "delayedMessageIndexSizeInBytes": _sum(subscriptions, "delayedMessageIndexSizeInBytes"),
        "ongoingTxnCount": found.open_transactions,
        "committedTxnCount": found.committed_transactions,
        "abortedTxnCount": found.aborted_transactions,
        **_NEVER_TOPIC,
        "compaction": _compaction(found.compaction),
    }


def _compaction(found: CompactionFigures) -> dict[str, int]:
    return {
        "lastCompactionRemovedEventCount": found.removed_messages,
        "lastCompactionSucceedTimestamp": found.succeeded_ms,
        "lastCompactionFailedTimestamp": found.failed_ms,
        "lastCompactionDurationTimeInMills": found.duration_ms,
    }


def _sum(subscriptions: Mapping[str, Mapping[str, Any]], key: str) -> Any:
    return sum(one[key] for one in subscriptions.values())


def _subscription(found: SubscriptionStatistics) -> dict[str, Any]:
    consumers = [_consumer(one) for one in found.consumers]
    stats: dict[str, Any] = {
        **{key: sum(one[key] for one in consumers) for key in _SUMMED_CONSUMER},
        "chunkedMessageRate": 0.0,
        "msgRateExpired": 0.0,
        "totalMsgExpired": found.expired,
        "isReplicated": False,
        "replicated": False,
        # Of the subscription: all its consumers have the same value.
        "allowOutOfOrderDelivery": any(one.spec.allows_out_of_order for one in found.consumers),
        "consumers": consumers,
        "consumersAfterMarkDeletePosition": {},
        "msgBacklog": found.backlog,
        "backlogSize": found.backlog_bytes,
        "earliestMsgPublishTimeInBacklog": found.earliest_ms,
        "msgBacklogNoDelayed": max(0, found.backlog - found.delayed),
        "msgDelayed": found.delayed,
        "delayedMessageIndexSizeInBytes": found.delayed_bytes,
        "type": "None" if found.type is None else _TYPES[found.type],
        "isDurable": found.is_durable,
        "durable": found.is_durable,
        "nonContiguousDeletedMessagesRanges": found.range_count,
        "subscriptionProperties": found.properties,
    }
    if found.is_stored:
        stats["blockedSubscriptionOnUnackedMsgs"] = found.is_blocked
        stats["msgInReplay"] = found.waiting
    else:
        stats["msgDropRate"] = 0.0
    if found.active_consumer is not None:
        stats["activeConsumerName"] = found.active_consumer
    return stats


def _consumer(found: ConsumerStatistics) -> dict[str, Any]:
    spec = found.spec
    stats: dict[str, Any] = {
        "msgRateOut": found.rate.messages,
        "msgThroughputOut": found.rate.size_bytes,
        "bytesOutCounter": found.bytes_out,
        "msgOutCounter": found.messages_out,
        "msgRateRedeliver": found.redelivered_per_s,
        "messageAckRate": found.acked_per_s,
        "chunkedMessageRate": 0.0,
        "consumerName": spec.name,
        "availablePermits": found.permits,
        "unackedMessages": found.unacked_messages,
        "blockedConsumerOnUnackedMsgs": found.is_blocked,
        "connectedSince": iso_time(found.connected_since_ms),
        "metadata": dict(spec.metadata),
    }
    if spec.address:
        stats["address"] = f"/{spec.address}"
        stats["clientVersion"] = spec.client_version
    if spec.hash_ranges:
        stats["keyHashRanges"] = [f"[{low}, {high}]" for low, high in spec.hash_ranges]
    return stats


def _publisher(found: ProducerStatistics) -> dict[str, Any]:
    rate, origin = found.rate, found.origin
    stats: dict[str, Any] = {
        "accessMode": _MODES[found.mode],
        "msgRateIn": rate.messages,
        "msgThroughputIn": rate.size_bytes,
        "averageMsgSize": rate.size_bytes / rate.messages if rate.messages else 0.0,
        "chunkedMessageRate": 0.0,
        "supportsPartialProducer": False,
        "producerName": found.name,
        "connectedSince": iso_time(found.connected_since_ms),
        "metadata": {},
    }
    if origin is not None:
        stats["metadata"] = origin.properties
        stats["producerId"] = origin.producer_id
        stats["address"] = f"/{origin.address}"
        stats["clientVersion"] = origin.client_version
    return stats


def merged(partitions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The stats of a partitioned topic from those of its partitions."""
    whole: dict[str, Any] = {key: sum(one[key] for one in partitions) for key in _SUMMED}
    rate, size = whole["msgRateIn"], whole["msgThroughputIn"]
    publishers: dict[str, dict[str, Any]] = {}
    for partition in partitions:
        for one in partition["publishers"]:
            _add(publishers, one["producerName"], one, ("msgRateIn", "msgThroughputIn"))
    subscriptions: dict[str, dict[str, Any]] = {}
    for partition in partitions:
        for name, one in partition["subscriptions"].items():
            _add(subscriptions, name, {**one, "consumers": []}, _SUMMED_SUBSCRIPTION)
    for name, subscription in subscriptions.items():
        consumers: dict[str, dict[str, Any]] = {}
        for partition in partitions:
            for one in partition["subscriptions"].get(name, {}).get("consumers", ()):
                _add(consumers, one["consumerName"], one, (*_SUMMED_CONSUMER, "availablePermits"))
        subscription["consumers"] = list(consumers.values())
    first = partitions[0] if partitions else {}
    kept = ("backlogQuotaLimitSize", "backlogQuotaLimitTime", "deduplicationStatus")
    return {
        **whole,
        **{key: first[key] for key in kept if key in first},
        "averageMsgSize": size / rate if rate else 0.0,
        "msgChunkPublished": False,
        "publishers": list(publishers.values()),
        "subscriptions": subscriptions,
        **_NEVER_TOPIC,
        "compaction": _compaction(CompactionFigures()),  # Pulsar shows only that of each partition
    }


def _add(rows: dict[str, dict[str, Any]], name: str, row: Mapping[str, Any], keys: Iterable[str]) -> None:
    there = rows.get(name)
    if there is None:
        rows[name] = dict(row)
        return
    for key in keys:
        there[key] = there.get(key, 0) + row.get(key, 0)
    if there.get("type") == "None":
        there["type"] = row.get("type")


def internal_stats(found: InternalStatistics) -> dict[str, Any]:
    """The ledgers and cursors behind a partition."""
    ledgers, compacted = found.ledgers, found.compacted
    last = ledgers[-1] if ledgers else None
    entry_count = sum(one.entry_count for one in ledgers)
    confirmed = f"{last.ledger_id}:{last.entry_count - 1}" if last is not None else "-1:-1"
    return {
        "entriesAddedCounter": entry_count,
        "numberOfEntries": entry_count,
        "totalSize": found.size_bytes,
        "currentLedgerEntries": last.entry_count if last is not None else 0,
        "currentLedgerSize": last.size_bytes if last is not None else 0,
        "lastLedgerCreatedTimestamp": iso_time(last.created_ms if last is not None else 0),
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": confirmed,
        "state": "Terminated" if found.is_terminated else _LEDGER_STATES[found.state],
        "ledgers": [
            {
                "ledgerId": one.ledger_id,
                "entries": one.entry_count,
                "size": one.size_bytes,
                "offloaded": False,
                "underReplicated": False,
            }
            for one in ledgers
        ],
        "cursors": {one.name: _cursor(one) for one in found.cursors},
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": -1 if compacted is None else compacted.ledger_id,
            "entries": -1 if compacted is None else compacted.entry_count,
            "size": -1 if compacted is None else compacted.size_bytes,
            "offloaded": False,
            "underReplicated": False,
        },
        "firstOffset": found.first_offset,
        "nextOffset": found.next_offset,
    }


def internal_info(found: InternalStatistics) -> dict[str, Any]:
    """The ledgers and cursors of a partition, in the form of Pulsar's metadata."""
    made = [one.created_ms for one in found.ledgers] or [0]
    times = {"version": 1, "creationDate": iso_time(made[0]), "modificationDate": iso_time(made[-1])}
    return {
        **times,
        "ledgers": [
            {
                "ledgerId": one.ledger_id,
                "entries": one.entry_count,
                "size": one.size_bytes,
                "timestamp": one.created_ms,
                "isOffloaded": False,
            }
            for one in found.ledgers
        ],
        "cursors": {
            one.name: {
                "version": 1,
                "cursorsLedgerId": -1,
                "markDelete": {"ledgerId": one.position[0], "entryId": one.position[1]},
            }
            for one in found.cursors
        },
    }


def _cursor(found: CursorStatistics) -> dict[str, Any]:
    ledger_id, entry_id = found.position
    deleted = ",".join(f"[{low}..{high})" for low, high in found.ranges)
    if len(found.ranges) < found.range_count:
        deleted += ",..."
    return {
        "markDeletePosition": f"{ledger_id}:{entry_id}",
        "markDeleteOffset": found.mark_delete,
        "individuallyDeletedMessages": f"[{deleted}]",
        "messagesConsumedCounter": found.mark_delete,
        "totalNonContiguousDeletedMessagesRange": found.range_count,
        "state": "Open" if found.is_open else "NoLedger",
        "active": found.is_active,
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "holdsData": found.holds_data,
        # Only numbers, as in Pulsar: pulsar-admin reads no other answer, and waits five minutes for one.
        "properties": {name: int(text) for name, text in found.properties.items() if _NUMBER.fullmatch(text)},
    }


def iso_time(time_ms: int) -> str:
    """A time as `2026-11-21T16:25:37.503Z`; a later time than the year 9999 becomes the end of that year."""
    moment = datetime.fromtimestamp(min(max(time_ms, 0), _LATEST_MS) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
