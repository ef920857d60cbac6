"""What can be set for a namespace or a topic: one table of policies, and what follows from them.

A policy is stored as the JSON value that Pulsar's admin API takes for it, under the key it has in Pulsar's `Policies`
document; `POLICIES` holds every one that has an effect here, with its check.  A policy that does nothing is not in
the table and is refused by the admin API: what can be read back is what holds.

Three layers, the first that says something wins: the topic's own, the namespace's, the server's.  `Policies` is what
comes of them, typed, for the code that acts on it; equal layers share one object.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.broker.cluster.model import PARTITIONS_MAX
from magnetar.broker.policy.errors import InvalidPolicy, MalformedPolicy, QuotaAboveRetention
from magnetar.broker.policy.model import (
    CONSUMER_UNACKED_MAX,
    DISPATCH_RATE,
    PUBLISH_RATE,
    REPLICATOR_DISPATCH_RATE,
    RESOURCE_GROUP,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIPTION_POLICIES,
    SUBSCRIPTION_TYPES,
    SUBSCRIPTION_UNACKED_MAX,
    AuthMode,
    AutoTopicCreation,
    BacklogQuota,
    Compatibility,
    DelayedDelivery,
    DeleteMode,
    InactiveTopics,
    JsonValue,
    Level,
    Policies,
    QuotaAction,
    QuotaType,
    Retention,
    whole_number,
)
from magnetar.broker.quotas.model import Rate, SubscribeRate

SUBSCRIPTION_AUTH_MODE: Final = "subscription_auth_mode"
INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
_PROPERTIES_MAX: Final = 256
_PROPERTY_CHARS_MAX: Final = 4096
_NAMED_SUBSCRIPTIONS_MAX: Final = 1000


Check = Callable[[JsonValue], JsonValue]


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: `check` returns the canonical JSON value or raises InvalidPolicy."""

    key: str
    check: Check
    levels: frozenset[Level] = frozenset(Level)


# Texts stand for what they spell, as in Pulsar: its Go client sends "true" for a flag.
_SPELT: Final[Mapping[str, bool]] = {"true": True, "false": False}


