"""What is in a topic and how it does; and what is done to it as a whole: unloaded, terminated, truncated."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin import stats
from magnetar.admin.answers import Refused, done, flag, object_body, value
from magnetar.admin.context import broker_of, context_of
from magnetar.admin.message_ids import message_id, position_in
from magnetar.admin.names import partitions_of, topic_name
from magnetar.admin.peek import message_response
from magnetar.admin.routing import Router
from magnetar.broker.log.backlog import backlog_bytes
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.admin import offset_of
from magnetar.storage.store import EntryId, LedgerId

if TYPE_CHECKING:
    from magnetar.broker.log.partition import Partition

router: Final = Router()
_T: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"


def _one(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> "Partition":
    """The one partition that a path names; a partitioned topic as a whole is none."""
    return broker_of(request).pulsar_topics.partition(f"{domain}://{tenant}/{namespace}/{topic}")


@router.get(_T + "/stats", summary="Rates, backlogs, producers and consumers of a topic or partition")
async def topic_stats(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    partition = _one(request, domain, tenant, namespace, topic)
    shown = await stats.topic_stats(
        broker_of(request), partition, earliest=flag(request, "getEarliestTimeInBacklog")
    )
    return value({**shown, "ownerBroker": request.url.netloc})


@router.get(
    _T + "/partitioned-stats", summary="The same of a partitioned topic; ?perPartition=false: only the sum"
)
async def partitioned_stats(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    broker = broker_of(request)
    found = broker.pulsar_topics.find(name)
    if found is None or index >= 0 or not found.is_partitioned:
        raise Refused(404, f"Partitioned Topic {name.full} not found")
    earliest = flag(request, "getEarliestTimeInBacklog")
    each = []
    for number in range(found.partition_count):
        each.append(await stats.topic_stats(broker, found.partition(number), earliest=earliest))
        await asyncio.sleep(0)  # a topic may have thousands
    partitions = {}
    if flag(request, "perPartition", default=True):
        partitions = {name.partition_name(number): one for number, one in enumerate(each)}

    def answer() -> Response:
        metadata = {"partitions": len(each), "deleted": False}
        return value({**stats.merged(each), "metadata": metadata, "partitions": partitions})

    return await asyncio.to_thread(answer)


@router.get(_T + "/internalStats", summary="The ledgers and cursors behind a topic or partition")
async def internal_stats(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    return value(
        await stats.internal_stats(broker_of(request), _one(request, domain, tenant, namespace, topic))
    )


@router.get(_T + "/partitioned-internalStats", summary="The same of every partition of a partitioned topic")
async def partitioned_internal_stats(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    broker = broker_of(request)
    found = broker.pulsar_topics.find(name)
    if found is None or not found.is_partitioned:
        raise Refused(404, f"Partitioned Topic {name.full} not found")
    each = {}
    for number in range(found.partition_count):
        each[name.partition_name(number)] = await stats.internal_stats(broker, found.partition(number))
        await asyncio.sleep(0)  # a topic may have thousands
    metadata = {"partitions": len(each), "deleted": False}
    return await asyncio.to_thread(value, {"metadata": metadata, "partitions": each})


# --- message ids -----------------------------------------------------------------------------------------------------


@router.get(_T + "/lastMessageId", summary="The last message that a consumer would get")
async def last_message_id(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    partition = _one(request, domain, tenant, namespace, topic)
    last = await positions.last_message(partition, broker_of(request).subscriptions.forms)
    count = last.batch_index + 1 if last.batch_index >= 0 else 0
    return value(message_id(partition, last.ledger_id, last.entry_id, last.batch_index, count))


@router.get(_T + "/messageid/{time_ms}", summary="The first message that was published at or after a time")
async def message_id_at(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, time_ms: int
) -> Response:
    partition = _one(request, domain, tenant, namespace, topic)
    log = partition.log
    entry = await log.entry_at(await positions.offset_at_time(partition, time_ms))
    if entry is not None:
        return value(message_id(partition, entry.ledger_id, entry.entry_id))
    ledgers = list(log.ledgers)
    if not ledgers:
        return value(message_id(partition, -1, -1))
    return value(message_id(partition, ledgers[-1].ledger_id, ledgers[-1].entry_count))


@router.get(_T + "/ledger/{ledger_id}/entry/{entry_id}", summary="One message by its id")
async def message(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, ledger_id: int, entry_id: int
) -> Response:
    partition = _one(request, domain, tenant, namespace, topic)
    entry = await partition.log.locate(LedgerId(ledger_id), EntryId(entry_id))
    if entry is None or (entry.ledger_id, entry.entry_id) != (ledger_id, entry_id):
        raise Refused(404, "Message id not found")
    formed = broker_of(request).subscriptions.forms(partition, [entry])
    (one,) = await formed if asyncio.iscoroutine(formed) else formed  # type: ignore[misc]
    if one.payload is None:
        raise Refused(404, "Message id not found")
    return await message_response(one, broker_of(request).opener, context_of(request).bodies)


@router.put(_T + "/backlogSize", summary="About how many bytes there are from a message id on")
async def backlog_size(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    partition = _one(request, domain, tenant, namespace, topic)
    offset = await offset_of(partition, position_in(await object_body(request)))
    return value(backlog_bytes(partition.log, offset))


# --- doing -----------------------------------------------------------------------------------------------------------


@router.put(
    _T + "/unload", summary="Close the topic's producers and consumers, positions stored: they come back"
)
async def unload(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    broker = broker_of(request)
    for partition in partitions_of(broker, domain, tenant, namespace, topic):
        await broker.unload(partition)
    return done()


@router.post(_T + "/terminate", summary="Take no more messages, for good")
async def terminate(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    broker = broker_of(request)
    found = broker.pulsar_topics.get(name)
    if found.is_partitioned:
        what = "a partitioned topic" if index < 0 else "one partition"
        raise Refused(405, f"Termination of {what} is not allowed, use terminate/partitions of the topic")
    await broker.topics.terminate(found)
    return value(await _end(request, found.partition(0)))


@router.post(_T + "/terminate/partitions", summary="The same for all partitions of a partitioned topic")
async def terminate_partitions(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    broker = broker_of(request)
    found = broker.pulsar_topics.get(name)
    if not found.is_partitioned:
        raise Refused(
            405, "Termination of a non-partitioned topic is not allowed using partitioned-terminate"
        )
    await broker.topics.terminate(found)
    return value(
        {str(index): await _end(request, found.partition(index)) for index in range(found.partition_count)}
    )


async def _end(request: Request, partition: "Partition") -> dict[str, Any]:
    last = await positions.last_message(partition, broker_of(request).subscriptions.forms)
    return message_id(partition, last.ledger_id, last.entry_id)


@router.delete(_T + "/truncate", summary="Remove all messages, acknowledged or not")
async def truncate(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    broker = broker_of(request)
    for partition in partitions_of(broker, domain, tenant, namespace, topic):
        await broker.truncate(partition)
    return done()
