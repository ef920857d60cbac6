"""Policies of namespaces and topics over HTTP: statuses and reasons as Apache Pulsar 4.0.8 gave them."""

from typing import Any

import pytest

from magnetar.admin.routes.policies import TOPIC_RESOURCES

from .conversation import ANY, Step, play
from .test_pulsar_resources import MakeBroker, N, T

# resource, its answer when unset, a good value, the answer then, a bad value, its status, whether it can be removed
NAMESPACE_POLICIES: list[tuple[str, Any, Any, Any, Any, int, bool]] = [
    ("messageTTL", None, 100, 100, -1, 412, True),
    ("messageTTL", None, 100, 100, "x", 400, True),
    (
        "retention",
        None,
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": 0},
        400,
        True,
    ),
    ("deduplication", None, True, True, "maybe", 400, True),
    ("subscriptionTypesEnabled", [], ["Shared", "Exclusive"], ["Exclusive", "Shared"], ["Odd"], 400, True),
    (
        "autoTopicCreation",
        None,
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        {"allowAutoTopicCreation": True, "topicType": "partitioned"},
        412,
        True,
    ),
    (
        "autoTopicCreation",
        None,
        {"allowAutoTopicCreation": False},
        {"allowAutoTopicCreation": False},
        {"allowAutoTopicCreation": True, "topicType": "zz"},
        412,
        True,
    ),
    (
        "autoSubscriptionCreation",
        None,
        {"allowAutoSubscriptionCreation": False},
        {"allowAutoSubscriptionCreation": False},
        {},
        400,
        True,
    ),
    (
        "delayedDelivery",
        None,
        {"active": True, "tickTime": 500},
        {"active": True, "tickTime": 500, "maxDeliveryDelayInMillis": 0},
        {"active": True, "tickTime": -500},
        412,
        True,
    ),
    (
        "inactiveTopicPolicies",
        None,
        {"deleteWhileInactive": True, "maxInactiveDurationSeconds": 9},
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 9,
            "deleteWhileInactive": True,
        },
        {"inactiveTopicDeleteMode": "xx"},
        412,
        True,
    ),
    (
        "publishRate",
        None,
        {"publishThrottlingRateInMsg": 10},
        {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1},
        {"publishThrottlingRateInMsg": "many"},
        400,
        True,
    ),
    (
        "dispatchRate",
        None,
        {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 2},
        {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": 0,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 2,
        },
        {"dispatchThrottlingRateInMsg": 10, "relativeToPublishRate": True},
        412,
        True,
    ),
    (
        "replicatorDispatchRate",
        None,
        {"dispatchThrottlingRateInByte": 7, "ratePeriodInSecond": 3},
        {
            "dispatchThrottlingRateInMsg": 0,
            "dispatchThrottlingRateInByte": 7,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 3,
        },
        {"dispatchThrottlingRateInMsg": 10, "relativeToPublishRate": True},
        412,
        True,
    ),
    (
        "subscriptionDispatchRate",
        None,
        {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 7},
        {
            "dispatchThrottlingRateInMsg": -1,
            "dispatchThrottlingRateInByte": 7,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 0,
        },
        {"dispatchThrottlingRateInByte": "many"},
        400,
        True,
    ),
    (
        "subscribeRate",
        None,
        {"subscribeThrottlingRatePerConsumer": 10},
        {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30},
        {"subscribeThrottlingRatePerConsumer": [1]},
        400,
        True,
    ),
    ("maxProducersPerTopic", None, 3, 3, -3, 412, True),
    ("maxConsumersPerTopic", None, 3, 3, -3, 412, True),
    ("maxConsumersPerSubscription", None, 3, 3, -3, 412, True),
    ("maxSubscriptionsPerTopic", None, 3, 3, -3, 412, True),
    ("maxUnackedMessagesPerConsumer", None, 3, 3, -3, 412, True),
    ("maxUnackedMessagesPerSubscription", None, 0, 0, -3, 412, True),
    ("maxTopicsPerNamespace", None, 3, 3, -3, 412, True),
    ("subscriptionExpirationTime", None, 5, 5, -5, 412, True),
    ("schemaCompatibilityStrategy", "UNDEFINED", "FORWARD", "FORWARD", "NOPE", 412, False),
    ("schemaValidationEnforced", False, True, True, 1, 400, False),
    ("isAllowAutoUpdateSchema", True, False, False, 1, 400, False),
    ("encryptionRequired", False, True, True, 1, 400, False),
    ("subscriptionAuthMode", "None", "Prefix", "Prefix", "Suffix", 412, False),
    ("properties", {}, {"a": "b"}, {"a": "b"}, {"a": {}}, 412, True),
]


