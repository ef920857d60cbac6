"""A topic's statistics as Pulsar's tools expect them: the keys of its TopicStats, with what is true here.

Backlogs are counted in messages, so that a subscription's backlog is the lag of the Kafka group of that name (Apache
Pulsar counts entries).  Rates are those of the last ten seconds, except the ones of acknowledgements and redeliveries,
which are averages since the consumer connected.  Sizes of a backlog are estimates from the sizes of ledgers.  Keys that
tools read and that have no meaning here (offloading, Pulsar's transactions, compaction) say that nothing happened.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.log.backlog import backlog_bytes
from magnetar.broker.policy.policies import QuotaType
from magnetar.broker.producers.admission import AccessMode, Producer
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.dispatch.model import SubscriptionType
from magnetar.broker.subscriptions.positions import position_below, published_ms
from magnetar.broker.subscriptions.volatile import NonPersistentPartition, NonPersistentSubscription
from magnetar.ledger.cursor_store import CursorKey
from magnetar.ledger.managed_ledger import State
from magnetar.protocols.pulsar.consumers import ConnectedConsumer
from magnetar.protocols.pulsar.handlers.producer import AttachedProducer

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.log.partition import Partition
    from magnetar.ledger.cursor import Cursor

_TYPES: Final = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}
_LATEST_MS: Final = 253_402_300_799_000  # the last second of the year 9999
_MODES: Final = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}
# Of TopicStats and SubscriptionStats: what never happens here.
_NEVER_TOPIC: Final[Mapping[str, Any]] = {
    "systemTopicBytesInCounter": 0,
    "bytesOutInternalCounter": 0,
    "publishRateLimitedTimes": 0,
    "offloadedStorageSize": 0,
    "lastOffloadLedgerId": 0,
    "lastOffloadSuccessTimeStamp": 0,
    "lastOffloadFailureTimeStamp": 0,
    "ongoingTxnCount": 0,
    "abortedTxnCount": 0,
    "committedTxnCount": 0,
    "replication": {},
    "compaction": {
        "lastCompactionRemovedEventCount": 0,
        "lastCompactionSucceedTimestamp": 0,
        "lastCompactionFailedTimestamp": 0,
        "lastCompactionDurationTimeInMills": 0,
    },
}
# Pulsar's names (`ManagedLedgerImpl.State`); one that is closed takes the next message all the same.
_LEDGER_STATES: Final = {
    State.IDLE: "ClosedLedger",
    State.OPENING: "CreatingLedger",
    State.WRITING: "LedgerOpened",
    State.FAILED: "WriteFailed",
    State.CLOSED: "Closed",
}
# What partitions' figures come to for a whole topic.
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
    "unackedMessages",
    "totalMsgExpired",
    "nonContiguousDeletedMessagesRanges",
)


async def topic_stats(broker: "Broker", partition: "Partition", *, earliest: bool = False) -> dict[str, Any]:
    """The stats of one partition; `earliest` looks up when the oldest message of each backlog was published."""
    log = partition.log
    policies = broker.namespaces.policies_of(partition.topic.name)
    subscriptions: dict[str, dict[str, Any]] = {}
    if isinstance(partition, NonPersistentPartition):
        for one in partition.subscriptions.values():
            subscriptions[one.name] = _nonpersistent_stats(broker, one)
    else:
        for name in broker.subscriptions.names(partition):
            subscriptions[name] = await _subscription_stats(broker, partition, name, earliest=earliest)
    rate_in = broker.rates.of(partition)
    messages_in = log.next_offset - log.opened_at
    if isinstance(partition, NonPersistentPartition):
        messages_in = partition.messages_in
    size = policies.backlog_quotas.get(QuotaType.SIZE)
    age = policies.backlog_quotas.get(QuotaType.AGE)
    oldest = min((one["earliestMsgPublishTimeInBacklog"] or 0 for one in subscriptions.values()), default=0)
    return {
        "msgRateIn": rate_in.messages,
        "msgThroughputIn": rate_in.size_bytes,
        "msgRateOut": _sum(subscriptions, "msgRateOut"),
        "msgThroughputOut": _sum(subscriptions, "msgThroughputOut"),
        "bytesInCounter": log.appended_bytes,
        "msgInCounter": messages_in,
        "bytesOutCounter": _sum(subscriptions, "bytesOutCounter"),
        "msgOutCounter": _sum(subscriptions, "msgOutCounter"),
        "averageMsgSize": rate_in.size_bytes / rate_in.messages if rate_in.messages else 0.0,
        "msgChunkPublished": False,
        "storageSize": log.size_bytes,
        "backlogSize": max((one["backlogSize"] for one in subscriptions.values()), default=0),
        "backlogQuotaLimitSize": -1 if size is None else size.limit,
        "backlogQuotaLimitTime": -1 if age is None else age.limit,
        "oldestBacklogMessageAgeSeconds": -1
        if not oldest
        else max(0, broker.clock.now_ms() - oldest) // 1000,
        "earliestMsgPublishTimeInBacklogs": oldest,
        "publishers": [_publisher(broker, one) for one in broker.producers.find(partition) or ()],
        "waitingPublishers": 0,
        "subscriptions": subscriptions,
        "deduplicationStatus": "Enabled" if policies.deduplication else "Disabled",
        "nonContiguousDeletedMessagesRanges": _sum(subscriptions, "nonContiguousDeletedMessagesRanges"),
        **_NEVER_TOPIC,
    }


def _sum(subscriptions: Mapping[str, Mapping[str, Any]], key: str) -> Any:
    return sum(one[key] for one in subscriptions.values())


async def _subscription_stats(
    broker: "Broker", partition: "Partition", name: str, *, earliest: bool
) -> dict[str, Any]:
    admin = broker.subscription_admin
    cursor = admin.cursor(partition, name)
    log = partition.log
    backlog = cursor.backlog(log.high_watermark, log.log_start)
    open_one = broker.subscriptions.find(partition, name)
    consumers: Sequence[SubscribedConsumer] = open_one.consumers if open_one is not None else ()
    delayed = getattr(open_one.dispatcher, "delayed_count", 0) if open_one is not None else 0
    waiting = getattr(open_one.dispatcher, "waiting_count", 0) if open_one is not None else 0
    published = 0
    if earliest and backlog:
        entry = await admin.oldest(partition, name)
        published = 0 if entry is None else max(0, published_ms(entry))
    stats = _common(broker, consumers)
    stats.update(
        msgBacklog=backlog,
        backlogSize=backlog_bytes(log, max(cursor.mark_delete, log.log_start)),
        earliestMsgPublishTimeInBacklog=published,
        msgBacklogNoDelayed=max(0, backlog - delayed),
        blockedSubscriptionOnUnackedMsgs=any(one.state.blocked for one in consumers),
        msgDelayed=delayed,
        msgInReplay=waiting,
        type=_type_of(broker, partition, name, open_one.type if open_one is not None else None),
        isDurable=open_one.is_durable if open_one is not None else True,
        durable=open_one.is_durable if open_one is not None else True,
        nonContiguousDeletedMessagesRanges=len(cursor.ranges),
        totalMsgExpired=broker.housekeeping.expired[
            CursorKey(name, partition.topic.name.full, partition.index)
        ],
        subscriptionProperties=broker.subscriptions.properties(cursor),
    )
    if open_one is not None and open_one.active_consumer is not None:
        stats["activeConsumerName"] = open_one.active_consumer.spec.name
    return stats


def _type_of(broker: "Broker", partition: "Partition", name: str, kind: SubscriptionType | None) -> str:
    if kind is not None:
        return _TYPES[kind]
    # A Kafka group gives each partition to one of its members at a time, which Pulsar calls Failover.
    return "Failover" if broker.groups.consumes(name, partition.topic.name.full) else "None"


def _common(broker: "Broker", consumers: Iterable[SubscribedConsumer]) -> dict[str, Any]:
    listed = [_consumer(broker, one) for one in consumers]
    total = {key: sum(one[key] for one in listed) for key in _SUMMED_CONSUMER}
    return {
        **total,
        "chunkedMessageRate": 0.0,
        "msgRateExpired": 0.0,
        "totalMsgExpired": 0,
        "isReplicated": False,
        "replicated": False,
        "allowOutOfOrderDelivery": any(
            one.spec.allows_out_of_order
            for one in consumers  # of the subscription: they all say the same
        ),
        "consumers": listed,
        "consumersAfterMarkDeletePosition": {},
    }


def _consumer(broker: "Broker", member: SubscribedConsumer) -> dict[str, Any]:
    rate = broker.rates.of(member)
    state = member.state
    seconds = max(1.0, (broker.clock.now_ms() - member.connected_since_ms) / 1000)
    stats: dict[str, Any] = {
        "msgRateOut": rate.messages,
        "msgThroughputOut": rate.size_bytes,
        "bytesOutCounter": member.bytes_out,
        "msgOutCounter": member.messages_out,
        "msgRateRedeliver": member.messages_redelivered / seconds,
        "messageAckRate": member.acked_messages / seconds,
        "chunkedMessageRate": 0.0,
        "consumerName": member.spec.name,
        "availablePermits": state.permits,
        "unackedMessages": state.unacked_messages,
        "blockedConsumerOnUnackedMsgs": state.blocked,
        "connectedSince": iso_time(member.connected_since_ms),
        "metadata": dict(member.spec.metadata),
    }
    if isinstance(member.port, ConnectedConsumer):
        stats["address"] = f"/{member.port.session.client_host}"
        stats["clientVersion"] = member.port.session.client_version
    if member.spec.hash_ranges:
        stats["keyHashRanges"] = [f"[{low}, {high}]" for low, high in member.spec.hash_ranges]
    return stats


def _nonpersistent_stats(broker: "Broker", subscription: NonPersistentSubscription) -> dict[str, Any]:
    stats = _common(broker, subscription.consumers)
    stats.update(
        msgBacklog=0,
        backlogSize=0,
        msgBacklogNoDelayed=0,
        earliestMsgPublishTimeInBacklog=0,
        msgDelayed=0,
        msgDropRate=0.0,
        type=_TYPES[subscription.type] if subscription.type is not None else "None",
        isDurable=False,
        durable=False,
        nonContiguousDeletedMessagesRanges=0,
        subscriptionProperties={},
    )
    return stats


def _publisher(broker: "Broker", producer: Producer) -> dict[str, Any]:
    rate = broker.rates.of(producer)
    stats: dict[str, Any] = {
        "accessMode": _MODES[producer.mode],
        "msgRateIn": rate.messages,
        "msgThroughputIn": rate.size_bytes,
        "averageMsgSize": rate.size_bytes / rate.messages if rate.messages else 0.0,
        "chunkedMessageRate": 0.0,
        "supportsPartialProducer": False,
        "producerName": producer.name,
        "connectedSince": iso_time(producer.connected_since_ms),
        "metadata": {},
    }
    if isinstance(producer.handle, AttachedProducer):
        stats["metadata"] = producer.handle.properties
        stats["producerId"] = producer.handle.producer_id
        stats["address"] = f"/{producer.handle.session.client_host}"
        stats["clientVersion"] = producer.handle.session.client_version
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


async def internal_stats(broker: "Broker", partition: "Partition") -> dict[str, Any]:
    """The ledgers and cursors behind a partition."""
    log = partition.log
    ledgers = list(log.ledgers)
    last = ledgers[-1] if ledgers else None
    cursors = {}
    if not isinstance(partition, NonPersistentPartition):
        for name in broker.subscriptions.names(partition):
            cursors[name] = await _cursor_stats(broker, partition, name)
    entry_counts = [info.entry_count for info in ledgers]
    confirmed = f"{last.ledger_id}:{last.entry_count - 1}" if last is not None else "-1:-1"
    return {
        "entriesAddedCounter": sum(entry_counts),
        "numberOfEntries": sum(entry_counts),
        "totalSize": log.size_bytes,
        "currentLedgerEntries": last.entry_count if last is not None else 0,
        "currentLedgerSize": last.size_bytes if last is not None else 0,
        "lastLedgerCreatedTimestamp": iso_time(last.created_ms if last is not None else 0),
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": confirmed,
        "state": "Terminated" if partition.is_terminated else _LEDGER_STATES[log.state],
        "ledgers": [
            {
                "ledgerId": info.ledger_id,
                "entries": info.entry_count,
                "size": info.size_bytes,
                "offloaded": False,
                "underReplicated": False,
            }
            for info in ledgers
        ],
        "cursors": cursors,
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": -1,
            "entries": -1,
            "size": -1,
            "offloaded": False,
            "underReplicated": False,
        },
        "firstOffset": log.log_start,
        "nextOffset": log.high_watermark,
    }


async def _cursor_stats(broker: "Broker", partition: "Partition", name: str) -> dict[str, Any]:
    cursor: Cursor = broker.subscription_admin.cursor(partition, name)
    open_one = broker.subscriptions.find(partition, name)
    ledger_id, entry_id = await position_below(partition, cursor.mark_delete)
    return {
        "markDeletePosition": f"{ledger_id}:{entry_id}",
        "markDeleteOffset": cursor.mark_delete,
        "individuallyDeletedMessages": "["
        + ",".join(f"[{low}..{high})" for low, high in cursor.ranges)
        + "]",
        "messagesConsumedCounter": cursor.mark_delete,
        "totalNonContiguousDeletedMessagesRange": len(cursor.ranges),
        "state": "Open" if open_one is not None else "NoLedger",
        "active": open_one is not None and open_one.is_in_use,
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "holdsData": cursor.holds_data,
        "properties": dict(cursor.properties),
    }


def iso_time(time_ms: int) -> str:
    """As `2026-11-21T16:25:37.503Z`; what a client made up beyond the year 9999 stays there."""
    moment = datetime.fromtimestamp(min(max(time_ms, 0), _LATEST_MS) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
