"""Which value of a policy holds for a topic, and how it is spelt."""

from typing import Any

import pytest

from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.broker.policy.in_effect import in_effect
from magnetar.broker.policy.model import CONSUMER_UNACKED_MAX, Compatibility, Policies
from magnetar.broker.policy.topic_config import TopicDefaults


def held(
    key: str,
    topic: dict[str, Any],
    namespace: dict[str, Any],
    server: Policies | None = None,
    configs: dict[str, str] | None = None,
) -> Any:
    return in_effect(key, topic, namespace, server or Policies(), TopicDefaults().config(configs or {}))


@pytest.mark.parametrize(
    ("topic", "namespace", "expected"), [(None, None, 5), (None, 6, 6), (7, 6, 7), (0, 6, 0), (7, None, 7)]
)
def test_a_topics_value_comes_before_its_namespaces_and_the_servers(
    topic: int | None, namespace: int | None, expected: int
) -> None:
    key, server = CONSUMER_UNACKED_MAX, Policies(unacked_limits=UnackedLimits(consumer=5))
    assert held(key, {key: topic}, {key: namespace}, server) == expected


def test_a_strategy_that_is_undefined_is_not_set() -> None:
    key, undefined = "schema_compatibility_strategy", {"schema_compatibility_strategy": "UNDEFINED"}
    server = Policies(schema_compatibility=Compatibility.FORWARD)
    assert held(key, undefined, undefined, server) == "FORWARD"
    assert held(key, undefined, {key: "BACKWARD"}, server) == "BACKWARD"


@pytest.mark.parametrize(
    ("configs", "minutes", "megabytes"),
    [
        ({}, 7 * 24 * 60, -1),
        ({"retention.ms": "60001"}, 2, -1),
        ({"retention.ms": "-1", "retention.bytes": "1048577"}, -1, 2),
        ({"retention.ms": "0", "retention.bytes": "0"}, 0, 0),
        ({"cleanup.policy": "compact", "retention.ms": "60000"}, -1, -1),
    ],
)
def test_without_a_policy_the_topics_kafka_settings_say_what_is_kept(
    configs: dict[str, str], minutes: int, megabytes: int
) -> None:
    expected = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
    assert held("retention_policies", {}, {}, configs=configs) == expected


def test_backlog_quotas_of_topic_and_namespace_are_put_together() -> None:
    size, age, less = {"limitSize": 9}, {"limitTime": 9}, {"limitSize": 3}
    topic = {"backlog_quota_map": {"destination_storage": less}}
    namespace = {"backlog_quota_map": {"destination_storage": size, "message_age": age}}
    assert held("backlog_quota_map", topic, namespace) == {"destination_storage": less, "message_age": age}
    assert held("backlog_quota_map", {}, {}) == {}


def test_a_policy_of_namespaces_alone_is_refused() -> None:
    with pytest.raises(KeyError):
        held("max_topics_per_namespace", {}, {})
