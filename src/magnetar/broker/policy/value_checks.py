"""What the value of a policy has to be: one function for each form of values.

A check takes the JSON value that a client sets, and returns the canonical one, which is stored and shown.  Values and
the texts of refusals are those of Pulsar's admin API.

Raises of every check:
    MalformedPolicy: the value has the wrong JSON type.
    InvalidPolicy: the value is not allowed.
"""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from magnetar.base.config import INT_MAX, LONG_MAX
from magnetar.broker.cluster.model import PARTITIONS_MAX
from magnetar.broker.policy.errors import InvalidPolicy, MalformedPolicy
from magnetar.broker.policy.model import (
    SUBSCRIPTION_TYPES,
    DeleteMode,
    JsonValue,
    QuotaAction,
    QuotaType,
    whole_number,
)

_PROPERTIES_MAX: Final = 256
_PROPERTY_CHARS_MAX: Final = 4096
_NAMED_SUBSCRIPTIONS_MAX: Final = 1000

ValueCheck = Callable[[JsonValue], JsonValue]

# Texts stand for what they spell, as in Pulsar: its Go client sends "true" for a flag.
_SPELT: Final[Mapping[str, bool]] = {"true": True, "false": False}


def boolean(value: JsonValue) -> JsonValue:
    """A flag: true or false, or one of these as a text."""
    if isinstance(value, str):
        value = _SPELT.get(value)
    if not isinstance(value, bool):
        raise MalformedPolicy("the value must be true or false")
    return value


def integer(low: int, high: int, refusal: str) -> ValueCheck:
    """A check for a whole number from `low` to `high`; any other number is refused with the text `refusal`."""

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


def _member(document: Mapping[str, JsonValue], name: str, check: ValueCheck, default: JsonValue) -> JsonValue:
    value = document.get(name)
    return default if value is None else check(value)


def retention(value: JsonValue) -> JsonValue:
    """Both limits, both negative (without end), or both zero: the rule of Pulsar's `validateRetentionPolicies`."""
    time = integer(-1, INT_MAX, "Invalid retention policy: time limit must be >= -1")
    size = integer(-1, LONG_MAX >> 20, "Invalid retention policy: size limit must be >= -1")
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


def choice(choices: type[Enum], refusal: str) -> ValueCheck:
    """A check for the value of a member of `choices`; anything else is refused with the text `refusal`."""
    values = {one.value for one in choices}

    def check(value: JsonValue) -> JsonValue:
        if not isinstance(value, str) or value not in values:
            raise InvalidPolicy(refusal)
        return value

    return check


def subscription_types(value: JsonValue) -> JsonValue:
    """A list of subscription types; the canonical one has each once, in the order of `SUBSCRIPTION_TYPES`."""
    # Pulsar's sets have no order: the same types are the same value.
    if not isinstance(value, list) or not all(one in SUBSCRIPTION_TYPES for one in value):
        raise MalformedPolicy(f"the value must be a list of {', '.join(SUBSCRIPTION_TYPES)}")
    return [one for one in SUBSCRIPTION_TYPES if one in value]


def _quota(value: JsonValue, kind: QuotaType) -> JsonValue:
    document = _object(value)
    limit = integer(-LONG_MAX - 1, LONG_MAX, "a backlog quota's limitSize must be a whole number")
    seconds = integer(-INT_MAX - 1, INT_MAX, "a backlog quota's limitTime must be a whole number")
    size = _member(document, "limitSize", limit, None)
    if size is None:
        size = _member(document, "limit", limit, -1)  # the older name
    time_s = _member(document, "limitTime", seconds, 0)
    action = choice(QuotaAction, "the attribute policy cannot be null")(document.get("policy"))
    if kind is QuotaType.AGE and time_s <= 0:
        raise InvalidPolicy("a quota of type message_age needs limitTime")
    if kind is QuotaType.SIZE and size < 0:
        raise InvalidPolicy("a quota of type destination_storage needs limitSize")
    return {"limit": size, "limitSize": size, "limitTime": time_s, "policy": action}


def quotas(value: JsonValue) -> JsonValue:
    """Backlog quotas by type: {"destination_storage": {"limitSize": bytes, "policy": action}, "message_age": ...}."""
    document = _object(value)
    kinds = {kind.value: kind for kind in QuotaType}
    for name in document:
        if name not in kinds:
            raise InvalidPolicy(f"there is no backlog quota of type {name[:100]}")
    return {name: _quota(quota, kinds[name]) for name, quota in document.items() if quota is not None}


