"""Topics and their partitions: list, create, grow, delete; and the properties that users set."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, body, done, flag, object_body, value
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.lists import list_response
from magnetar.admin.names import topic_name
from magnetar.admin.routing import Router
from magnetar.base.names import PARTITION_SEPARATOR
from magnetar.broker.cluster.model import PARTITIONS_MAX
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.policy.model import whole_number
from magnetar.broker.topics.errors import WrongKindOfTopic
from magnetar.broker.usecases.policies import checked_properties

router: Final = Router()
_D: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}"
_T: Final = _D + "/{topic}"


@router.get(_D, summary="Everything in a namespace that holds messages; partitions by their own names")
async def names(request: Request, domain: str, tenant: str, namespace: str) -> Response:
    listing = cases_of(request).pulsar_topics.to_list(
        caller_of(request), f"{tenant}/{namespace}", persistent=domain == "persistent"
    )
    return await list_response(request, listing)


@router.get(_D + "/partitioned", summary="The partitioned topics of a namespace")
async def partitioned(request: Request, domain: str, tenant: str, namespace: str) -> Response:
    listing = cases_of(request).pulsar_topics.to_list(
        caller_of(request), f"{tenant}/{namespace}", persistent=domain == "persistent", whole=True
    )
    return await list_response(request, listing)


@router.put(_T, summary="Make a topic that is not partitioned")
async def create(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    properties = checked_properties(await object_body(request))
    if index >= 0:
        raise Refused(
            412,
            f'Can\'t create topic {topic} with "{PARTITION_SEPARATOR}" followed by a number'
            f" smaller than number of partition of partitioned topic {name.local}",
        )
    await cases_of(request).pulsar_topics.create(caller_of(request), name, properties=properties)
    return done()


@router.delete(_T, summary="Delete a topic that is not partitioned; ?force=true disconnects its clients")
async def delete(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    topics = cases_of(request).pulsar_topics
    try:
        found = topics.to_delete(caller_of(request), name, partitioned=False)
    except WrongKindOfTopic:
        raise Refused(
            409,
            f"{name.full} is a partitioned topic, instead of calling delete topic,"
            " please call delete-partitioned-topic."
            if index < 0
            else f"{topic} is a partition: delete the partitioned topic {name.full} instead.",
        ) from None
    await topics.delete(found, force=flag(request, "force"))
    return done()


# --- partitioned topics ----------------------------------------------------------------------------------------------


@router.get(_T + "/partitions", summary="How many partitions a topic has; 0 when it is not partitioned")
async def partitions(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    full = name.full if index < 0 else name.partition_name(index)
    may_create = flag(request, "checkAllowAutoCreation")
    found = await cases_of(request).pulsar_topics.metadata(caller_of(request), full, may_create=may_create)
    shown = {"partitions": found.partition_count, "deleted": False}
    return value({**shown, "properties": found.properties} if found.properties else shown)


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
        # Pulsar recognizes it only by its media type, and pulsar-admin and the Go client send it like that.
        properties = checked_properties(content.get("properties") or {})
        content = content.get("partitions", 0)
    topics = cases_of(request).pulsar_topics
    await topics.create(caller_of(request), name, _count(content), properties=properties)
    return done()


@router.post(_T + "/partitions", summary="Add partitions; the body is the new number of partitions")
async def grow(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    count = _count(await body(request))
    await cases_of(request).pulsar_topics.grow(caller_of(request), name, count)
    return done()


@router.post(
    _T + "/createMissedPartitions",
    summary="Make partitions that a partitioned topic lacks: here it lacks none",
)
async def missed_partitions(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    cases_of(request).pulsar_topics.check_partitions(caller_of(request), name)
    return done()


@router.delete(_T + "/partitions", summary="Delete a partitioned topic; ?force=true disconnects its clients")
async def delete_partitions(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    topics = cases_of(request).pulsar_topics
    try:
        found = topics.to_delete(caller_of(request), name, partitioned=True)
    except (UnknownTopic, WrongKindOfTopic):
        raise Refused(404, f"Topic {name.full} not found.") from None
    if index >= 0:
        raise Refused(404, f"Topic {name.full} not found.")
    await topics.delete(found, force=flag(request, "force"))
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
    name, index = topic_name(domain, tenant, namespace, topic)
    found = cases_of(request).policies.topic_properties(caller_of(request), name)
    return value(dict(found) if index < 0 else {})


@router.put(_T + "/properties", summary="Add to a topic's properties, or change some")
async def add_properties(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    added = checked_properties(await object_body(request))
    if index >= 0:
        raise Refused(412, f"{topic} is a partition: properties belong to the topic {name.full}")
    await cases_of(request).policies.add_topic_properties(caller_of(request), name, added)
    return done()


@router.delete(_T + "/properties", summary="Remove one property of a topic: ?key=")
async def remove_property(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    key = request.query_params.get("key")
    if key is None:
        raise BadBody("key: which property?")
    await cases_of(request).policies.remove_topic_property(caller_of(request), name, key)
    return done()
