"""The value of a policy that is in effect for a topic, spelt as Pulsar's admin API spells it (`?applied=true`).

The topic's own policy comes first, then its namespace's.  Without either it is what the server does: its settings, the
topic's Kafka settings if these decide (retention), or nothing.
"""

from collections.abc import Callable, Mapping
from typing import Final

from magnetar.broker.policy.model import (
    CONSUMER_UNACKED_MAX,
    DISPATCH_RATE,
    PUBLISH_RATE,
    REPLICATOR_DISPATCH_RATE,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIPTION_UNACKED_MAX,
    JsonValue,
    Policies,
    TopicConfig,
)

_MINUTE_MS: Final = 60_000
_MIB: Final = 1 << 20

_NO_DISPATCH_RATE: Final = {
    "dispatchThrottlingRateInMsg": 0,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}


def _delayed(server: Policies, _config: TopicConfig) -> JsonValue:
    found = server.delayed_delivery
    return {"tickTime": found.tick_ms, "active": found.active, "maxDeliveryDelayInMillis": 0}


def _inactive(server: Policies, _config: TopicConfig) -> JsonValue:
    found = server.inactive_topics
    return {
        "inactiveTopicDeleteMode": found.mode.value,
        "maxInactiveDurationSeconds": found.idle_s_max,
        "deleteWhileInactive": found.delete,
    }


def _retention(_server: Policies, config: TopicConfig) -> JsonValue:
    """The limits of the topic's Kafka settings, of which parts of a minute or a MiB count as whole ones."""
    return {
        "retentionTimeInMinutes": _whole(config.retention_ms if config.delete else -1, _MINUTE_MS),
        "retentionSizeInMB": _whole(config.retention_bytes if config.delete else -1, _MIB),
    }


def _whole(limit: int, unit: int) -> int:
    return -1 if limit < 0 else -(-limit // unit)


_WITHOUT: Final[Mapping[str, Callable[[Policies, TopicConfig], JsonValue]]] = {
    "message_ttl_in_seconds": lambda server, _: server.message_ttl_s,
    "retention_policies": _retention,
    "deduplicationEnabled": lambda server, _: server.deduplication,
    "autoSubscriptionCreationOverride": lambda server, _: {
        "allowAutoSubscriptionCreation": server.auto_subscription_creation
    },
    "delayed_delivery_policies": _delayed,
    "inactive_topic_policies": _inactive,
    "max_producers_per_topic": lambda server, _: server.producers_max,
    "max_consumers_per_topic": lambda server, _: server.consumers_max,
    "max_consumers_per_subscription": lambda server, _: server.consumers_per_subscription_max,
    "max_subscriptions_per_topic": lambda server, _: server.subscriptions_max,
    CONSUMER_UNACKED_MAX: lambda server, _: server.unacked_limits.consumer,
    SUBSCRIPTION_UNACKED_MAX: lambda server, _: server.unacked_limits.subscription,
    "subscription_types_enabled": lambda server, _: sorted(server.subscription_types),
    "compaction_threshold": lambda server, _: server.compaction_threshold_bytes or 0,
    "schema_compatibility_strategy": lambda server, _: server.schema_compatibility.value,
    "schema_validation_enforced": lambda server, _: server.schema_validation_enforced,
    "backlog_quota_map": lambda _server, _: {},
    # The server itself has no rates.
    PUBLISH_RATE: lambda _server, _: {
        "publishThrottlingRateInMsg": -1,
        "publishThrottlingRateInByte": -1,
    },
    DISPATCH_RATE: lambda _server, _: dict(_NO_DISPATCH_RATE),
    SUBSCRIPTION_DISPATCH_RATE: lambda _server, _: dict(_NO_DISPATCH_RATE),
    REPLICATOR_DISPATCH_RATE: lambda _server, _: dict(_NO_DISPATCH_RATE),
    SUBSCRIBE_RATE: lambda _server, _: {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30},
}


def in_effect(
    key: str,
    topic: Mapping[str, JsonValue],
    namespace: Mapping[str, JsonValue],
    server: Policies,
    config: TopicConfig,
) -> JsonValue:
    """The value of the policy `key` that holds for a topic; KeyError for a policy that topics do not have.

    `topic` and `namespace` are the policies that are set for them.  Backlog quotas of both are put together.
    """
    without = _WITHOUT[key](server, config)
    if key == "backlog_quota_map":
        return {**without, **(namespace.get(key) or {}), **(topic.get(key) or {})}
    for layer in (topic, namespace):
        if layer.get(key) not in (None, "UNDEFINED"):
            return layer[key]
    return without
