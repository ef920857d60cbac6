"""The policies of namespaces and topics: one resource each, made from a table.

Reading a policy that is not set gives an empty body or the default, as Pulsar does.  With `?applied=true` a topic
answers with the value in effect, wherever it is set (`broker/policy/in_effect.py`).  Policies without an effect here
are refused (`unserved.py`), because every stored setting has an effect.  They read as not set, and can be removed, so
that tools that compare all policies of a namespace with a plan find no difference.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, body, done, flag, object_body, text, value
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.names import topic_name
from magnetar.admin.routing import Router
from magnetar.base.names import TopicName
from magnetar.broker.policy.errors import InvalidPolicy, MalformedPolicy, QuotaAboveRetention
from magnetar.broker.policy.model import (
    CLUSTER,
    CONSUMER_UNACKED_MAX,
    DISPATCH_RATE,
    PUBLISH_RATE,
    REPLICATOR_DISPATCH_RATE,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIPTION_POLICIES,
    SUBSCRIPTION_UNACKED_MAX,
    JsonValue,
    QuotaType,
)
from magnetar.broker.usecases.policies import Update, with_properties, without_policies

router: Final = Router()
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"


class Resource(NamedTuple):
    """`unset` is a namespace's answer if the policy is not set."""

    path: str
    key: str
    method: str = "POST"
    unset: JsonValue = None
    invalid_status: int = 412
    has_delete: bool = True


NAMESPACE_RESOURCES: Final = (
    Resource("messageTTL", "message_ttl_in_seconds"),
    Resource("retention", "retention_policies", invalid_status=400),
    Resource("deduplication", "deduplicationEnabled"),
    Resource("autoTopicCreation", "autoTopicCreationOverride"),
    Resource("autoSubscriptionCreation", "autoSubscriptionCreationOverride"),
    Resource("delayedDelivery", "delayed_delivery_policies"),
    Resource("inactiveTopicPolicies", "inactive_topic_policies"),
    Resource("publishRate", PUBLISH_RATE),
    Resource("dispatchRate", DISPATCH_RATE),
    Resource("subscriptionDispatchRate", SUBSCRIPTION_DISPATCH_RATE),
    Resource("replicatorDispatchRate", REPLICATOR_DISPATCH_RATE),
    Resource("subscribeRate", SUBSCRIBE_RATE),
    Resource("maxProducersPerTopic", "max_producers_per_topic"),
    Resource("maxConsumersPerTopic", "max_consumers_per_topic"),
    Resource("maxConsumersPerSubscription", "max_consumers_per_subscription"),
    Resource("maxSubscriptionsPerTopic", "max_subscriptions_per_topic"),
    Resource("maxUnackedMessagesPerConsumer", CONSUMER_UNACKED_MAX),
    Resource("maxUnackedMessagesPerSubscription", SUBSCRIPTION_UNACKED_MAX),
    Resource("maxTopicsPerNamespace", "max_topics_per_namespace"),
    Resource("subscriptionExpirationTime", "subscription_expiration_time_minutes"),
    Resource("compactionThreshold", "compaction_threshold", "PUT"),
    Resource(
        "schemaCompatibilityStrategy", "schema_compatibility_strategy", "PUT", "UNDEFINED", has_delete=False
    ),
    Resource("schemaValidationEnforced", "schema_validation_enforced", unset=False, has_delete=False),
    Resource("isAllowAutoUpdateSchema", "is_allow_auto_update_schema", unset=True, has_delete=False),
    Resource("subscriptionTypesEnabled", "subscription_types_enabled", unset=[], invalid_status=400),
    Resource("encryptionRequired", "encryption_required", unset=False, has_delete=False),
    Resource("subscriptionAuthMode", "subscription_auth_mode", unset="None", has_delete=False),
)
TOPIC_RESOURCES: Final = (
    Resource("messageTTL", "message_ttl_in_seconds"),
    Resource("retention", "retention_policies", invalid_status=400),
    Resource("deduplicationEnabled", "deduplicationEnabled"),
    Resource("autoSubscriptionCreation", "autoSubscriptionCreationOverride"),
    Resource("delayedDelivery", "delayed_delivery_policies"),
    Resource("inactiveTopicPolicies", "inactive_topic_policies"),
    Resource("maxProducers", "max_producers_per_topic"),
    Resource("maxConsumers", "max_consumers_per_topic"),
    Resource("maxConsumersPerSubscription", "max_consumers_per_subscription"),
    Resource("maxSubscriptionsPerTopic", "max_subscriptions_per_topic"),
    Resource("maxUnackedMessagesOnConsumer", CONSUMER_UNACKED_MAX),
    Resource("maxUnackedMessagesOnSubscription", SUBSCRIPTION_UNACKED_MAX),
    Resource("subscriptionTypesEnabled", "subscription_types_enabled", invalid_status=400),
    Resource("compactionThreshold", "compaction_threshold"),
    Resource("publishRate", PUBLISH_RATE),
    Resource("dispatchRate", DISPATCH_RATE),
    Resource("subscriptionDispatchRate", SUBSCRIPTION_DISPATCH_RATE),
    Resource("replicatorDispatchRate", REPLICATOR_DISPATCH_RATE),
    Resource("subscribeRate", SUBSCRIBE_RATE),
    Resource("schemaCompatibilityStrategy", "schema_compatibility_strategy", "PUT"),
    Resource("schemaValidationEnforced", "schema_validation_enforced"),
)


