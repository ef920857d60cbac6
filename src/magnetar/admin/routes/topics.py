"""Topics and their partitions: listed, made, grown, deleted; and the properties that somebody gave them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, body, done, flag, object_body, value
from magnetar.admin.context import broker_of
from magnetar.admin.names import topic_name
from magnetar.admin.routing import Router
from magnetar.base.names import PARTITION_SEPARATOR, TopicName
from magnetar.broker.cluster.placement import PARTITIONS_MAX
from magnetar.broker.policy.policies import Level, checked, whole_number

router: Final = Router()
_D: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}"
_T: Final = _D + "/{topic}"
_KEY: Final = "properties"  # of the policy that keeps them


@router.get(_D, summary="Everything in a namespace that holds messages; partitions by their own names")
async def names(request: Request, domain: str, tenant: str, namespace: str) -> Response:
    persistent = domain == "persistent"
    return value(broker_of(request).pulsar_topics.names(f"{tenant}/{namespace}", persistent=persistent))


@router.get(_D + "/partitioned", summary="The partitioned topics of a namespace")
async def partitioned(request: Request, domain: str, tenant: str, namespace: str) -> Response:
    persistent = domain == "persistent"
    return value(broker_of(request).pulsar_topics.partitioned(f"{tenant}/{namespace}", persistent=persistent))


@router.put(_T, summary="Make a topic that is not partitioned")
async def create(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    properties = _checked(await object_body(request))
    if index >= 0:
        raise Refused(
            412,
            f'Can\'t create topic {topic} with "{PARTITION_SEPARATOR}" followed by a number'
            f" smaller than number of partition of partitioned topic {name.local}",
        )
    await _create(request, name, 0, properties)
    return done()


@router.delete(_T, summary="Delete a topic that is not partitioned; ?force=true disconnects its clients")
async def delete(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    broker = broker_of(request)
    found = broker.pulsar_topics.get(name)
    if found.is_partitioned:
        raise Refused(
            409,
            f"{name.full} is a partitioned topic, instead of calling delete topic,"
            " please call delete-partitioned-topic."
            if index < 0
            else f"{topic} is a partition: delete the partitioned topic {name.full} instead.",
        )
    await broker.pulsar_topics.delete(name, force=flag(request, "force"))
    return done()


# --- partitioned topics ----------------------------------------------------------------------------------------------


@router.get(_T + "/partitions", summary="How many partitions a topic has; 0 when it is not partitioned")
async def partitions(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    full = name.full if index < 0 else name.partition_name(index)
    directory = broker_of(request).pulsar_topics
    if flag(request, "checkAllowAutoCreation"):
        count = await directory.partition_count_or_create(full)
    else:
        count = directory.partition_count(full)
    shown = {"partitions": count, "deleted": False}
    properties = _properties(request, name) if index < 0 else {}
    return value({**shown, "properties": properties} if properties else shown)


@router.put(
    _T + "/partitions",
    summary="Make a partitioned topic; the body is the number of partitions, or an object with `properties`, too",
)
async def create_partitions(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    if index >= 0:
        raise Refused(412, "Partitioned Topic Name should not contain '-partition-'")
    content = await body(request)
    properties: Mapping[str, Any] = {}
    if isinstance(content, dict):
        # Pulsar takes it by its media type alone, pulsar-admin and the Go client send it so; it can mean nothing else.
        properties = _checked(content.get("properties") or {})
        content = content.get("partitions", 0)
    await _create(request, name, _count(content), properties)
    return done()


@router.post(_T + "/partitions", summary="Add partitions; the body is the number that there are to be")
async def grow(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    await broker_of(request).pulsar_topics.grow(name, _count(await body(request)))
    return done()


@router.delete(_T + "/partitions", summary="Delete a partitioned topic; ?force=true disconnects its clients")
async def delete_partitions(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    directory = broker_of(request).pulsar_topics
    found = directory.find(name)
    if found is None or index >= 0 or not found.is_partitioned:
        raise Refused(404, f"Topic {name.full} not found.")
    await directory.delete(name, force=flag(request, "force"))
    return done()


def _count(content: Any) -> int:
    count = whole_number(content)
    if count is None:
        raise BadBody("the number of partitions must be a whole number")
    if count <= 0:
        raise Refused(406, "Number of partitions should be more than 0")
    if count > PARTITIONS_MAX:
        raise Refused(406, f"Number of partitions should be at most {PARTITIONS_MAX}")
    return count


# --- properties ------------------------------------------------------------------------------------------------------


@router.get(_T + "/properties", summary="A topic's properties")
async def properties(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = _found(request, domain, tenant, namespace, topic)
    return value(_properties(request, name) if index < 0 else {})


@router.put(_T + "/properties", summary="Add to a topic's properties, or change some")
async def add_properties(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = _found(request, domain, tenant, namespace, topic)
    added = _checked(await object_body(request))
    if index >= 0:
        raise Refused(412, f"{topic} is a partition: properties belong to the topic {name.full}")
    await _change_properties(request, name, lambda known: {**known, **added})
    return done()


@router.delete(_T + "/properties", summary="Remove one property of a topic: ?key=")
async def remove_property(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = _found(request, domain, tenant, namespace, topic)
    key = request.query_params.get("key")
    if key is None:
        raise BadBody("key: which property?")
    if key in _properties(request, name):
        await _change_properties(
            request, name, lambda known: {one: text for one, text in known.items() if one != key}
        )
    return done()


async def _create(request: Request, name: TopicName, count: int, properties: Mapping[str, Any]) -> None:
    """`count` is 0 for a topic that is not partitioned."""
    await broker_of(request).pulsar_topics.create(name, count)
    if properties:
        await _change_properties(request, name, lambda _: properties)


def _checked(content: Any) -> Mapping[str, Any]:
    """Properties as they will be stored, looked at before anything is made."""
    checked_: Mapping[str, Any] = checked(_KEY, content, Level.TOPIC)
    return checked_


def _found(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> tuple[TopicName, int]:
    name, index = topic_name(domain, tenant, namespace, topic)
    broker_of(request).pulsar_topics.get(name)
    return name, index


def _properties(request: Request, name: TopicName) -> Mapping[str, str]:
    found: Mapping[str, str] = broker_of(request).namespaces.topic_policies(name).get(_KEY, {})
    return found


async def _change_properties(
    request: Request, name: TopicName, update: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> None:
    await broker_of(request).namespaces.change_topic(
        name, lambda values: {**values, _KEY: update(values.get(_KEY, {})) or None}
    )