PUT = ("schemaCompatibilityStrategy", "properties")


@pytest.mark.parametrize("row", NAMESPACE_POLICIES, ids=lambda row: str(row[0]))
def test_a_namespaces_policy_is_set_shown_and_removed(make_broker: MakeBroker, row: tuple[Any, ...]) -> None:
    resource, unset, good, kept, bad, status, has_delete = row
    path, method = f"{N}/{resource}", "PUT" if resource in PUT else "POST"
    steps: list[Step] = [
        ("GET", path, None, 200, unset),
        (method, path, good, 204, None),
        ("GET", path, None, 200, kept),
        (method, path, bad, status, ANY),
        ("GET", path, None, 200, kept),
        (method, path.replace("default", "nope"), good, 404, "Namespace does not exist"),
        ("GET", path.replace("default", "nope"), None, 404, "Namespace does not exist"),
    ]
    if has_delete:
        steps += [("DELETE", path, None, 204, None), ("GET", path, None, 200, unset)]
    play(make_broker, steps)


def test_a_namespaces_document_has_its_publish_rate_by_cluster(make_broker: MakeBroker) -> None:
    rate = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 5}
    document = {"publishMaxMessageRate": {"standalone": rate}}
    play(
        make_broker,
        [
            ("GET", N, None, 200, {"publishMaxMessageRate": {}}),
            ("PUT", "/namespaces/public/limited", document, 204, None),
            ("GET", "/namespaces/public/limited", None, 200, document),
            ("GET", "/namespaces/public/limited/publishRate", None, 200, rate),
            ("PUT", "/namespaces/public/none", {"publishMaxMessageRate": {}}, 204, None),
            ("PUT", "/namespaces/public/null", {"publishMaxMessageRate": None}, 204, None),
            ("GET", "/namespaces/public/null", None, 200, {"publishMaxMessageRate": {}}),
            ("PUT", "/namespaces/public/bad", {"publishMaxMessageRate": 7}, 400, ANY),
            ("PUT", "/namespaces/public/bad", {"publishMaxMessageRate": {"other": rate}}, 501, ANY),
        ],
    )


