"""The result of the three layers of policies: the topic's own, its namespace's, the server's.

The first layer that has a value wins.  `Policies` is the result, typed, for the code that acts on it; the server's
layer is a `Policies` itself, the other two are the values that `policies.py` has checked.  `Namespaces.policies_of`
makes one object for all topics of a namespace that have no policies of their own.
"""

from collections.abc import Callable, Mapping
from typing import Any

from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.broker.policy.model import (
    CONSUMER_UNACKED_MAX,
    DISPATCH_RATE,
    PUBLISH_RATE,
    REPLICATOR_DISPATCH_RATE,
    RESOURCE_GROUP,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIPTION_POLICIES,
    SUBSCRIPTION_UNACKED_MAX,
    AutoTopicCreation,
    BacklogQuota,
    Compatibility,
    DelayedDelivery,
    DeleteMode,
    InactiveTopics,
    JsonValue,
    Policies,
    QuotaAction,
    QuotaType,
    Retention,
)
from magnetar.broker.quotas.model import Rate, SubscribeRate


def effective(
    topic: Mapping[str, JsonValue], namespace: Mapping[str, JsonValue], server: Policies
) -> Policies:
    """What the layers come to.  Quotas are merged type by type, all else is taken whole."""

    def find(key: str) -> JsonValue:
        value = topic.get(key)
        return namespace.get(key) if value is None else value

    def pick(key: str, default: Any, convert: Callable[[Any], Any] = lambda value: value) -> Any:
        value = find(key)
        return default if value is None else convert(value)

    return Policies(
        deduplication=pick("deduplicationEnabled", server.deduplication),
        retention=pick("retention_policies", server.retention, _typed_retention),
        message_ttl_s=pick("message_ttl_in_seconds", server.message_ttl_s),
        backlog_quotas=_merged_quotas(server.backlog_quotas, namespace, topic),
        schema_compatibility=_last_stated(server.schema_compatibility, namespace, topic),
        schema_validation_enforced=pick("schema_validation_enforced", server.schema_validation_enforced),
        schema_auto_update=pick("is_allow_auto_update_schema", server.schema_auto_update),
        auto_topic_creation=pick("autoTopicCreationOverride", server.auto_topic_creation, _typed_auto_topics),
        auto_subscription_creation=pick(
            "autoSubscriptionCreationOverride",
            server.auto_subscription_creation,
            lambda it: it["allowAutoSubscriptionCreation"],
        ),
        delayed_delivery=pick("delayed_delivery_policies", server.delayed_delivery, _typed_delayed),
        inactive_topics=pick("inactive_topic_policies", server.inactive_topics, _typed_inactive),
        producers_max=pick("max_producers_per_topic", server.producers_max),
        consumers_max=pick("max_consumers_per_topic", server.consumers_max),
        consumers_per_subscription_max=pick(
            "max_consumers_per_subscription", server.consumers_per_subscription_max
        ),
        subscriptions_max=pick("max_subscriptions_per_topic", server.subscriptions_max),
        namespace_topics_max=pick("max_topics_per_namespace", server.namespace_topics_max),
        failover_delay_ms=server.failover_delay_ms,
        unacked_limits=UnackedLimits(
            pick(CONSUMER_UNACKED_MAX, server.unacked_limits.consumer),
            pick(SUBSCRIPTION_UNACKED_MAX, server.unacked_limits.subscription),
        ),
        publish_rate=pick(PUBLISH_RATE, server.publish_rate, _typed_publish_rate),
        dispatch_rate=pick(DISPATCH_RATE, server.dispatch_rate, _typed_dispatch_rate),
        subscription_dispatch_rate=pick(
            SUBSCRIPTION_DISPATCH_RATE, server.subscription_dispatch_rate, _typed_dispatch_rate
        ),
        subscription_dispatch_rates={
            name: _typed_dispatch_rate(policies["dispatchRate"])
            for name, policies in (topic.get(SUBSCRIPTION_POLICIES) or {}).items()
        },
        replicator_dispatch_rate=pick(
            REPLICATOR_DISPATCH_RATE, server.replicator_dispatch_rate, _typed_dispatch_rate
        ),
        subscribe_rate=pick(SUBSCRIBE_RATE, server.subscribe_rate, _typed_subscribe_rate),
        subscription_types=pick("subscription_types_enabled", server.subscription_types, frozenset),
        encryption_required=pick("encryption_required", server.encryption_required),
        compaction_threshold_bytes=pick("compaction_threshold", server.compaction_threshold_bytes),
        subscription_expiration_minutes=pick(
            "subscription_expiration_time_minutes", server.subscription_expiration_minutes
        ),
        resource_group=pick(RESOURCE_GROUP, server.resource_group),
    )


def _merged_quotas(
    server: Mapping[QuotaType, BacklogQuota], *layers: Mapping[str, JsonValue]
) -> dict[QuotaType, BacklogQuota]:
    quotas = dict(server)
    for layer in layers:
        for name, quota in (layer.get("backlog_quota_map") or {}).items():
            kind = QuotaType(name)
            limit = quota["limitSize"] if kind is QuotaType.SIZE else quota["limitTime"]
            quotas[kind] = BacklogQuota(limit, QuotaAction(quota["policy"]))
    return quotas


def _last_stated(server: Compatibility, *layers: Mapping[str, JsonValue]) -> Compatibility:
    for layer in reversed(layers):
        stated = Compatibility(layer.get("schema_compatibility_strategy") or "UNDEFINED")
        if stated is not Compatibility.UNDEFINED:
            return stated
    return server


def _typed_retention(value: Mapping[str, int]) -> Retention:
    minutes, megabytes = value["retentionTimeInMinutes"], value["retentionSizeInMB"]
    return Retention(minutes * 60_000 if minutes >= 0 else -1, megabytes << 20 if megabytes >= 0 else -1)


def _typed_auto_topics(value: Mapping[str, Any]) -> AutoTopicCreation:
    return AutoTopicCreation(value["allowAutoTopicCreation"], value.get("defaultNumPartitions") or 0)


def _typed_delayed(value: Mapping[str, Any]) -> DelayedDelivery:
    return DelayedDelivery(value["active"], value["tickTime"])


def _typed_publish_rate(value: Mapping[str, int]) -> Rate | None:
    return _typed_rate(value["publishThrottlingRateInMsg"], value["publishThrottlingRateInByte"], 1)


def _typed_dispatch_rate(value: Mapping[str, int]) -> Rate | None:
    messages, size = value["dispatchThrottlingRateInMsg"], value["dispatchThrottlingRateInByte"]
    return _typed_rate(messages, size, value["ratePeriodInSecond"])


def _typed_rate(messages: int, size: int, period_s: int) -> Rate | None:
    return Rate(max(messages, 0), max(size, 0), max(period_s, 1)) if messages > 0 or size > 0 else None


def _typed_subscribe_rate(value: Mapping[str, int]) -> SubscribeRate | None:
    times = value["subscribeThrottlingRatePerConsumer"]
    return SubscribeRate(times, max(value["ratePeriodInSecond"], 1)) if times > 0 else None


def _typed_inactive(value: Mapping[str, Any]) -> InactiveTopics:
    return InactiveTopics(
        value["deleteWhileInactive"],
        DeleteMode(value["inactiveTopicDeleteMode"]),
        value["maxInactiveDurationSeconds"],
    )