def _boolean(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        value = _SPELT.get(value)
    if not isinstance(value, bool):
        raise MalformedPolicy("the value must be true or false")
    return value


def _integer(low: int, high: int, refusal: str) -> Check:
    def check(value: JsonValue) -> JsonValue:
        value = whole_number(value)
        if value is None:
            raise MalformedPolicy("the value must be a whole number")
        if not low <= value <= high:
            raise InvalidPolicy(refusal)
        return value

    return check


def _object(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise MalformedPolicy("the value must be a JSON object")
    return value


def _member(document: Mapping[str, JsonValue], name: str, check: Check, default: JsonValue) -> JsonValue:
    value = document.get(name)
    return default if value is None else check(value)


def _retention(value: JsonValue) -> JsonValue:
    """Both limits, both negative (without end), or both zero: the rule of Pulsar's `validateRetentionPolicies`."""
    time = _integer(-1, INT_MAX, "Invalid retention policy: time limit must be >= -1")
    size = _integer(-1, LONG_MAX >> 20, "Invalid retention policy: size limit must be >= -1")
    document = _object(value)
    minutes = _member(document, "retentionTimeInMinutes", time, 0)
    megabytes = _member(document, "retentionSizeInMB", size, 0)
    if (minutes == 0) != (megabytes == 0):
        raise InvalidPolicy(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the"
            " limits has a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit."
            " To disable retention both limits must be set to 0."
        )
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def _choice(choices: type[Enum], refusal: str) -> Check:
    values = {one.value for one in choices}

    def check(value: JsonValue) -> JsonValue:
        if not isinstance(value, str) or value not in values:
            raise InvalidPolicy(refusal)
        return value

    return check


def _subscription_types(value: JsonValue) -> JsonValue:
    # Pulsar's sets have no order: the same types are the same value.
    if not isinstance(value, list) or not all(one in SUBSCRIPTION_TYPES for one in value):
        raise MalformedPolicy(f"the value must be a list of {', '.join(SUBSCRIPTION_TYPES)}")
    return [one for one in SUBSCRIPTION_TYPES if one in value]


def _quota(value: JsonValue, kind: QuotaType) -> JsonValue:
    document = _object(value)
    limit = _integer(-LONG_MAX - 1, LONG_MAX, "a backlog quota's limitSize must be a whole number")
    seconds = _integer(-INT_MAX - 1, INT_MAX, "a backlog quota's limitTime must be a whole number")
    size = _member(document, "limitSize", limit, None)
    if size is None:
        size = _member(document, "limit", limit, -1)  # the older name
    time_s = _member(document, "limitTime", seconds, 0)
    action = _choice(QuotaAction, "the attribute policy cannot be null")(document.get("policy"))
    if kind is QuotaType.AGE and time_s <= 0:
        raise InvalidPolicy("a quota of type message_age needs limitTime")
    if kind is QuotaType.SIZE and size < 0:
        raise InvalidPolicy("a quota of type destination_storage needs limitSize")
    return {"limit": size, "limitSize": size, "limitTime": time_s, "policy": action}


def _quotas(value: JsonValue) -> JsonValue:
    document = _object(value)
    kinds = {kind.value: kind for kind in QuotaType}
    for name in document:
        if name not in kinds:
            raise InvalidPolicy(f"there is no backlog quota of type {name[:100]}")
    return {name: _quota(quota, kinds[name]) for name, quota in document.items() if quota is not None}


def _auto_topic_creation(value: JsonValue) -> JsonValue:
    document = _object(value)
    allowed = _boolean(document.get("allowAutoTopicCreation"))
    kind = document.get("topicType") or "non-partitioned"
    count = document.get("defaultNumPartitions")
    if kind not in ("partitioned", "non-partitioned"):
        raise InvalidPolicy(f"Unknown topic type [{str(kind)[:100]}]")
    if not allowed:
        return {"allowAutoTopicCreation": False}
    checked: dict[str, JsonValue] = {"allowAutoTopicCreation": True, "topicType": kind}
    if kind == "partitioned":
        whole = _integer(1, PARTITIONS_MAX, f"[defaultNumPartitions] must be from 1 to {PARTITIONS_MAX}")
        if count is None:
            raise InvalidPolicy("[defaultNumPartitions] cannot be null when the type is partitioned.")
        checked["defaultNumPartitions"] = whole(count)
    elif count is not None:
        raise InvalidPolicy("[defaultNumPartitions] is not allowed to be set when the type is non-partition.")
    return checked


def _auto_subscription_creation(value: JsonValue) -> JsonValue:
    return {"allowAutoSubscriptionCreation": _boolean(_object(value).get("allowAutoSubscriptionCreation"))}


def _delayed_delivery(value: JsonValue) -> JsonValue:
    document = _object(value)
    tick = _integer(1, LONG_MAX, "tickTime must be a positive number of milliseconds")
    delay = _integer(0, 0, "a limit on delays is not supported: maxDeliveryDelayInMillis must be 0")
    return {
        "active": _member(document, "active", _boolean, True),
        "tickTime": _member(document, "tickTime", tick, 1000),
        "maxDeliveryDelayInMillis": _member(document, "maxDeliveryDelayInMillis", delay, 0),
    }


def _inactive_topics(value: JsonValue) -> JsonValue:
    document = _object(value)
    seconds = _integer(1, INT_MAX, "maxInactiveDurationSeconds must be positive")
    mode = _choice(DeleteMode, "there is no such inactiveTopicDeleteMode")
    return {
        "inactiveTopicDeleteMode": _member(
            document, "inactiveTopicDeleteMode", mode, DeleteMode.NO_SUBSCRIPTIONS.value
        ),
        "maxInactiveDurationSeconds": _member(document, "maxInactiveDurationSeconds", seconds, 60),
        "deleteWhileInactive": _member(document, "deleteWhileInactive", _boolean, False),
    }


def _rate(value: JsonValue, defaults: Mapping[str, int]) -> dict[str, JsonValue]:
    """The numbers of a rate.  Below 1 one is no limit, or a period of a second, as in Pulsar."""
    document = _object(value)
    numbers: dict[str, JsonValue] = {}
    for name, default in defaults.items():
        most = LONG_MAX if name.endswith("InByte") else INT_MAX
        check = _integer(-most - 1, most, f"{name} must be a whole number")
        numbers[name] = _member(document, name, check, default)
    return numbers


def _publish_rate(value: JsonValue) -> JsonValue:
    return _rate(value, {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1})


def _dispatch_rate(value: JsonValue) -> JsonValue:
    """What is left out is 0, as in Pulsar."""
    names = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte", "ratePeriodInSecond")
    numbers = _rate(value, dict.fromkeys(names, 0))
    if _member(_object(value), "relativeToPublishRate", _boolean, False):
        raise InvalidPolicy(
            "a dispatch rate above the publish rate is not supported: relativeToPublishRate must be false"
        )
    return {**numbers, "relativeToPublishRate": False}


def _subscription_policies(value: JsonValue) -> JsonValue:
    """What some subscriptions of a topic have by their names: a dispatch rate."""
    named = _object(value)
    if len(named) > _NAMED_SUBSCRIPTIONS_MAX:
        raise InvalidPolicy(f"at most {_NAMED_SUBSCRIPTIONS_MAX} subscriptions have policies of their own")
    return {
        name: {"dispatchRate": _dispatch_rate(_object(policies).get("dispatchRate"))}
        for name, policies in named.items()
    }


def _subscribe_rate(value: JsonValue) -> JsonValue:
    return _rate(value, {"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 30})


def _resource_group(value: JsonValue) -> JsonValue:
    if not isinstance(value, str):
        raise MalformedPolicy("the name of a resource group must be a text")
    return value


def _properties(value: JsonValue) -> JsonValue:
    document = _object(value)
    if len(document) > _PROPERTIES_MAX:
        raise InvalidPolicy(f"at most {_PROPERTIES_MAX} properties are kept")
    # A number or a flag is the text that it is written as, as in Pulsar.
    texts = {
        name: json.dumps(text) if isinstance(text, bool | int | float) else text
        for name, text in document.items()
    }
    for name, text in texts.items():
        if not isinstance(text, str) or len(name) + len(text) > _PROPERTY_CHARS_MAX:
            raise InvalidPolicy(f"a property is a text of at most {_PROPERTY_CHARS_MAX} characters")
    return texts


def _count(name: str) -> Check:
    return _integer(0, INT_MAX, f"{name} must be 0 or more")


_NAMESPACE_ONLY: Final = frozenset({Level.NAMESPACE})
_TOPIC_ONLY: Final = frozenset({Level.TOPIC})

POLICIES: Final[Mapping[str, Policy]] = {
    policy.key: policy
    for policy in (
        Policy("deduplicationEnabled", _boolean),
        Policy("retention_policies", _retention),
        Policy(
            "message_ttl_in_seconds",
            _integer(0, INT_MAX, "Invalid value for message TTL, message TTL must >= 0"),
        ),
        Policy("backlog_quota_map", _quotas),
        Policy(
            "schema_compatibility_strategy", _choice(Compatibility, "there is no such compatibility strategy")
        ),
        Policy("schema_validation_enforced", _boolean),
        Policy("is_allow_auto_update_schema", _boolean, _NAMESPACE_ONLY),
        Policy("autoTopicCreationOverride", _auto_topic_creation, _NAMESPACE_ONLY),
        Policy("autoSubscriptionCreationOverride", _auto_subscription_creation),
        Policy("delayed_delivery_policies", _delayed_delivery),
        Policy("inactive_topic_policies", _inactive_topics),
        Policy(PUBLISH_RATE, _publish_rate),
        Policy(DISPATCH_RATE, _dispatch_rate),
        Policy(SUBSCRIPTION_DISPATCH_RATE, _dispatch_rate),
        Policy(REPLICATOR_DISPATCH_RATE, _dispatch_rate),
        Policy(SUBSCRIPTION_POLICIES, _subscription_policies, _TOPIC_ONLY),
        Policy(SUBSCRIBE_RATE, _subscribe_rate),
        Policy("max_producers_per_topic", _count("maxProducersPerTopic")),
        Policy("max_consumers_per_topic", _count("maxConsumersPerTopic")),
        Policy("max_consumers_per_subscription", _count("maxConsumersPerSubscription")),
        Policy("max_subscriptions_per_topic", _count("maxSubscriptionsPerTopic")),
        Policy(CONSUMER_UNACKED_MAX, _count("maxUnackedMessagesPerConsumer")),
        Policy(SUBSCRIPTION_UNACKED_MAX, _count("maxUnackedMessagesPerSubscription")),
        Policy("max_topics_per_namespace", _count("maxTopicsPerNamespace"), _NAMESPACE_ONLY),
        Policy("subscription_types_enabled", _subscription_types),
        Policy("encryption_required", _boolean, _NAMESPACE_ONLY),
        Policy(
            "subscription_expiration_time_minutes",
            _integer(0, INT_MAX, "Invalid value for subscription expiration time"),
            _NAMESPACE_ONLY,
        ),
        Policy(
            SUBSCRIPTION_AUTH_MODE,
            _choice(AuthMode, "subscriptionAuthMode must be None or Prefix"),
            _NAMESPACE_ONLY,
        ),
        Policy(
            "compaction_threshold",
            _integer(0, LONG_MAX, "compactionThreshold must be 0 or more"),
        ),
        Policy(RESOURCE_GROUP, _resource_group, _NAMESPACE_ONLY),
        Policy("properties", _properties),
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
