"""Topics and their partitions: listed, made, grown, deleted."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from magnetar.admin.answers import Refused, done, flag, integer_body, object_body, unsupported, value
from magnetar.admin.context import broker_of
from magnetar.admin.names import topic_name
from magnetar.base.names import PARTITION_SEPARATOR
from magnetar.broker.replicas import PARTITIONS_MAX

router: Final = APIRouter()
_D: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}"
_T: Final = _D + "/{topic}"


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
    if await object_body(request):
        raise unsupported("Properties of a topic")
    if index >= 0:
        raise Refused(
            412,
            f'Can\'t create topic {topic} with "{PARTITION_SEPARATOR}" followed by a number'
            f" smaller than number of partition of partitioned topic {name.local}",
        )
    await broker_of(request).pulsar_topics.create(name)
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
    return value({"partitions": count, "deleted": False})


@router.put(_T + "/partitions", summary="Make a partitioned topic; the body is the number of partitions")
async def create_partitions(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    if index >= 0:
        raise Refused(412, "Partitioned Topic Name should not contain '-partition-'")
    count = await _count(request)
    await broker_of(request).pulsar_topics.create(name, count)
    return done()


@router.post(_T + "/partitions", summary="Add partitions; the body is the number that there are to be")
async def grow(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    await broker_of(request).pulsar_topics.grow(name, await _count(request))
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


async def _count(request: Request) -> int:
    count = await integer_body(request)
    if count <= 0:
        raise Refused(406, "Number of partitions should be more than 0")
    if count > PARTITIONS_MAX:
        raise Refused(406, f"Number of partitions should be at most {PARTITIONS_MAX}")
    return count