def _refusal(key: str, status: int, error: InvalidPolicy) -> Refused:
    if isinstance(error, MalformedPolicy):
        return BadBody(str(error))
    if isinstance(error, QuotaAboveRetention):
        return Refused(412, str(error))
    prefix = "Invalid configuration for autoTopicCreationOverride. the detail is "
    return Refused(status, (prefix if key == "autoTopicCreationOverride" else "") + str(error))


def _namespace_resource(resource: Resource) -> None:
    path, key = f"{_N}/{resource.path}", resource.key

    async def read(request: Request) -> Response:
        found = cases_of(request).policies.of_namespace(caller_of(request), _namespace(request))
        set_for_it = found.policies.get(key)
        return value(resource.unset if set_for_it is None else set_for_it)

    async def write(request: Request) -> Response:
        content = await body(request)
        await _change_namespace(request, _namespace(request), key, content, resource.invalid_status)
        return done()

    async def remove(request: Request) -> Response:
        await _change_namespace(request, _namespace(request), key, None, resource.invalid_status)
        return done()

    _add(
        path,
        f"a namespace's {resource.path}",
        read,
        write,
        resource.method,
        remove if resource.has_delete else None,
    )


def _topic_resource(resource: Resource) -> None:
    path, key = f"{_T}/{resource.path}", resource.key

    async def read(request: Request) -> Response:
        policies, caller, topic = cases_of(request).policies, caller_of(request), _topic(request)
        if flag(request, "applied"):
            return value(policies.in_effect(caller, topic, key))
        return value(policies.of_topic(caller, topic).get(key))

    async def write(request: Request) -> Response:
        name = _topic(request)
        content = await body(request)
        if content is None and (given := request.query_params.get(resource.path)) is not None:
            content = _number(given)
        await _change_topic(request, name, key, content, resource.invalid_status)
        return done()

    async def remove(request: Request) -> Response:
        name = _topic(request)
        await _change_topic(request, name, key, None, resource.invalid_status)
        return done()

    _add(path, f"a topic's {resource.path}", read, write, resource.method, remove)


_NAMESPACE_WORDS: Final = ("tenant", "namespace")
_TOPIC_WORDS: Final = ("domain", "tenant", "namespace", "topic")


def _namespace(request: Request) -> str:
    return "/".join(request.path_params[word] for word in _NAMESPACE_WORDS)


def _topic(request: Request) -> TopicName:
    return topic_name(*(request.path_params[word] for word in _TOPIC_WORDS))[0]


def _add(
    path: str,
    what: str,
    read: Callable[..., Awaitable[Response]],
    write: Callable[..., Awaitable[Response]],
    method: str,
    remove: Callable[..., Awaitable[Response]] | None,
) -> None:
    router.add(path, read, ["GET"], f"Show {what}")
    router.add(path, write, [method], f"Set {what}")
    if remove is not None:
        router.add(path, remove, ["DELETE"], f"Remove {what}")


def _number(given: str) -> int:
    try:
        return int(given)
    except ValueError:
        raise BadBody(f"{given[:100]!r} is not a whole number") from None


async def _change_namespace(request: Request, name: str, key: str, content: JsonValue, status: int) -> None:
    policies = cases_of(request).policies
    try:
        await policies.change_namespace(caller_of(request), name, lambda values: {**values, key: content})
    except InvalidPolicy as error:
        raise _refusal(key, status, error) from None


async def _change_topic(request: Request, name: TopicName, key: str, content: JsonValue, status: int) -> None:
    policies = cases_of(request).policies
    try:
        await policies.change_topic(caller_of(request), name, lambda values: {**values, key: content})
    except InvalidPolicy as error:
        raise _refusal(key, status, error) from None


for _one in NAMESPACE_RESOURCES:
    _namespace_resource(_one)
for _one in TOPIC_RESOURCES:
    _topic_resource(_one)


# --- policies that cannot be set: {path: what is answered where nothing is set} ---------------------------------------

