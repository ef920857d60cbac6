"""Subscriptions of a topic or of all its partitions: list, create, move, peek, drop."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, done, flag, object_body, value
from magnetar.admin.context import caller_of, cases_of, context_of
from magnetar.admin.message_ids import position_in
from magnetar.admin.peek import message_response
from magnetar.admin.routing import Router
from magnetar.broker.usecases.subscriptions import LATEST

router: Final = Router()
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"
_S: Final = _T + "/subscription/{name:path}"  # a name may have slashes in it
_NEVER_FILTERED: Final = (
    "filterRejectedEntries",
    "filterRescheduledEntries",
    "filterRejectedMessages",
    "filterRescheduledMessages",
)


@router.get(_T + "/subscriptions", summary="The names of a topic's subscriptions, Kafka groups among them")
async def names(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    return value(list(cases_of(request).subscriptions.names(caller_of(request), full)))


# The longer paths first, because a name matches everything up to the rest of its path.


@router.post(_S + "/skip_all", summary="Acknowledge the whole backlog")
async def skip_all(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).subscriptions.skip_all(caller_of(request), full, name)
    return done()


@router.post(_S + "/skip/{count}", summary="Acknowledge the next messages")
async def skip(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str, count: int
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).subscriptions.skip(caller_of(request), full, name, count)
    return done()


@router.post(
    _S + "/expireMessages/{seconds}",
    summary="Acknowledge messages that are older than this number of seconds",
)
async def expire(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str, seconds: int
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).subscriptions.expire(caller_of(request), full, name, seconds)
    return done()


@router.post(_S + "/expireMessages", summary="Acknowledge everything before a message id")
async def expire_to(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    position = position_in(await object_body(request))
    await cases_of(request).subscriptions.expire_to(caller_of(request), full, name, position)
    return done()


@router.post(_T + "/all_subscription/expireMessages/{seconds}", summary="The same for all subscriptions")
async def expire_all(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, seconds: int
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).subscriptions.expire_all(caller_of(request), full, seconds)
    return done()


@router.post(
    _S + "/resetcursor/{time_ms}", summary="Start over from the first message published at or after a time"
)
async def reset_to_time(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str, time_ms: int
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    await cases_of(request).subscriptions.reset_to_time(caller_of(request), full, name, time_ms)
    return done()


@router.post(_S + "/resetcursor", summary="Start over from a message id")
async def reset_to_position(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    position = position_in(await object_body(request))
    await cases_of(request).subscriptions.reset(caller_of(request), full, name, position)
    return done()


@router.get(_S + "/position/{number}", summary="The n-th message (from 1) that is not acknowledged")
async def peek(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str, number: int
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    found = await cases_of(request).subscriptions.peek(caller_of(request), full, name, number)
    if found is None:
        raise Refused(404, "Message not found")
    opener, owner = cases_of(request).peeking.opener, caller_of(request).principal
    return await message_response(found, opener, context_of(request).bodies, owner)


@router.post(
    _S + "/analyzeBacklog",
    summary="Count messages that are not acknowledged, from a message id on if the body is one",
)
async def analyze(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    given = await object_body(request)
    start = position_in(given) if given else None
    found = await cases_of(request).subscriptions.analyze(caller_of(request), full, name, start)
    ends = {"firstMessageId": found.first, "lastMessageId": found.last}
    return value(
        {
            **dict.fromkeys(("entries", "filterAcceptedEntries"), found.entries),
            **dict.fromkeys(("messages", "filterAcceptedMessages"), found.messages),
            **dict.fromkeys(_NEVER_FILTERED, 0),
            "aborted": not found.is_whole,
            **{key: f"{ids[0][0]}:{ids[0][1]}" for key, ids in ends.items() if ids},
        }
    )


@router.get(_S + "/properties", summary="A subscription's own properties")
async def properties(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    return value(dict(await cases_of(request).subscriptions.properties(caller_of(request), full, name)))


@router.put(_S + "/properties", summary="Replace a subscription's own properties")
async def set_properties(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    given = _properties(await object_body(request))
    await cases_of(request).subscriptions.set_properties(caller_of(request), full, name, given)
    return done()


def _properties(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
        raise BadBody("properties must be an object of texts")
    return given


@router.put(_S, summary="Make a subscription; the body is a message id, without one it begins at the end")
async def create(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    document = await object_body(request)
    start = position_in(document) if "ledgerId" in document else LATEST
    given = _properties(document.get("properties") or {})
    if not await cases_of(request).subscriptions.create(caller_of(request), full, name, start, given):
        raise Refused(409, "Subscription already exists for topic")
    return done()


@router.delete(_S, summary="Drop a subscription; ?force=true disconnects its consumers")
async def delete(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    full = f"{domain}://{tenant}/{namespace}/{topic}"
    force = flag(request, "force")
    await cases_of(request).subscriptions.delete(caller_of(request), full, name, force=force)
    return done()


# --- all topics of a namespace ---------------------------------------------------------------------------------------


@router.post(_N + "/clearBacklog", summary="Acknowledge the backlogs of all subscriptions of all topics")
@router.post(_N + "/clearBacklog/{name:path}", summary="The same for the subscriptions of one name")
async def clear_backlog(request: Request, tenant: str, namespace: str, name: str = "") -> Response:
    cases = cases_of(request).subscriptions
    await cases.clear_backlogs(caller_of(request), f"{tenant}/{namespace}", name)
    return done()


@router.post(_N + "/unsubscribe/{name:path}", summary="Drop the subscriptions of one name of all topics")
async def unsubscribe(request: Request, tenant: str, namespace: str, name: str) -> Response:
    cases = cases_of(request).subscriptions
    await cases.delete_everywhere(caller_of(request), f"{tenant}/{namespace}", name)
    return done()


@router.put(_N + "/unload", summary="Close all producers and consumers of a namespace: they come back")
@router.put(_N + "/{bundle}/unload", summary="The same for one part of its hash space")
async def unload(request: Request, tenant: str, namespace: str, bundle: str = "") -> Response:
    await cases_of(request).namespaces.unload(caller_of(request), f"{tenant}/{namespace}", bundle)
    return done()
