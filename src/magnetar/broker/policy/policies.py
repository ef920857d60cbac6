"""What can be set for a namespace or a topic: one table of policies.

A policy is stored as the JSON value that Pulsar's admin API takes for it, under the key that it has in Pulsar's
`Policies` document.  `POLICIES` holds every policy that has an effect here, with its check (`value_checks.py`).  A
policy that does nothing is not in the table, and the admin API refuses it: every value that a client can read back is
in effect.  `layers.py` says which values are in effect for a topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from magnetar.base.config import INT_MAX, LONG_MAX
from magnetar.broker.policy import value_checks as checks
from magnetar.broker.policy.errors import InvalidPolicy, QuotaAboveRetention
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
    AuthMode,
    Compatibility,
    JsonValue,
    Level,
    QuotaType,
)

SUBSCRIPTION_AUTH_MODE: Final = "subscription_auth_mode"


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: `check` returns the canonical JSON value or raises InvalidPolicy."""

    key: str
    check: checks.ValueCheck
    levels: frozenset[Level] = frozenset(Level)


_NAMESPACE_ONLY: Final = frozenset({Level.NAMESPACE})
_TOPIC_ONLY: Final = frozenset({Level.TOPIC})

POLICIES: Final[Mapping[str, Policy]] = {
    policy.key: policy
    for policy in (
        Policy("deduplicationEnabled", checks.boolean),
        Policy("retention_policies", checks.retention),
        Policy(
            "message_ttl_in_seconds",
            checks.integer(0, INT_MAX, "Invalid value for message TTL, message TTL must >= 0"),
        ),
        Policy("backlog_quota_map", checks.quotas),
        Policy(
            "schema_compatibility_strategy",
            checks.choice(Compatibility, "there is no such compatibility strategy"),
        ),
        Policy("schema_validation_enforced", checks.boolean),
        Policy("is_allow_auto_update_schema", checks.boolean, _NAMESPACE_ONLY),
        Policy("autoTopicCreationOverride", checks.auto_topic_creation, _NAMESPACE_ONLY),
        Policy("autoSubscriptionCreationOverride", checks.auto_subscription_creation),
        Policy("delayed_delivery_policies", checks.delayed_delivery),
        Policy("inactive_topic_policies", checks.inactive_topics),
        Policy(PUBLISH_RATE, checks.publish_rate),
        Policy(DISPATCH_RATE, checks.dispatch_rate),
        Policy(SUBSCRIPTION_DISPATCH_RATE, checks.dispatch_rate),
        Policy(REPLICATOR_DISPATCH_RATE, checks.dispatch_rate),
        Policy(SUBSCRIPTION_POLICIES, checks.subscription_policies, _TOPIC_ONLY),
        Policy(SUBSCRIBE_RATE, checks.subscribe_rate),
        Policy("max_producers_per_topic", checks.not_negative("maxProducersPerTopic")),
        Policy("max_consumers_per_topic", checks.not_negative("maxConsumersPerTopic")),
        Policy("max_consumers_per_subscription", checks.not_negative("maxConsumersPerSubscription")),
        Policy("max_subscriptions_per_topic", checks.not_negative("maxSubscriptionsPerTopic")),
        Policy(CONSUMER_UNACKED_MAX, checks.not_negative("maxUnackedMessagesPerConsumer")),
        Policy(SUBSCRIPTION_UNACKED_MAX, checks.not_negative("maxUnackedMessagesPerSubscription")),
        Policy("max_topics_per_namespace", checks.not_negative("maxTopicsPerNamespace"), _NAMESPACE_ONLY),
        Policy("subscription_types_enabled", checks.subscription_types),
        Policy("encryption_required", checks.boolean, _NAMESPACE_ONLY),
        Policy(
            "subscription_expiration_time_minutes",
            checks.integer(0, INT_MAX, "Invalid value for subscription expiration time"),
            _NAMESPACE_ONLY,
        ),
        Policy(
            SUBSCRIPTION_AUTH_MODE,
            checks.choice(AuthMode, "subscriptionAuthMode must be None or Prefix"),
            _NAMESPACE_ONLY,
        ),
        Policy(
            "compaction_threshold",
            checks.integer(0, LONG_MAX, "compactionThreshold must be 0 or more"),
        ),
        Policy(RESOURCE_GROUP, checks.resource_group, _NAMESPACE_ONLY),
        Policy("properties", checks.properties),
    )
}


def checked(key: str, value: JsonValue, level: Level) -> JsonValue:
    """The canonical form of a policy's value.

    Raises:
        InvalidPolicy: no such policy at this level, or its value is not allowed.
    """
    policy = POLICIES.get(key)
    if policy is None or level not in policy.levels:
        raise InvalidPolicy(f"{key[:100]} is not supported as a policy of a {level.value}")
    return policy.check(value)


def check_quota_below_retention(
    before: Mapping[str, JsonValue], after: Mapping[str, JsonValue], level: Level
) -> None:
    """What is kept of acknowledged data is more than what may be waiting: a size quota stays below the retention.

    Only a change of one of the two is held to it, as in Pulsar (`AdminResource.checkBacklogQuota`).

    Raises:
        QuotaAboveRetention
    """
    retention, quotas = after.get("retention_policies"), after.get("backlog_quota_map")
    quota = (quotas or {}).get(QuotaType.SIZE.value)
    if not retention or not quota or not _exceeds(quota, retention):
        return
    hint = "Please increase retention quota and retry"
    if quotas != before.get("backlog_quota_map"):
        raise QuotaAboveRetention(
            f"Backlog Quota exceeds configured retention quota for {level.value}. {hint}"
        )
    if retention != before.get("retention_policies"):
        raise QuotaAboveRetention(
            f"Retention Quota must exceed configured backlog quota for {level.value}. {hint}"
        )


def _exceeds(quota: Mapping[str, Any], retention: Mapping[str, int]) -> bool:
    megabytes, minutes = retention["retentionSizeInMB"], retention["retentionTimeInMinutes"]
    return (megabytes > 0 and quota["limitSize"] >= megabytes << 20) or (
        minutes > 0 and quota["limitTime"] >= minutes * 60
    )