def auto_topic_creation(value: JsonValue) -> JsonValue:
    """{"allowAutoTopicCreation": flag, "topicType": ..., "defaultNumPartitions": count of a partitioned topic}."""
    document = _object(value)
    allowed = boolean(document.get("allowAutoTopicCreation"))
    kind = document.get("topicType") or "non-partitioned"
    count = document.get("defaultNumPartitions")
    if kind not in ("partitioned", "non-partitioned"):
        raise InvalidPolicy(f"Unknown topic type [{str(kind)[:100]}]")
    if not allowed:
        return {"allowAutoTopicCreation": False}
    checked: dict[str, JsonValue] = {"allowAutoTopicCreation": True, "topicType": kind}
    if kind == "partitioned":
        whole = integer(1, PARTITIONS_MAX, f"[defaultNumPartitions] must be from 1 to {PARTITIONS_MAX}")
        if count is None:
            raise InvalidPolicy("[defaultNumPartitions] cannot be null when the type is partitioned.")
        checked["defaultNumPartitions"] = whole(count)
    elif count is not None:
        raise InvalidPolicy("[defaultNumPartitions] is not allowed to be set when the type is non-partition.")
    return checked


def auto_subscription_creation(value: JsonValue) -> JsonValue:
    """{"allowAutoSubscriptionCreation": flag}."""
    return {"allowAutoSubscriptionCreation": boolean(_object(value).get("allowAutoSubscriptionCreation"))}


def delayed_delivery(value: JsonValue) -> JsonValue:
    """{"active": flag, "tickTime": ms, "maxDeliveryDelayInMillis": 0}; each may be left out."""
    document = _object(value)
    tick = integer(1, LONG_MAX, "tickTime must be a positive number of milliseconds")
    delay = integer(0, 0, "a limit on delays is not supported: maxDeliveryDelayInMillis must be 0")
    return {
        "active": _member(document, "active", boolean, True),
        "tickTime": _member(document, "tickTime", tick, 1000),
        "maxDeliveryDelayInMillis": _member(document, "maxDeliveryDelayInMillis", delay, 0),
    }


def inactive_topics(value: JsonValue) -> JsonValue:
    """{"inactiveTopicDeleteMode": ..., "maxInactiveDurationSeconds": seconds, "deleteWhileInactive": flag}; each may be
    left out.
    """
    document = _object(value)
    seconds = integer(1, INT_MAX, "maxInactiveDurationSeconds must be positive")
    mode = choice(DeleteMode, "there is no such inactiveTopicDeleteMode")
    return {
        "inactiveTopicDeleteMode": _member(
            document, "inactiveTopicDeleteMode", mode, DeleteMode.NO_SUBSCRIPTIONS.value
        ),
        "maxInactiveDurationSeconds": _member(document, "maxInactiveDurationSeconds", seconds, 60),
        "deleteWhileInactive": _member(document, "deleteWhileInactive", boolean, False),
    }


def _rate(value: JsonValue, defaults: Mapping[str, int]) -> dict[str, JsonValue]:
    """The numbers of a rate.  A number below 1 means no limit, or a period of one second, as in Pulsar."""
    document = _object(value)
    numbers: dict[str, JsonValue] = {}
    for name, default in defaults.items():
        most = LONG_MAX if name.endswith("InByte") else INT_MAX
        check = integer(-most - 1, most, f"{name} must be a whole number")
        numbers[name] = _member(document, name, check, default)
    return numbers


def publish_rate(value: JsonValue) -> JsonValue:
    """Messages and bytes a second; a number that is left out is no limit."""
    return _rate(value, {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1})


def dispatch_rate(value: JsonValue) -> JsonValue:
    """Messages and bytes in a period of seconds; a number that is left out is 0, as in Pulsar."""
    names = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte", "ratePeriodInSecond")
    numbers = _rate(value, dict.fromkeys(names, 0))
    if _member(_object(value), "relativeToPublishRate", boolean, False):
        raise InvalidPolicy(
            "a dispatch rate above the publish rate is not supported: relativeToPublishRate must be false"
        )
    return {**numbers, "relativeToPublishRate": False}


def subscription_policies(value: JsonValue) -> JsonValue:
    """What some subscriptions of a topic have by their names: a dispatch rate."""
    named = _object(value)
    if len(named) > _NAMED_SUBSCRIPTIONS_MAX:
        raise InvalidPolicy(f"at most {_NAMED_SUBSCRIPTIONS_MAX} subscriptions have policies of their own")
    return {
        name: {"dispatchRate": dispatch_rate(_object(policies).get("dispatchRate"))}
        for name, policies in named.items()
    }


def subscribe_rate(value: JsonValue) -> JsonValue:
    """How often one consumer may subscribe in a period of seconds."""
    return _rate(value, {"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 30})


def resource_group(value: JsonValue) -> JsonValue:
    """The name of a resource group, whether there is one or not."""
    if not isinstance(value, str):
        raise MalformedPolicy("the name of a resource group must be a text")
    return value


def properties(value: JsonValue) -> JsonValue:
    """Names with a text each."""
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


def not_negative(name: str) -> ValueCheck:
    """A check for a count, of which 0 says that there is no limit; `name` is what a refusal calls it."""
    return integer(0, INT_MAX, f"{name} must be 0 or more")
