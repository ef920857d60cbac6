"""Subscriptions of a topic or of all its partitions: listed, made, moved, peeked into, dropped."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, done, flag, object_body, value
from magnetar.admin.context import broker_of, context_of
from magnetar.admin.message_ids import position_in
from magnetar.admin.names import partitions_of, topic_hash, topic_name
from magnetar.admin.peek import message_response
from magnetar.admin.routing import Router
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.admin import MessagePosition, offset_of
from magnetar.broker.subscriptions.errors import SubscriptionNotFound

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.log.partition import Partition

router: Final = Router()
_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"
_S: Final = _T + "/subscription/{name:path}"  # a name may have slashes in it
# From so many messages on Pulsar looks through a backlog for what is old, and answers that all is well whatever it
# finds; a shorter one without anything that old is a conflict.
_LONG_BACKLOG: Final = 1000
_LATEST: Final = MessagePosition(positions.LATEST, positions.LATEST)


class _Path:
    """What the paths below have in common."""

    def __init__(self, request: Request, domain: str, tenant: str, namespace: str, topic: str) -> None:
        self.broker: Broker = broker_of(request)
        self.full = f"{domain}://{tenant}/{namespace}/{topic}"
        self._parts = (domain, tenant, namespace, topic)

    @property
    def partitions(self) -> "list[Partition]":
        return partitions_of(self.broker, *self._parts)

    def partition(self, what: str) -> "Partition":
        """The only partition; 405 for a partitioned topic as a whole."""
        name, index = topic_name(*self._parts)
        if index < 0 and self.broker.pulsar_topics.get(name).is_partitioned:
            raise Refused(405, f"{what} on a partitioned topic is not allowed")
        return self.broker.pulsar_topics.partition(self.full)

    def has_long_backlog(self, name: str) -> bool:
        admin = self.broker.subscription_admin
        return any(
            name in admin.names(one) and admin.backlog(one, name) >= _LONG_BACKLOG for one in self.partitions
        )

    async def each_with(self, name: str, act: "Callable[[Partition], Coroutine[Any, Any, Any]]") -> list[Any]:
        """Do something for every partition that has the subscription; 404 when none has."""
        results = []
        for partition in self.partitions:
            try:
                self.broker.subscription_admin.cursor(partition, name)
            except SubscriptionNotFound:
                continue
            results.append(await act(partition))
        if not results:
            raise Refused(404, f"Subscription {name} not found for topic {self.full}")
        return results


def _path(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> _Path:
    return _Path(request, domain, tenant, namespace, topic)


@router.get(_T + "/subscriptions", summary="The names of a topic's subscriptions, Kafka groups among them")
async def names(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    found: set[str] = set()
    for partition in path.partitions:
        found.update(path.broker.subscription_admin.names(partition))
    return value(sorted(found))


# The longer paths first: a name takes everything up to what follows it.


@router.post(_S + "/skip_all", summary="Acknowledge the whole backlog")
async def skip_all(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    await path.each_with(name, partial(_skip_all, path.broker, name))
    return done()


async def _skip_all(broker: "Broker", name: str, partition: "Partition") -> None:
    await broker.subscription_admin.skip_to(partition, name, partition.log.high_watermark)


@router.post(_S + "/skip/{count}", summary="Acknowledge the next messages")
async def skip(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str, count: int
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    await path.broker.subscription_admin.skip(path.partition("Skip messages"), name, max(count, 0))
    return done()


@router.post(_S + "/expireMessages/{seconds}", summary="Acknowledge what is older than so many seconds")
async def expire(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str, seconds: int
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    before_ms = path.broker.clock.now_ms() - seconds * 1000
    counts = await path.each_with(
        name, lambda one: path.broker.subscription_admin.expire(one, name, before_ms)
    )
    if not any(counts) and not path.has_long_backlog(name):
        raise _nothing_expired(path, name)
    return done()


@router.post(_S + "/expireMessages", summary="Acknowledge everything before a message id")
async def expire_to(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    partition = path.partition("Expire messages to a position")
    offset = await offset_of(partition, position_in(await object_body(request)))
    if path.broker.subscription_admin.cursor(partition, name).mark_delete >= offset:
        raise _nothing_expired(path, name)
    await path.broker.subscription_admin.skip_to(partition, name, offset)
    return done()


@router.post(_T + "/all_subscription/expireMessages/{seconds}", summary="The same for all subscriptions")
async def expire_all(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, seconds: int
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    admin = path.broker.subscription_admin
    before_ms = path.broker.clock.now_ms() - seconds * 1000
    count = 0
    names = set()
    for partition in path.partitions:
        for name in path.broker.subscriptions.names(partition):
            names.add(name)
            count += await admin.expire(partition, name, before_ms)
    if not count and not any(path.has_long_backlog(name) for name in names):
        raise _nothing_expired(path, "any of them")
    return done()


def _nothing_expired(path: _Path, name: str) -> Refused:
    return Refused(
        409,
        f"Expire message by timestamp not issued on topic {path.full} for subscription {name}: nothing is that old",
    )


@router.post(
    _S + "/resetcursor/{time_ms}", summary="Start over from the first message published at or after a time"
)
async def reset_to_time(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str, time_ms: int
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    admin = path.broker.subscription_admin
    await path.each_with(
        name, lambda one: admin.reset(one, name, partial(positions.offset_at_time, one, time_ms))
    )
    return done()


@router.post(_S + "/resetcursor", summary="Start over from a message id")
async def reset_to_position(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    partition = path.partition("Reset-cursor at position")
    wanted = position_in(await object_body(request))
    await path.broker.subscription_admin.reset(partition, name, partial(offset_of, partition, wanted))
    return done()


@router.get(_S + "/position/{number}", summary="The n-th message (from 1) that is not acknowledged")
async def peek(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str, number: int
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    partition = path.partition("Peek messages")
    broker = path.broker
    found = await broker.subscription_admin.peek(partition, name, number, broker.subscriptions.forms)
    if found is None:
        raise Refused(404, "Message not found")
    return await message_response(found, broker.opener, context_of(request).bodies)


@router.get(_S + "/properties", summary="A subscription's own properties")
async def properties(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)

    async def read(partition: "Partition") -> dict[str, str]:
        return path.broker.subscriptions.properties(path.broker.subscription_admin.cursor(partition, name))

    return value((await path.each_with(name, read))[0])


@router.put(_S + "/properties", summary="Replace a subscription's own properties")
async def set_properties(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    given = _properties(await object_body(request))
    await path.each_with(name, lambda one: path.broker.subscriptions.set_properties(one, name, given))
    return done()


def _properties(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
        raise BadBody("properties must be an object of texts")
    return given


@router.put(_S, summary="Make a subscription; the body is a message id, without one it begins at the end")
async def create(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    if not name:
        raise Refused(412, "a subscription has a name")
    document = await object_body(request)
    wanted = position_in(document) if "ledgerId" in document else _LATEST
    given = _properties(document.get("properties") or {})
    broker = path.broker
    parsed, index = topic_name(domain, tenant, namespace, topic)
    if broker.pulsar_topics.find(parsed) is None and index < 0:
        count = await broker.pulsar_topics.partition_count_or_create(path.full)
        if count == 0:
            await broker.pulsar_topics.open(path.full)
    made = [
        await broker.subscription_admin.create(one, name, await offset_of(one, wanted), given)
        for one in path.partitions
    ]
    if not any(made):
        raise Refused(409, "Subscription already exists for topic")
    return done()


@router.delete(_S, summary="Drop a subscription; ?force=true disconnects its consumers")
async def delete(
    request: Request, domain: str, tenant: str, namespace: str, topic: str, name: str
) -> Response:
    path = _path(request, domain, tenant, namespace, topic)
    force = flag(request, "force")
    await path.each_with(name, lambda one: path.broker.subscription_admin.delete(one, name, force=force))
    return done()


# --- all topics of a namespace ---------------------------------------------------------------------------------------


def _of_namespace(request: Request, tenant: str, namespace: str) -> "list[Partition]":
    broker = broker_of(request)
    return [
        broker.pulsar_topics.partition(name)
        for name in broker.pulsar_topics.names(f"{tenant}/{namespace}", persistent=True)
    ]


@router.post(_N + "/clearBacklog", summary="Acknowledge the backlogs of all subscriptions of all topics")
@router.post(_N + "/clearBacklog/{name:path}", summary="The same for the subscriptions of one name")
async def clear_backlog(request: Request, tenant: str, namespace: str, name: str = "") -> Response:
    broker = broker_of(request)
    for partition in _of_namespace(request, tenant, namespace):
        for one in broker.subscriptions.names(partition):
            if not name or one == name:
                await _skip_all(broker, one, partition)
    return done()


@router.post(_N + "/unsubscribe/{name:path}", summary="Drop the subscriptions of one name of all topics")
async def unsubscribe(request: Request, tenant: str, namespace: str, name: str) -> Response:
    broker = broker_of(request)
    for partition in _of_namespace(request, tenant, namespace):
        if name in broker.subscriptions.names(partition):
            await broker.subscription_admin.delete(partition, name)
    return done()


@router.put(_N + "/unload", summary="Close all producers and consumers of a namespace: they come back")
@router.put(_N + "/{bundle}/unload", summary="The same for one part of its hash space")
async def unload(request: Request, tenant: str, namespace: str, bundle: str = "") -> Response:
    broker = broker_of(request)
    name = f"{tenant}/{namespace}"
    if name not in broker.namespaces:
        raise Refused(404, "Namespace not found")
    low, high = 0, 1 << 32
    if bundle:
        boundaries = broker.namespaces.require(name).bundle_boundaries
        begin, _, end = bundle.partition("_")
        if begin not in boundaries or end not in boundaries:
            raise Refused(412, f"Invalid bundle range {bundle[:100]}")
        low = int(begin, 16)
        high = int(end, 16) + (end == boundaries[-1])
    full_names = broker.pulsar_topics.names(name, persistent=True)
    full_names += broker.pulsar_topics.names(name, persistent=False)
    chosen = [one for one in full_names if low <= topic_hash(one) < high]
    await asyncio.gather(*(broker.unload(broker.pulsar_topics.partition(one)) for one in chosen))
    return done()
