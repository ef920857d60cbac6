"""The content and statistics of a topic, and operations on it as a whole: unload, terminate, truncate, compact."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin import stats
from magnetar.admin.answers import Refused, done, flag, object_body, value
from magnetar.admin.context import caller_of, cases_of, context_of
from magnetar.admin.message_ids import message_id, position_in
from magnetar.admin.names import topic_name
from magnetar.admin.peek import message_response
from magnetar.admin.routing import Router
from magnetar.broker.topics.errors import NotPartitioned, WrongKindOfTopic

router: Final = Router()
_T: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"


@router.get(_T + "/stats", summary="Rates, backlogs, producers and consumers of a topic or partition")
async def topic_stats(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    earliest = flag(request, "getEarliestTimeInBacklog")
    found = await cases_of(request).statistics.topic(caller_of(request), full, earliest=earliest)
    return value({**stats.topic_stats(found), "ownerBroker": request.url.netloc})


@router.get(
    _T + "/partitioned-stats", summary="The same of a partitioned topic; ?perPartition=false: only the sum"
)
async def partitioned_stats(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    statistics, earliest = cases_of(request).statistics, flag(request, "getEarliestTimeInBacklog")
    try:
        found = await statistics.partitions(caller_of(request), name, earliest=earliest)
    except NotPartitioned as error:
        raise Refused(404, str(error)) from None
    if index >= 0:
        raise Refused(404, f"Partitioned Topic {name.full} not found")
    is_per_partition = flag(request, "perPartition", default=True)

    def answer() -> Response:
        each = [stats.topic_stats(one) for one in found]
        metadata = {"partitions": len(each), "deleted": False}
        partitions = {}
        if is_per_partition:
            partitions = {name.partition_name(number): one for number, one in enumerate(each)}
        return value({**stats.merged(each), "metadata": metadata, "partitions": partitions})

    return await asyncio.to_thread(answer)


@router.get(_T + "/internalStats", summary="The ledgers and cursors behind a topic or partition")
async def internal_stats(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    return value(stats.internal_stats(await cases_of(request).statistics.internal(caller_of(request), full)))


@router.get(_T + "/partitioned-internalStats", summary="The same of every partition of a partitioned topic")
async def partitioned_internal_stats(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    try:
        found = await cases_of(request).statistics.internal_partitions(caller_of(request), name)
    except NotPartitioned as error:
        raise Refused(404, str(error)) from None

    def answer() -> Response:
        each = {name.partition_name(number): stats.internal_stats(one) for number, one in enumerate(found)}
        return value({"metadata": {"partitions": len(each), "deleted": False}, "partitions": each})

    return await asyncio.to_thread(answer)


@router.get(_T + "/internal-info", summary="The ledgers and cursors of a topic as they are stored, in short")
async def internal_info(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    statistics = cases_of(request).statistics
    if index < 0:
        with suppress(NotPartitioned):
            found = await statistics.internal_partitions(caller_of(request), name)
            each = {name.partition_name(number): stats.internal_info(one) for number, one in enumerate(found)}
            return value({"version": 0, "partitions": each})
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    return value(stats.internal_info(await statistics.internal(caller_of(request), full)))


# --- message ids -----------------------------------------------------------------------------------------------------


@router.get(_T + "/lastMessageId", summary="The last message that a consumer would get")
async def last_message_id(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    return value(message_id(await cases_of(request).peeking.last(caller_of(request), full)))


@router.get(_T + "/messageid/{time_ms}", summary="The first message that was published at or after a time")
async def message_id_at(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, time_ms: int
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    return value(message_id(await cases_of(request).peeking.at_time(caller_of(request), full, time_ms)))


@router.get(_T + "/ledger/{ledger_id}/entry/{entry_id}", summary="One message by its id")
async def message(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, ledger_id: int, entry_id: int
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    peeking = cases_of(request).peeking
    found = await peeking.get(caller_of(request), full, ledger_id, entry_id)
    if found is None:
        raise Refused(404, "Message id not found")
    owner = caller_of(request).principal
    return await message_response(found, peeking.opener, context_of(request).bodies, owner)


@router.get(
    _T + "/examinemessage",
    summary="The n-th entry (?messagePosition, from 1) from the ?initialPosition, earliest or else latest",
)
async def examine(
    request: Request,
    domain: str,
    tenant: str,
    namespace: str,
    topic: str,
    initialPosition: str = "latest",
    messagePosition: int = 1,
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    peeking, from_start = cases_of(request).peeking, initialPosition == "earliest"
    found = await peeking.examine(caller_of(request), full, messagePosition, from_start=from_start)
    if found is None:
        raise Refused(404, "Message not found")
    owner = caller_of(request).principal
    return await message_response(found, peeking.opener, context_of(request).bodies, owner)


@router.put(_T + "/backlogSize", summary="About how many bytes there are from a message id on")
async def backlog_size(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    position = position_in(await object_body(request))
    return value(await cases_of(request).peeking.bytes_from(caller_of(request), full, position))


# --- doing -----------------------------------------------------------------------------------------------------------


@router.put(
    _T + "/unload", summary="Close the topic's producers and consumers, positions stored: they come back"
)
async def unload(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).topic_state.unload(caller_of(request), full)
    return done()


@router.post(_T + "/terminate", summary="Take no more messages, for good")
async def terminate(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    state = cases_of(request).topic_state
    try:
        (last,) = await state.terminate(caller_of(request), name, partitioned=False)
    except WrongKindOfTopic:
        what = "a partitioned topic" if index < 0 else "one partition"
        refusal = f"Termination of {what} is not allowed, use terminate/partitions of the topic"
        raise Refused(405, refusal) from None
    return value(message_id(last))


@router.post(_T + "/terminate/partitions", summary="The same for all partitions of a partitioned topic")
async def terminate_partitions(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    state = cases_of(request).topic_state
    try:
        found = await state.terminate(caller_of(request), name, partitioned=True)
    except WrongKindOfTopic:
        refusal = "Termination of a non-partitioned topic is not allowed using partitioned-terminate"
        raise Refused(405, refusal) from None
    ends: dict[str, Any] = {str(index): message_id(one) for index, one in enumerate(found)}
    return value(ends)


@router.post(_T + "/trim", summary="Drop now the ledgers that retention no longer keeps")
async def trim(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).topic_state.trim(caller_of(request), full)
    return Response(status_code=200)


@router.delete(_T + "/truncate", summary="Remove all messages, acknowledged or not")
async def truncate(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).topic_state.truncate(caller_of(request), full)
    return done()


@router.put(
    _T + "/compaction",
    summary="Compact the topic: its log stays, and readers of the compacted topic get less",
)
async def compact(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).topic_state.compact(caller_of(request), full)
    return done()


@router.get(_T + "/compaction", summary="How the last compaction of the topic or partition goes")
async def compaction_status(
    request: Request, domain: str, tenant: str, namespace: str, topic: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    found = cases_of(request).topic_state.compaction(caller_of(request), full)
    return value({"status": found.state.value, "lastError": found.error})