DISPATCH = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
NO_DISPATCH = {"dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0}
SUBSCRIBE = {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 60}


def test_a_namespaces_document_has_its_other_rates_by_cluster(make_broker: MakeBroker) -> None:
    of_topics = {"topicDispatchRate": {"standalone": DISPATCH}}
    both = {**of_topics, "clusterDispatchRate": {"standalone": DISPATCH}}  # the former name says the same
    document = {
        **both,
        "subscriptionDispatchRate": {"standalone": DISPATCH},
        "replicatorDispatchRate": {"standalone": DISPATCH},
        "clusterSubscribeRate": {"standalone": SUBSCRIBE},
    }
    other = {"standalone": {**DISPATCH, "dispatchThrottlingRateInMsg": 77}}
    play(
        make_broker,
        [
            ("GET", N, None, 200, {key: {} for key in document}),
            ("PUT", "/namespaces/public/limited", document, 204, None),
            ("GET", "/namespaces/public/limited", None, 200, document),
            ("GET", "/namespaces/public/limited/dispatchRate", None, 200, DISPATCH),
            ("GET", "/namespaces/public/limited/subscriptionDispatchRate", None, 200, DISPATCH),
            ("GET", "/namespaces/public/limited/replicatorDispatchRate", None, 200, DISPATCH),
            ("GET", "/namespaces/public/limited/subscribeRate", None, 200, SUBSCRIBE),
            ("DELETE", "/namespaces/public/limited/dispatchRate", None, 204, None),
            ("GET", "/namespaces/public/limited", None, 200, {**document, **{key: {} for key in both}}),
            ("PUT", "/namespaces/public/new", {**of_topics, "clusterDispatchRate": other}, 204, None),
            ("GET", "/namespaces/public/new", None, 200, both),
            ("PUT", "/namespaces/public/old", {"clusterDispatchRate": {"standalone": DISPATCH}}, 204, None),
            ("GET", "/namespaces/public/old", None, 200, both),
            ("PUT", "/namespaces/public/none", {key: {} for key in document}, 204, None),
            ("PUT", "/namespaces/public/null", dict.fromkeys(document), 204, None),
            ("GET", "/namespaces/public/null", None, 200, {key: {} for key in document}),
            ("PUT", "/namespaces/public/bad", {"clusterDispatchRate": 7}, 400, ANY),
            ("PUT", "/namespaces/public/bad", {"topicDispatchRate": {"other": DISPATCH}}, 501, ANY),
        ],
    )


def test_a_topic_too_many_is_refused_however_it_is_asked_for(make_broker: MakeBroker) -> None:
    refusal = "Exceed maximum number of topics in namespace."
    makes_two = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    play(
        make_broker,
        [
            ("POST", f"{N}/maxTopicsPerNamespace", 3, 204, None),
            ("POST", f"{N}/autoTopicCreation", makes_two, 204, None),
            ("GET", N, None, 200, {"max_topics_per_namespace": 3}),
            ("PUT", f"{T}/p/partitions", 4, 412, refusal),
            ("PUT", f"{T}/p/partitions", 2, 204, None),
            ("GET", f"{T}/q/partitions?checkAllowAutoCreation=true", None, 412, refusal),
            ("PUT", f"{T}/q/subscription/s", None, 412, refusal),
            ("PUT", f"{T}/t", None, 204, None),
            ("PUT", f"{T}/u", None, 412, refusal),
            ("POST", f"{T}/p/partitions", 4, 204, None),
            ("GET", f"{T}/p/partitions?checkAllowAutoCreation=true", None, 200, {"partitions": 4}),
            ("DELETE", f"{N}/maxTopicsPerNamespace", None, 204, None),
            ("PUT", f"{T}/u", None, 204, None),
            ("PUT", "/namespaces/public/one", {"max_topics_per_namespace": 1}, 204, None),
            ("PUT", "/persistent/public/one/t", None, 204, None),
            ("PUT", "/persistent/public/one/u", None, 412, refusal),
        ],
    )


def test_backlog_quotas_are_set_type_by_type(make_broker: MakeBroker) -> None:
    size = {"limitSize": 1000, "policy": "producer_exception"}
    shown = {"limit": 1000, "limitSize": 1000, "limitTime": 0, "policy": "producer_exception"}
    age = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    play(
        make_broker,
        [
            ("GET", f"{N}/backlogQuotaMap", None, 200, {}),
            ("POST", f"{N}/backlogQuota", size, 204, None),
            ("POST", f"{N}/backlogQuota?backlogQuotaType=message_age", age, 204, None),
            ("POST", f"{N}/backlogQuota?backlogQuotaType=zz", age, 404, ANY),
            ("POST", f"{N}/backlogQuota", {"limitSize": 5}, 400, ANY),
            ("POST", f"{N}/backlogQuota?backlogQuotaType=message_age", size, 400, ANY),
            (
                "GET",
                f"{N}/backlogQuotaMap",
                None,
                200,
                {"destination_storage": shown, "message_age": ANY_AGE},
            ),
            ("DELETE", f"{N}/backlogQuota?backlogQuotaType=message_age", None, 204, None),
            ("GET", f"{N}/backlogQuotaMap", None, 200, {"destination_storage": shown, "message_age": None}),
            ("DELETE", f"{N}/backlogQuota", None, 204, None),
            ("GET", f"{N}/backlogQuotaMap", None, 200, {}),
            ("PUT", f"{T}/t", None, 204, None),
            ("POST", f"{N}/backlogQuota", size, 204, None),
            ("GET", f"{T}/t/backlogQuotaMap", None, 200, {"destination_storage": None}),
            ("GET", f"{T}/t/backlogQuotaMap?applied=true", None, 200, {"destination_storage": shown}),
            ("POST", f"{T}/t/backlogQuota?backlogQuotaType=message_age", age, 204, None),
            ("GET", f"{T}/t/backlogQuotaMap?applied=true", None, 200, {"destination_storage": shown}),
            ("DELETE", f"{T}/t/backlogQuota?backlogQuotaType=message_age", None, 204, None),
            ("GET", f"{T}/t/backlogQuotaMap", None, 200, {"message_age": None}),
        ],
    )


ANY_AGE = {"limit": -1, "limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}


def test_properties_one_by_one(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("PUT", f"{N}/property/a/b", None, 204, None),
            ("PUT", f"{N}/property/c/d", None, 204, None),
            ("GET", f"{N}/properties", None, 200, {"a": "b", "c": "d"}),
            ("GET", f"{N}/property/c", None, 200, "d"),
            ("GET", f"{N}/property/zz", None, 200, None),
            ("DELETE", f"{N}/property/c", None, 200, "d"),
            ("GET", f"{N}/properties", None, 200, {"a": "b", "c": None}),
        ],
    )


@pytest.mark.parametrize(
    ("resource", "value", "default"),
    [
        ("messageTTL", 7, 0),
        (
            "retention",
            {"retentionTimeInMinutes": 5, "retentionSizeInMB": 3},
            {"retentionTimeInMinutes": 7 * 24 * 60, "retentionSizeInMB": -1},
        ),
        ("compactionThreshold", 7, 0),
        ("maxProducers", 7, 0),
        ("maxConsumers", 7, 0),
        ("maxConsumersPerSubscription", 7, 0),
        ("maxSubscriptionsPerTopic", 7, 0),
        ("maxUnackedMessagesOnConsumer", 7, 50_000),
        ("maxUnackedMessagesOnSubscription", 7, 200_000),
        ("deduplicationEnabled", True, False),
        ("schemaValidationEnforced", True, False),
        ("schemaCompatibilityStrategy", "BACKWARD", "FULL"),
        ("dispatchRate", DISPATCH, {**DISPATCH, **NO_DISPATCH}),
        ("subscriptionDispatchRate", DISPATCH, {**DISPATCH, **NO_DISPATCH}),
        ("replicatorDispatchRate", DISPATCH, {**DISPATCH, **NO_DISPATCH}),
        ("subscribeRate", SUBSCRIBE, {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30}),
    ],
)
def test_a_topics_policy_goes_over_its_namespaces(
    make_broker: MakeBroker, resource: str, value: Any, default: Any
) -> None:
    path, method = f"{T}/t/{resource}", "PUT" if resource in PUT else "POST"
    play(
        make_broker,
        [
            ("GET", path, None, 404, ANY),
            (method, path, value, 404, ANY),
            ("PUT", f"{T}/t", None, 204, None),
            ("GET", path, None, 200, None),
            ("GET", f"{path}?applied=true", None, 200, default),
            (method, path, value, 204, None),
            ("GET", path, None, 200, value),
            ("GET", f"{path}?applied=true", None, 200, value),
            ("DELETE", path, None, 204, None),
            ("GET", path, None, 200, None),
        ],
    )


def test_each_policy_of_topics_has_a_value_in_effect(make_broker: MakeBroker) -> None:
    paths = [f"{T}/t/{resource.path}?applied=true" for resource in TOPIC_RESOURCES]
    play(
        make_broker, [("PUT", f"{T}/t", None, 204, None), *(("GET", path, None, 200, ANY) for path in paths)]
    )


def test_a_topic_inherits_what_its_namespace_says(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("PUT", f"{T}/p/partitions", 2, 204, None),
            ("POST", f"{N}/messageTTL", 9, 204, None),
            ("GET", f"{T}/p/messageTTL?applied=true", None, 200, 9),
            ("POST", f"{T}/p-partition-1/messageTTL?messageTTL=5", None, 204, None),
            ("GET", f"{T}/p/messageTTL", None, 200, 5),
            ("POST", f"{T}/p/messageTTL?messageTTL=x", None, 400, ANY),
            ("DELETE", f"{T}/p/partitions", None, 204, None),
            ("PUT", f"{T}/p/partitions", 2, 204, None),
            ("GET", f"{T}/p/messageTTL", None, 200, None),
        ],
    )


