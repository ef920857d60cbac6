"""Tenants, namespaces and policies: what is kept, what is refused, what holds for a topic."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.policy import namespaces as module
from magnetar.broker.policy.errors import (
    InvalidNamespace,
    InvalidPolicy,
    NamespaceExists,
    NamespaceNotFound,
    TenantExists,
    TenantNotEmpty,
    TenantNotFound,
    UnknownCluster,
)
from magnetar.broker.policy.layers import effective
from magnetar.broker.policy.model import (
    AutoTopicCreation,
    BacklogQuota,
    Compatibility,
    Level,
    Policies,
    QuotaAction,
    QuotaType,
    Retention,
    Tenant,
)
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.policy.policies import POLICIES
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

TOPIC = TopicName.parse("persistent://public/default/t")


async def loaded(store: MemoryMetadataStore, topics: tuple[TopicName, ...] = ()) -> Namespaces:
    namespaces = Namespaces(store, FakeClock())
    await namespaces.load({"public/default"}, topics)
    return namespaces


async def nothing_kept(name: str) -> None: ...


def run(scenario: Callable[[Namespaces, MemoryMetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MemoryMetadataStore()
        await scenario(await loaded(store), store)

    asyncio.run(main())


def test_the_default_namespace_is_there_from_the_start() -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        assert namespaces.tenants == ["public"]
        assert namespaces.names_of("public") == ["public/default"]
        assert namespaces.policies_of(TOPIC) == Policies()

    run(scenario)


def test_everything_survives_a_restart() -> None:
    async def scenario(namespaces: Namespaces, store: MemoryMetadataStore) -> None:
        await namespaces.create_tenant(Tenant("acme", ("boss",)))
        await namespaces.create("acme/n", {"message_ttl_in_seconds": 7}, bundle_count=2)
        await namespaces.change_topic(TOPIC, lambda _: {"max_producers_per_topic": 3})
        again = await loaded(store)
        assert again.tenant("acme") == Tenant("acme", ("boss",))
        assert again.require("acme/n") == namespaces.require("acme/n")
        assert again.require("acme/n").bundle_boundaries == ["0x00000000", "0x80000000", "0xffffffff"]
        assert again.policies_of(TOPIC).producers_max == 3

    run(scenario)


def test_a_topic_whose_namespace_is_missing_gets_it_back() -> None:
    async def main() -> None:
        namespaces = await loaded(MemoryMetadataStore(), (TopicName.parse("persistent://old/place/t"),))
        assert "old/place" in namespaces
        assert "old" in namespaces.tenants

    asyncio.run(main())


def test_tenants_are_made_once_changed_and_deleted_when_empty() -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        with pytest.raises(TenantNotFound):
            await namespaces.create("acme/n")
        await namespaces.create_tenant(Tenant("acme"))
        with pytest.raises(TenantExists):
            await namespaces.create_tenant(Tenant("acme"))
        await namespaces.update_tenant(Tenant("acme", ("boss",)))
        assert namespaces.tenant("acme").admin_roles == ("boss",)
        await namespaces.create("acme/n")
        with pytest.raises(TenantNotEmpty):
            await namespaces.delete_tenant("acme")
        await namespaces.delete("acme/n", nothing_kept)
        await namespaces.delete_tenant("acme")
        with pytest.raises(TenantNotFound):
            namespaces.tenant("acme")

    run(scenario)


@pytest.mark.parametrize("roles", [("x" * 1025,), tuple(map(str, range(1025)))])
def test_the_administrators_of_a_tenant_have_a_limit(roles: tuple[str, ...]) -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        with pytest.raises(InvalidNamespace):
            await namespaces.create_tenant(Tenant("acme", roles))
        await namespaces.create_tenant(Tenant("acme"))
        with pytest.raises(InvalidNamespace):
            await namespaces.update_tenant(Tenant("acme", roles))

    run(scenario)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 129, ".."])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        with pytest.raises(InvalidNamespace):
            await namespaces.create_tenant(Tenant(name))
        with pytest.raises(InvalidNamespace):
            await namespaces.create(f"public/{name}")

    run(scenario)


def test_there_is_one_cluster() -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        with pytest.raises(UnknownCluster):
            await namespaces.create_tenant(Tenant("acme", (), ("elsewhere",)))
        with pytest.raises(InvalidNamespace):
            await namespaces.create_tenant(Tenant("acme", (), ()))

    run(scenario)


def test_a_namespace_is_made_once_and_what_is_deleted_is_gone() -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        await namespaces.create("public/n", {"message_ttl_in_seconds": 7})
        topic = TopicName.parse("persistent://public/n/t")
        assert namespaces.policies_of(topic).message_ttl_s == 7
        with pytest.raises(NamespaceExists):
            await namespaces.create("public/n")
        await namespaces.delete("public/n", nothing_kept)
        assert namespaces.policies_of(topic).message_ttl_s == 0
        with pytest.raises(NamespaceNotFound):
            namespaces.require("public/n")
        with pytest.raises(NamespaceNotFound):
            await namespaces.change("public/n", lambda values: values)

    run(scenario)


def test_many_topics_made_at_once_make_their_namespace_once() -> None:
    async def scenario(namespaces: Namespaces, store: MemoryMetadataStore) -> None:
        before = store.commit_count
        store.hold()
        making = [asyncio.create_task(namespaces.ensure({"new/n"})) for _ in range(5)]
        await asyncio.sleep(0)
        assert "new/n" not in namespaces  # not before it is durable
        store.release()
        await asyncio.gather(*making)
        assert store.commit_count == before + 1
        assert "new/n" in namespaces

    run(scenario)


def test_what_cannot_be_stored_has_not_happened() -> None:
    async def scenario(namespaces: Namespaces, store: MemoryMetadataStore) -> None:
        store.fail_next = 1
        with pytest.raises(MetadataError):
            await namespaces.change("public/default", lambda _: {"message_ttl_in_seconds": 7})
        assert namespaces.policies_of(TOPIC).message_ttl_s == 0
        assert namespaces.require("public/default").policies == {}

    run(scenario)


def test_a_change_keeps_the_other_policies_and_tells_the_listeners() -> None:
    async def scenario(_: Namespaces, store: MemoryMetadataStore) -> None:
        told: list[tuple[str, TopicName | None]] = []

        async def tell(name: str, topic: TopicName | None) -> None:
            told.append((name, topic))

        namespaces = await loaded(store)
        namespaces.policies_changed.hear(tell)
        await namespaces.change("public/default", lambda values: {**values, "message_ttl_in_seconds": 7})
        await namespaces.change("public/default", lambda values: {**values, "max_producers_per_topic": 2})
        await namespaces.change_topic(TOPIC, lambda values: {**values, "max_producers_per_topic": 5})
        policies = namespaces.policies_of(TOPIC)
        assert (policies.message_ttl_s, policies.producers_max) == (7, 5)
        await namespaces.change("public/default", lambda values: {**values, "message_ttl_in_seconds": None})
        assert namespaces.policies_of(TOPIC).message_ttl_s == 0
        assert told == [("public/default", None)] * 2 + [("public/default", TOPIC), ("public/default", None)]

    run(scenario)


def test_a_deleted_topic_leaves_no_policies_for_its_successor() -> None:
    async def scenario(namespaces: Namespaces, store: MemoryMetadataStore) -> None:
        await namespaces.change_topic(TOPIC, lambda _: {"max_producers_per_topic": 5})
        await store.commit(namespaces.deletion_of(TOPIC))
        namespaces.forget_topic(TOPIC)
        assert namespaces.policies_of(TOPIC).producers_max == 0
        assert (await loaded(store)).policies_of(TOPIC).producers_max == 0

    run(scenario)


def test_topics_without_policies_of_their_own_share_those_of_their_namespace() -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        one, other = (TopicName.parse(f"persistent://public/default/{name}") for name in "ab")
        elsewhere = TopicName.parse("persistent://public/elsewhere/a")
        await namespaces.create("public/elsewhere", {"message_ttl_in_seconds": 9})
        assert namespaces.policies_of(one) is namespaces.policies_of(other), (
            "10,000 topics are as many at a start"
        )
        assert namespaces.policies_of(elsewhere).message_ttl_s == 9
        await namespaces.change_topic(one, lambda _: {"max_producers_per_topic": 5})
        await namespaces.change("public/default", lambda _: {"message_ttl_in_seconds": 7})
        assert (namespaces.policies_of(one).producers_max, namespaces.policies_of(one).message_ttl_s) == (
            5,
            7,
        )
        assert (namespaces.policies_of(other).producers_max, namespaces.policies_of(other).message_ttl_s) == (
            0,
            7,
        )
        await namespaces.change_topic(one, lambda _: {})
        assert namespaces.policies_of(one) is namespaces.policies_of(other)
        assert namespaces.policies_of(elsewhere).message_ttl_s == 9

    run(scenario)


def test_policies_are_bounded_in_number_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLICIES_CACHED_MAX", 3)

    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        for index in range(10):
            namespaces.policies_of(TopicName.parse(f"persistent://public/default/t{index}"))
        assert len(namespaces._effective) <= 3

    run(scenario)


# policy, value given, value kept (None: refused)
VALUES: list[tuple[str, Any, Any]] = [
    ("deduplicationEnabled", True, True),
    ("deduplicationEnabled", "true", True),
    ("deduplicationEnabled", "false", False),
    ("message_ttl_in_seconds", 0, 0),
    ("message_ttl_in_seconds", -1, None),
    ("message_ttl_in_seconds", True, None),
    ("message_ttl_in_seconds", 1 << 31, None),
    ("retention_policies", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 0}, None),
    ("retention_policies", {"retentionTimeInMinutes": -2, "retentionSizeInMB": -1}, None),
    (
        "retention_policies",
        {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
    ),
    ("retention_policies", [], None),
    (
        "backlog_quota_map",
        {"message_age": {"limitTime": 5, "policy": "producer_exception"}},
        {"message_age": {"limit": -1, "limitSize": -1, "limitTime": 5, "policy": "producer_exception"}},
    ),
    ("backlog_quota_map", {"message_age": {"limitSize": 5, "policy": "producer_exception"}}, None),
    ("backlog_quota_map", {"destination_storage": {"limitTime": 5, "policy": "producer_exception"}}, None),
    ("backlog_quota_map", {"destination_storage": {"limitSize": 5}}, None),
    ("backlog_quota_map", {"destination_storage": {"limitSize": 5, "policy": "nope"}}, None),
    ("backlog_quota_map", {"other": {"limitSize": 5, "policy": "producer_exception"}}, None),
    ("schema_compatibility_strategy", "FORWARD", "FORWARD"),
    ("schema_compatibility_strategy", "Forward", None),
    ("schema_compatibility_strategy", {}, None),
    ("autoTopicCreationOverride", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, None),
    (
        "autoTopicCreationOverride",
        {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 3},
        None,
    ),
    ("autoTopicCreationOverride", {"allowAutoTopicCreation": True, "topicType": "zz"}, None),
    ("delayed_delivery_policies", {"active": True, "tickTime": 0}, None),
    ("delayed_delivery_policies", {"active": True, "maxDeliveryDelayInMillis": 5}, None),
    (
        "delayed_delivery_policies",
        {"active": False},
        {"active": False, "tickTime": 1000, "maxDeliveryDelayInMillis": 0},
    ),
    ("inactive_topic_policies", {"inactiveTopicDeleteMode": "zz"}, None),
    ("max_producers_per_topic", -1, None),
    ("max_topics_per_namespace", 3, 3),
    ("max_topics_per_namespace", 0, 0),
    ("max_topics_per_namespace", -1, None),
    ("max_topics_per_namespace", 1.5, None),
    ("properties", {"a": "b"}, {"a": "b"}),
    ("properties", {"a": 1, "b": True}, {"a": "1", "b": "true"}),
    ("properties", {"a": {}}, None),
    ("properties", {"a": None}, None),
    ("deduplicationEnabled", "True", None),
    ("message_ttl_in_seconds", "11", 11),
    ("message_ttl_in_seconds", "1e3", None),
    ("message_ttl_in_seconds", "-1", None),
    ("message_ttl_in_seconds", "", None),
    ("properties", {"a": "b" * 5000}, None),
    ("compaction_threshold", "5", 5),
    ("compaction_threshold", -1, None),
    ("persistence", {"bookkeeperEnsemble": 1}, None),
]


@pytest.mark.parametrize(("key", "given", "kept"), VALUES)
def test_a_policy_has_a_value_that_can_be_or_is_refused(key: str, given: Any, kept: Any) -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        if kept is None:
            with pytest.raises(InvalidPolicy):
                await namespaces.change("public/default", lambda _: {key: given})
            assert namespaces.require("public/default").policies == {}
        else:
            await namespaces.change("public/default", lambda _: {key: given})
            assert json.loads(json.dumps(namespaces.require("public/default").policies)) == {key: kept}
            namespaces.policies_of(TOPIC)

    run(scenario)


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("autoTopicCreationOverride", {"allowAutoTopicCreation": False}),
        ("encryption_required", True),
        ("max_topics_per_namespace", 3),
    ],
)
def test_what_belongs_to_a_namespace_is_refused_for_a_topic(key: str, given: Any) -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        with pytest.raises(InvalidPolicy):
            await namespaces.change_topic(TOPIC, lambda _: {key: given})
        await namespaces.change("public/default", lambda _: {key: given})

    run(scenario)


def test_what_belongs_to_a_topic_is_refused_for_a_namespace() -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        named: dict[str, Any] = {"subscriptionPolicies": {"s": {"dispatchRate": {}}}}
        with pytest.raises(InvalidPolicy):
            await namespaces.change("public/default", lambda _: named)
        await namespaces.change_topic(TOPIC, lambda _: named)
        many: dict[str, Any] = {str(number): {"dispatchRate": {}} for number in range(1001)}
        with pytest.raises(InvalidPolicy):
            await namespaces.change_topic(TOPIC, lambda _: {"subscriptionPolicies": many})

    run(scenario)


# A value of each policy that does not hold without it.
OTHER_VALUES: dict[str, Any] = {
    "publishMaxMessageRate": {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1},
    "topicDispatchRate": {
        "dispatchThrottlingRateInMsg": 1,
        "dispatchThrottlingRateInByte": 0,
        "ratePeriodInSecond": 0,
    },
    "subscriptionDispatchRate": {
        "dispatchThrottlingRateInMsg": 0,
        "dispatchThrottlingRateInByte": 1,
        "ratePeriodInSecond": 5,
    },
    "replicatorDispatchRate": {
        "dispatchThrottlingRateInMsg": 1,
        "dispatchThrottlingRateInByte": 0,
        "ratePeriodInSecond": 5,
    },
    "clusterSubscribeRate": {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 30},
    "subscriptionPolicies": {
        "s": {
            "dispatchRate": {
                "dispatchThrottlingRateInMsg": 1,
                "dispatchThrottlingRateInByte": 0,
                "ratePeriodInSecond": 1,
            }
        }
    },
    "deduplicationEnabled": True,
    "retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1},
    "message_ttl_in_seconds": 1,
    "backlog_quota_map": {
        "destination_storage": {"limitSize": 1, "limitTime": -1, "policy": "producer_exception"}
    },
    "schema_compatibility_strategy": "BACKWARD",
    "schema_validation_enforced": True,
    "is_allow_auto_update_schema": False,
    "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
    "delayed_delivery_policies": {"tickTime": 7, "active": False, "maxDeliveryDelayInMillis": 0},
    "inactive_topic_policies": {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 7,
        "deleteWhileInactive": True,
    },
    "max_producers_per_topic": 1,
    "max_consumers_per_topic": 1,
    "max_consumers_per_subscription": 1,
    "max_subscriptions_per_topic": 1,
    "max_unacked_messages_per_consumer": 1,
    "max_unacked_messages_per_subscription": 1,
    "max_topics_per_namespace": 1,
    "subscription_types_enabled": ["Exclusive"],
    "encryption_required": True,
    "resource_group_name": "gold",
    "subscription_expiration_time_minutes": 1,
    "compaction_threshold": 1,
}


def test_every_policy_that_can_be_set_changes_what_holds() -> None:
    # `properties` are the users' own, and are kept for them alone.
    assert OTHER_VALUES.keys() == POLICIES.keys() - {"properties", "subscription_auth_mode"}
    for key, given in OTHER_VALUES.items():
        layer = {key: given}
        at_topic = layer if Level.TOPIC in POLICIES[key].levels else {}
        assert effective(at_topic, layer, Policies()) != Policies(), key


def test_a_namespace_tells_its_topics_how_many_there_may_be() -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        await namespaces.change("public/default", lambda _: {"max_topics_per_namespace": 3})
        assert namespaces.policies_of(TOPIC).namespace_topics_max == 3

    run(scenario)


def test_the_layers_come_to_typed_policies() -> None:
    async def scenario(namespaces: Namespaces, _: MemoryMetadataStore) -> None:
        age = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
        await namespaces.change(
            "public/default",
            lambda _: {
                "retention_policies": {"retentionTimeInMinutes": 2, "retentionSizeInMB": -1},
                "backlog_quota_map": {"message_age": age},
                "schema_compatibility_strategy": "BACKWARD",
                "autoTopicCreationOverride": {
                    "allowAutoTopicCreation": True,
                    "topicType": "partitioned",
                    "defaultNumPartitions": 3,
                },
            },
        )
        size = {"limitSize": 100, "policy": "producer_request_hold"}
        await namespaces.change_topic(
            TOPIC,
            lambda _: {
                "backlog_quota_map": {"destination_storage": size},
                "schema_compatibility_strategy": "UNDEFINED",
            },
        )
        policies = namespaces.policies_of(TOPIC)
        assert policies.retention == Retention(120_000, -1)
        assert policies.backlog_quotas == {
            QuotaType.AGE: BacklogQuota(60, QuotaAction.EVICT_BACKLOG),
            QuotaType.SIZE: BacklogQuota(100, QuotaAction.HOLD_PRODUCERS),
        }
        assert policies.schema_compatibility is Compatibility.BACKWARD
        assert policies.auto_topic_creation == AutoTopicCreation(True, 3)

    run(scenario)
