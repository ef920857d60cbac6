"""Regular work on topics: it expires messages, applies backlog quotas, and deletes unused topics and subscriptions.

It looks at all topics every `INTERVAL_S`, for clients of both protocols.  Without policies that is one look-up for
each topic.

* **TTL.**  Messages older than the topic's TTL are acknowledged for every subscription that holds data.  Compaction
  still gets them.
* **Backlog quota.**  A partition's backlog is that of the subscription that holds the most.  Messages over the quota
  are acknowledged (eviction), or producers are rejected until there is room.  They are held, so that clients try again
  (Pulsar: ProducerBlockedQuotaExceededError; Kafka: a storage error, which clients retry), or refused
  (ProducerBlockedQuotaExceededException; POLICY_VIOLATION).
* **Inactive topics** are deleted if a policy says so, but never by default, and never a topic with messages.  A user
  who creates a topic with Kafka's tools expects that it stays.
* **Subscriptions** that no client has used for long are dropped if a policy says so.  Kafka groups expire by Kafka's
  own rules.  That a subscription is in use is stored now and then and when its last consumer leaves, because a
  consumer may be connected for weeks and acknowledge nothing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.times import Times
from magnetar.broker.compaction.beside import SUBSCRIPTION as COMPACTION
from magnetar.broker.errors import ProducersHeld, ProducersRefused
from magnetar.broker.log.backlog import backlog_bytes, offset_leaving
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import DeleteMode, Policies, QuotaAction, QuotaType
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.subscriptions.errors import SubscriptionBusy, SubscriptionNotFound
from magnetar.broker.subscriptions.positions import offset_at_time, published_ms
from magnetar.broker.topics.topic import Topic
from magnetar.broker.upkeep.connected import ConnectedClients
from magnetar.broker.upkeep.topic_deletion import TopicDeletion
from magnetar.broker.upkeep.topics_in_use import TopicsInUse
from magnetar.ledger.cursor_store import CursorKey

log: Final = logging.getLogger(__name__)

INTERVAL_S: Final = 10.0
_TOPICS_AT_ONCE: Final = 200  # then the event loop serves clients before the next ones
_EVICT_TO: Final = 0.9  # of a size quota, so that not every message evicts another one
_NOTED_SHARE: Final = 0.1  # of the time after which an unused subscription goes: so exactly its use is noted
_RETURN_S_MAX: Final = 3600.0  # clients have so long at most to come back to a server that was away
_REFUSALS: Final = {
    QuotaAction.HOLD_PRODUCERS: ProducersHeld,
    QuotaAction.REFUSE_PRODUCERS: ProducersRefused,
}


class Housekeeping:
    """See the module's text.  Topics that are `connected` to clients are in use; `deletion` deletes others."""

    def __init__(
        self,
        times: Times,
        in_use: TopicsInUse,
        subscription_admin: SubscriptionAdmin,
        connected: ConnectedClients,
        deletion: TopicDeletion,
    ) -> None:
        self._clock = times.clock
        self._upkeep = times.upkeep
        self._expiry_time = times.expiry
        self._topics = in_use.topics
        self._namespaces = in_use.namespaces
        self._producers = in_use.producers
        self._subscriptions = in_use.subscriptions
        self._subscription_admin = subscription_admin
        self._cursors = in_use.cursors
        self._connected_clients = connected.count
        self._delete_topic = deletion.delete
        self._running = asyncio.Lock()
        self._began_s = times.clock.monotonic()
        self._inactive_since_s: dict[bytes, float] = {}  # by topic id
        self.expired: Counter[CursorKey] = Counter()  # messages that TTL has acknowledged, since the start

    def start(self) -> None:
        self._upkeep.every(INTERVAL_S, "policies", self.run_once)

    async def run_once(self) -> None:
        """One pass over all topics; a failure is logged, and the next pass tries again."""
        async with self._running:
            await self._pass()

    async def _pass(self) -> None:
        unforeseen: Exception | None = None
        for count, topic in enumerate(self._topics):
            if count % _TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if topic.is_deleted:
                continue
            policies = self._namespaces.policies_of(topic.name)
            try:
                if topic.name.persistent:
                    for partition in topic.open_partitions:
                        await self._look_after(partition, policies)
                await self._delete_if_inactive(topic, policies)
            except BrokerError as error:
                log.warning("housekeeping of %s waits: %s", topic.name, error)
            except Exception as error:  # noqa: BLE001  no other topic may suffer from it
                unforeseen = unforeseen or error
        if unforeseen is not None:
            raise unforeseen

    async def _look_after(self, partition: Partition, policies: Policies) -> None:
        if policies.message_ttl_s:
            before_ms = self._expiry_time.now_ms() - policies.message_ttl_s * 1000
            await self._expire(partition, before_ms, self.expired)
        if policies.backlog_quotas or partition.refused_with is not None:
            await self.apply_quota(partition, policies)
        if policies.subscription_expiration_minutes:
            await self._drop_unused(partition, policies.subscription_expiration_minutes * 60_000)

    # --- TTL ---------------------------------------------------------------------------------------------------------

    async def _expire(
        self, partition: Partition, before_ms: int, counts: Counter[CursorKey] | None = None
    ) -> None:
        """Acknowledge messages published before `before_ms`, for every subscription that holds data."""
        holders = [name for name in self._holders(partition) if name != COMPACTION]
        if not holders or partition.log.log_start >= partition.log.high_watermark:
            return
        until = min(await offset_at_time(partition.log, before_ms), partition.log.high_watermark)
        for name in holders:
            try:
                before = self._subscription_admin.backlog(partition, name)
                await self._subscription_admin.skip_to(partition, name, until)
            except (SubscriptionNotFound, SubscriptionBusy):
                continue  # dropped meanwhile, or of a Kafka group with members
            if counts is not None:
                counts[_key(partition, name)] += before - self._subscription_admin.backlog(partition, name)

    def _holders(self, partition: Partition) -> list[str]:
        return self._cursors.holders(partition.topic.name.full, partition.index)

    # --- backlog quotas ----------------------------------------------------------------------------------------------

    async def apply_quota(self, partition: Partition, policies: Policies) -> None:
        """Reject producers, accept them again, or evict messages, depending on the present backlog.

        Raises:
            MetadataError, StorageError: the backlog cannot be read, or evicted, now.
        """
        action = await self._exceeded(partition, policies)
        if action is QuotaAction.EVICT_BACKLOG:
            await self._evict(partition, policies)
        refusal = None if action is None else _REFUSALS.get(action)
        if refusal is not None and partition.refused_with is not refusal:
            log.warning("%s is over its backlog quota: %s", partition.log.name, action)
            partition.refused_with = refusal
            self._producers.close(partition)  # their clients reconnect, and get the reason then
        elif refusal is None:
            partition.refused_with = None

    async def _exceeded(self, partition: Partition, policies: Policies) -> QuotaAction | None:
        """What to do about the backlog; None if it is within its quotas."""
        held_from = self._held_from(partition)
        if held_from is None:
            return None
        size = policies.backlog_quotas.get(QuotaType.SIZE)
        if size is not None and size.limit >= 0 and backlog_bytes(partition.log, held_from) > size.limit:
            return size.action
        age = policies.backlog_quotas.get(QuotaType.AGE)
        if age is None or age.limit <= 0:
            return None
        oldest = await partition.log.entry_at(held_from)
        if oldest is None or oldest.last_offset < held_from:
            return None
        published = published_ms(oldest)
        if published < 0:  # a Kafka batch without timestamps has no age
            return None
        return age.action if self._expiry_time.now_ms() - published > age.limit * 1000 else None

    def _held_from(self, partition: Partition) -> int | None:
        """The offset of the first message that a subscription holds; None if all messages are acknowledged."""
        log_ = partition.log
        firsts = []
        for name in self._holders(partition):
            try:
                cursor = self._subscription_admin.cursor(partition, name)
            except SubscriptionNotFound:
                continue
            firsts.append(cursor.next_unacknowledged(log_.log_start))
        first = min(firsts, default=log_.high_watermark)
        return None if first >= log_.high_watermark else first

    async def _evict(self, partition: Partition, policies: Policies) -> None:
        size = policies.backlog_quotas.get(QuotaType.SIZE)
        if size is not None and size.limit >= 0 and size.action is QuotaAction.EVICT_BACKLOG:
            until = offset_leaving(partition.log, int(size.limit * _EVICT_TO))
            for name in self._holders(partition):
                try:
                    await self._subscription_admin.skip_to(partition, name, until)
                except (SubscriptionNotFound, SubscriptionBusy):
                    continue
        age = policies.backlog_quotas.get(QuotaType.AGE)
        if age is not None and age.limit > 0 and age.action is QuotaAction.EVICT_BACKLOG:
            await self._expire(partition, self._expiry_time.now_ms() - age.limit * 1000)

    async def check_producers(self, partition: Partition, policies: Policies) -> None:
        """Check that a new producer may connect now.

        Raises:
            ProducersHeld, ProducersRefused: the backlog is over its quota.
            MetadataError, StorageError: the backlog cannot be read now.
        """
        if policies.backlog_quotas or partition.refused_with is not None:
            await self.apply_quota(partition, policies)
            if partition.refused_with is not None:
                raise partition.refused_with("Cannot create producer on topic with backlog quota exceeded")

    # --- what no client uses -----------------------------------------------------------------------------------------

    async def _drop_unused(self, partition: Partition, idle_ms_max: int) -> None:
        idle_before_ms = self._expiry_time.now_ms() - idle_ms_max
        may_drop = self._clock.monotonic() - self._began_s >= min(idle_ms_max / 1000, _RETURN_S_MAX)
        for name in self._holders(partition):
            if name == COMPACTION:
                continue  # the broker's own
            used = self._subscriptions.find(partition, name)
            if used is not None:
                noted_ms = self._clock.now_ms() - used.cursor.commit_timestamp_ms
                if used.is_in_use and noted_ms >= idle_ms_max * _NOTED_SHARE:
                    self._subscriptions.note_use(used)
                continue
            if not may_drop:
                continue
            try:
                if self._subscription_admin.cursor(partition, name).commit_timestamp_ms >= idle_before_ms:
                    continue
                await self._subscription_admin.delete(partition, name)
            except (SubscriptionNotFound, SubscriptionBusy):
                continue
            log.info(
                "the server deletes subscription %s of %s: no client has used it for a long time",
                name,
                partition.log.name,
            )

    async def _delete_if_inactive(self, topic: Topic, policies: Policies) -> None:
        rule = policies.inactive_topics
        if not rule.delete or not self._is_inactive(topic, rule.mode):
            self._inactive_since_s.pop(topic.topic_id, None)
            return
        now_s = self._clock.monotonic()
        since_s = self._inactive_since_s.setdefault(topic.topic_id, now_s)
        if now_s - since_s >= rule.idle_s_max:
            del self._inactive_since_s[topic.topic_id]
            log.info("the server deletes topic %s: it is empty, and no client uses it", topic.name)
            await self._delete_topic(topic)

    def _is_inactive(self, topic: Topic, mode: DeleteMode) -> bool:
        for partition in topic.open_partitions:
            if partition.log.next_offset > partition.log.log_start:
                return False
        if self._connected_clients(topic):
            return False
        # Without messages every subscription has caught up.
        names: Iterable[str] = self._cursors.subscriptions_of(topic.name.full)
        return mode is DeleteMode.SUBSCRIPTIONS_CAUGHT_UP or not any(names)


def _key(partition: Partition, name: str) -> CursorKey:
    return CursorKey(name, partition.topic.name.full, partition.index)