def test_a_subscription_has_a_dispatch_rate_by_its_name(make_broker: MakeBroker) -> None:
    of_one, of_all = f"{T}/t/s/dispatchRate", f"{T}/t/subscriptionDispatchRate"
    other = {**DISPATCH, "dispatchThrottlingRateInMsg": 77}
    play(
        make_broker,
        [
            ("GET", of_one, None, 404, ANY),
            ("POST", of_one, DISPATCH, 404, ANY),
            ("PUT", f"{T}/t", None, 204, None),
            ("GET", of_one, None, 200, None),
            ("GET", f"{of_one}?applied=true", None, 200, {**DISPATCH, **NO_DISPATCH}),
            ("POST", f"{N}/subscriptionDispatchRate", other, 204, None),
            ("GET", f"{of_one}?applied=true", None, 200, other),
            ("POST", of_one, DISPATCH, 204, None),
            ("GET", of_one, None, 200, DISPATCH),
            ("GET", f"{of_one}?applied=true", None, 200, DISPATCH),
            ("GET", f"{T}/t/with%2Fslash/dispatchRate", None, 200, None),
            ("POST", f"{T}/t/with%2Fslash/dispatchRate", other, 204, None),
            ("GET", f"{T}/t/with%2Fslash/dispatchRate", None, 200, other),
            ("GET", of_all, None, 200, None),
            ("POST", of_one, {"relativeToPublishRate": True}, 412, ANY),
            ("POST", of_one, {"dispatchThrottlingRateInMsg": "x"}, 400, ANY),
            ("DELETE", of_one, None, 204, None),
            ("DELETE", of_one, None, 204, None),
            ("GET", of_one, None, 200, None),
            ("GET", f"{T}/t/with%2Fslash/dispatchRate", None, 200, other),
            (
                "PUT",
                "/namespaces/public/n",
                {"subscriptionPolicies": {"s": {"dispatchRate": DISPATCH}}},
                412,
                ANY,
            ),
        ],
    )