NAMESPACE_NEVER: Final[Mapping[str, JsonValue]] = {
    "persistence": None,
    "persistence/bookieAffinity": None,
    "deduplicationSnapshotInterval": None,
    "entryFilters": None,
    "dispatcherPauseOnAckStatePersistent": False,
    "antiAffinity": None,
    "offloadPolicies": None,
    "offloadThreshold": -1,
    "offloadThresholdInSeconds": -1,
    "offloadDeletionLagMs": None,
}
TOPIC_NEVER: Final[Mapping[str, JsonValue]] = {
    "persistence": None,
    "deduplicationSnapshotInterval": None,
    "entryFilters": None,
    "dispatcherPauseOnAckStatePersistent": False,
    "maxMessageSize": None,
    "offloadPolicies": None,
    "shadowTopics": None,
}
# Pulsar removes these on another path, or not at all.
_REMOVED_AT: Final = {
    "offloadPolicies": "removeOffloadPolicies",
    "offloadThreshold": None,
    "offloadThresholdInSeconds": None,
    "deduplicationSnapshotInterval": None,
}


def _never_set(base: str, path: str, unset: JsonValue, removed_at: str | None) -> None:
    is_topic = base == _T
    of = "a topic" if is_topic else "a namespace"

    async def read(request: Request) -> Response:
        policies = cases_of(request).policies
        if is_topic:
            policies.of_topic(caller_of(request), _topic(request))
        else:
            policies.of_namespace(caller_of(request), _namespace(request))
        return value(unset)

    async def remove(request: Request) -> Response:
        policies = cases_of(request).policies
        if is_topic:
            policies.check_topic_change(caller_of(request), _topic(request))
        else:
            policies.check_namespace_change(caller_of(request), _namespace(request))
        return done()

    router.add(f"{base}/{path}", read, ["GET"], f"{of.capitalize()}'s {path}: never set")
    if removed_at is not None:
        router.add(f"{base}/{removed_at}", remove, ["DELETE"], f"Remove {of}'s {path}: there is none")


for _path, _unset in NAMESPACE_NEVER.items():
    _never_set(_N, _path, _unset, _REMOVED_AT.get(_path, _path))
for _path, _unset in TOPIC_NEVER.items():
    _never_set(_T, _path, _unset, _path)


# --- a topic's policies together, and its clusters -------------------------------------------------------------------


