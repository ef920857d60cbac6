"""Limits of HTTP: on connections and requests, with reserved room for some clients.

Sockets are cheap to open, so a connection does not count against a client before it sends a request:

* If there are more than `CONNECTIONS_MAX` connections (fewer if the process may open few files), a new connection
  replaces an old one.  The old one is the one that has been without a request under way for longest: it is idle, or has
  half of a request's head.  The server waits `HEAD_S_MAX` for the head of a request, and `UNREAD_S_MAX` for a client
  that reads nothing of its answer.  If there are twice as many and none is idle, the new connection replaces the one
  that has read nothing for longest.  If all are at work, the server closes the new one.
* At most `REQUESTS_MAX` requests are under way, and at most `REQUESTS_PER_CLIENT_MAX` of one address; more get 503 at
  once.  Metrics and the pipelines' worker have `RESERVED` additional requests each: the server knows the worker by its
  token.  A client that shows a password asks for metrics as for anything else: passwords are checked one after the
  other, and strangers' would keep the room meanwhile.  Health is always answered: one probe serves all clients that
  ask.
* Answers to the worker are short, and complete before the server sends them.  Their room is free from then on, so a
  client that does not read its answer does not block the worker.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import h11
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from magnetar.admin.answers import failure
from magnetar.admin.guard import PROBES
from magnetar.base.distinguished_name import CERTIFICATE_NAME
from magnetar.base.error_codes import CROWDED

CONNECTIONS_MAX: Final = 512
REQUESTS_MAX: Final = 256  # waiting readers, scrapers and users: more come only from a faulty program
REQUESTS_PER_CLIENT_MAX: Final = 192
RESERVED: Final = 16
HEAD_S_MAX: Final = 10.0
UNREAD_S_MAX: Final = 60.0

_METRICS: Final = "/metrics"
_WORKER: Final = "/magnetar/v1/worker"
_PASSWORD: Final = "basic"  # noqa: S105  what an Authorization begins with that shows one


class Slots:
    """ASGI middleware: counts the requests that are under way.  `is_worker` knows the worker by its Authorization."""

    def __init__(self, app: ASGIApp, is_worker: Callable[[str], bool]) -> None:
        self._app = app
        self._is_worker = is_worker
        self._under_way = 0
        self._reserved: Counter[str] = Counter()
        self._by_client: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
        elif (kind := self._reserved_kind(scope)) is not None:
            await self._serve_reserved(kind, scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    def _reserved_kind(self, scope: Scope) -> str | None:
        """The kind of request with reserved room that this one is; None for all others."""
        kind = next((one for one in (_METRICS, _WORKER) if scope["path"].startswith(one)), None)
        if kind is None:
            return None
        shown = Headers(scope=scope).get("authorization", "")
        may_have_it = self._is_worker(shown) if kind == _WORKER else not shown.lower().startswith(_PASSWORD)
        return kind if may_have_it else None

    async def _serve_reserved(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        if self._reserved[kind] >= RESERVED:
            await self._crowded(scope, receive, send)
            return
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        self._reserved[kind] += 1
        try:
            await self._app(scope, receive, send if kind == _METRICS else keep)
        finally:
            self._reserved[kind] -= 1
        for message in answer:
            await send(message)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = (scope.get("client") or ("",))[0]
        if self._under_way >= REQUESTS_MAX or self._by_client[client] >= REQUESTS_PER_CLIENT_MAX:
            await self._crowded(scope, receive, send)
            return
        self._under_way += 1
        self._by_client[client] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    @staticmethod
    async def _crowded(scope: Scope, receive: Receive, send: Send) -> None:
        answer = failure(Request(scope), 503, "too many requests are under way: ask again", CROWDED)
        await answer(scope, receive, send)


def bounded(connections_max: int) -> "type[Connection]":
    """A class of connections with a limit of `connections_max`, but at most `CONNECTIONS_MAX`."""
    bound = min(connections_max, CONNECTIONS_MAX)
    return type("Connection", (Connection,), {"connections_max": bound})


class _Requests(h11.Connection):
    """h11's side of a connection, whose errors can be freed.

    A malformed request raises an error with a frame of h11 in its traceback that has the error itself.  The frames
    around it have the whole connection, so a circle of 10 KB waited for a full collection, which a server that works
    never has (`server/garbage.py`): clients could fill the memory.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            error.__traceback__ = None
            raise


class Connection(H11Protocol):
    """uvicorn's connection, with the limits that it lacks."""

    connections_max = CONNECTIONS_MAX

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _Requests(h11.SERVER)
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._idle_since_s = 0.0
        self._unread_since_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # uvicorn puts this into each request's scope as its state.
        self.app_state = self.app_state | {CERTIFICATE_NAME: transport.get_extra_info(CERTIFICATE_NAME)}
        self._idle_since_s = self.loop.time()
        self._wait_for_head()
        if len(self.connections) > self.connections_max:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting_for_head()
        elif self._head_timer is None:
            self._wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """In the middle of a request this is the answer, and the application's answer is dropped."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_since_s = self.loop.time()
            self._unread_timer = self.loop.call_later(UNREAD_S_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting_for_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting_for_head()
        self._stop_waiting_for_reader()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn does so only after a close without an error

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S_MAX, self.transport.abort)

    def _stop_waiting_for_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_waiting_for_reader(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        idle = [one for one in others if one.is_idle]
        if idle:
            self._give_way(min(idle, key=lambda one: one._idle_since_s))
        elif len(self.connections) > 2 * self.connections_max:
            unread = [one for one in others if one._unread_timer is not None]
            self._give_way(min(unread, key=lambda one: one._unread_since_s, default=self))

    def _give_way(self, one: "Connection") -> None:
        self.connections.discard(one)  # at once, so that the next one finds another
        one.transport.abort()