@router.delete(_T + "/policies", summary="Remove all policies of a topic; its properties stay")
async def remove_policies(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    policies = cases_of(request).policies
    await policies.change_topic(caller_of(request), name, without_policies)
    return done()


@router.get(_T + "/replication", summary="The clusters that have the topic: this one")
async def replication(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    cases_of(request).policies.of_topic(caller_of(request), name)
    return value([CLUSTER])


@router.post(_T + "/replication", summary="Takes this cluster and no other")
@router.delete(_T + "/replication", summary="Let the namespace's clusters have the topic: this one")
async def set_replication(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    cases_of(request).policies.check_topic_change(caller_of(request), name)
    if request.method == "POST" and await body(request) != [CLUSTER]:
        raise Refused(412, f"Invalid cluster id: the only cluster is {CLUSTER}")
    return done()


# --- backlog quotas: one policy, set type by type --------------------------------------------------------------------


def _quota_type(request: Request) -> str:
    kind = request.query_params.get("backlogQuotaType", QuotaType.SIZE.value)
    if kind not in {one.value for one in QuotaType}:
        raise Refused(404, f"there is no backlog quota of type {kind[:100]}")
    return kind


def _with_quota(kind: str, quota: Mapping[str, Any] | None) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    def update(values: dict[str, Any]) -> Mapping[str, Any]:
        quotas = {**(values.get("backlog_quota_map") or {}), kind: quota}
        quotas = {name: one for name, one in quotas.items() if one is not None}
        return {**values, "backlog_quota_map": quotas or None}

    return update


@router.get(_N + "/backlogQuotaMap", summary="Show a namespace's backlog quotas")
async def namespace_quotas(request: Request, tenant: str, namespace: str) -> Response:
    found = cases_of(request).policies.of_namespace(caller_of(request), f"{tenant}/{namespace}")
    return value(found.policies.get("backlog_quota_map", {}))


@router.post(_N + "/backlogQuota", summary="Set a namespace's backlog quota of one type")
@router.delete(_N + "/backlogQuota", summary="Remove a namespace's backlog quota of one type")
async def namespace_quota(request: Request, tenant: str, namespace: str) -> Response:
    name, kind = f"{tenant}/{namespace}", _quota_type(request)
    quota = None if request.method == "DELETE" else await object_body(request)
    policies = cases_of(request).policies
    try:
        await policies.change_namespace(caller_of(request), name, _with_quota(kind, quota))
    except QuotaAboveRetention:
        raise
    except InvalidPolicy as error:
        because = "backlog quota failed because the data validation failed."
        raise Refused(400, f"Set namespace[{name}] {because} {error}") from None
    return done()


@router.get(_T + "/backlogQuotaMap", summary="Show a topic's backlog quotas")
async def topic_quotas(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    policies, caller = cases_of(request).policies, caller_of(request)
    if flag(request, "applied"):
        return value(policies.in_effect(caller, name, "backlog_quota_map"))
    return value(policies.of_topic(caller, name).get("backlog_quota_map", {}))


@router.post(_T + "/backlogQuota", summary="Set a topic's backlog quota of one type")
@router.delete(_T + "/backlogQuota", summary="Remove a topic's backlog quota of one type")
async def topic_quota(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    kind = _quota_type(request)
    quota = None if request.method == "DELETE" else await object_body(request)
    policies = cases_of(request).policies
    try:
        await policies.change_topic(caller_of(request), name, _with_quota(kind, quota))
    except QuotaAboveRetention:
        raise
    except InvalidPolicy as error:
        raise Refused(400, f"Set topic[{name.full}] backlog quota failed: {error}") from None
    return done()


# --- dispatch rates of subscriptions, by their names ------------------------------------------------------------------


def _with_rate(subscription: str, rate: JsonValue) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    def update(values: dict[str, Any]) -> Mapping[str, Any]:
        named = {**(values.get(SUBSCRIPTION_POLICIES) or {}), subscription: {"dispatchRate": rate}}
        if rate is None:
            del named[subscription]
        return {**values, SUBSCRIPTION_POLICIES: named or None}

    return update


@router.get(_T + "/{name:path}/dispatchRate", summary="Show a subscription's dispatchRate")
async def subscription_rate(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    of, _ = topic_name(domain, tenant, namespace, topic)
    policies, caller = cases_of(request).policies, caller_of(request)
    found = policies.of_topic(caller, of).get(SUBSCRIPTION_POLICIES, {}).get(name, {}).get("dispatchRate")
    if found is None and flag(request, "applied"):
        found = policies.in_effect(caller, of, SUBSCRIPTION_DISPATCH_RATE)
    return value(found)


@router.post(_T + "/{name:path}/dispatchRate", summary="Set a subscription's dispatchRate")
@router.delete(_T + "/{name:path}/dispatchRate", summary="Remove a subscription's dispatchRate")
async def change_subscription_rate(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    of, _ = topic_name(domain, tenant, namespace, topic)
    rate = None if request.method == "DELETE" else await object_body(request)
    policies = cases_of(request).policies
    try:
        await policies.change_topic(caller_of(request), of, _with_rate(name, rate))
    except InvalidPolicy as error:
        raise _refusal(SUBSCRIPTION_POLICIES, 412, error) from None
    return done()


# --- properties of a namespace ---------------------------------------------------------------------------------------


@router.get(_N + "/properties", summary="Show a namespace's properties")
async def read_properties(request: Request, tenant: str, namespace: str) -> Response:
    found = cases_of(request).policies.of_namespace(caller_of(request), f"{tenant}/{namespace}")
    return value(found.policies.get("properties", {}))


@router.put(_N + "/properties", summary="Add to a namespace's properties, or change some")
async def add_properties(request: Request, tenant: str, namespace: str) -> Response:
    added = await object_body(request)
    await _change(request, f"{tenant}/{namespace}", lambda values: with_properties(values, added))
    return done()


@router.delete(_N + "/properties", summary="Remove all properties of a namespace")
async def remove_properties(request: Request, tenant: str, namespace: str) -> Response:
    await _change(request, f"{tenant}/{namespace}", lambda values: {**values, "properties": None})
    return done()


@router.get(_N + "/property/{key}", summary="Show one property of a namespace")
async def read_property(request: Request, tenant: str, namespace: str, key: str) -> Response:
    found = cases_of(request).policies.of_namespace(caller_of(request), f"{tenant}/{namespace}")
    return text(found.policies.get("properties", {}).get(key, ""))


@router.put(_N + "/property/{key}/{content}", summary="Set one property of a namespace")
async def write_property(request: Request, tenant: str, namespace: str, key: str, content: str) -> Response:
    await _change(request, f"{tenant}/{namespace}", lambda values: with_properties(values, {key: content}))
    return done()


@router.delete(_N + "/property/{key}", summary="Remove one property of a namespace; the answer is its value")
async def remove_property(request: Request, tenant: str, namespace: str, key: str) -> Response:
    policies = cases_of(request).policies
    return text(await policies.remove_namespace_property(caller_of(request), f"{tenant}/{namespace}", key))


async def _change(request: Request, name: str, update: Update) -> None:
    await cases_of(request).policies.change_namespace(caller_of(request), name, update)
