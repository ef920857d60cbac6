"""One client's Kafka connection, without its socket: it takes bytes, dispatches requests, and returns responses in
order.

Requests are handled as soon as they are complete (`protocols/intake.py`), each one's stage one in the order of
arrival (`registry.py` explains it).  Their responses leave in the same order, whenever they are ready
(`protocols/outbox.py`).  Nothing is read while too much is unanswered (`protocols/backpressure.py`), or while the
peer does not read what it is sent.  While a request waits or is at work in a coroutine, the session handles no later
one.  If a client sends a thousand large fetches at once, one of them is in memory; if it sends a thousand that wait,
one waits.

Malformed bytes end the connection with one log line.  So does a request for an unknown API or version, except
ApiVersions: its unknown versions are answered in version 0, so that newer clients can use a lower one (KIP-35).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import Any, Final

from magnetar.base.errors import WireError
from magnetar.base.thread_time import count_for
from magnetar.broker.cluster.model import Node
from magnetar.broker.security.errors import LoginRefused
from magnetar.broker.security.model import ANONYMOUS, Caller, Origin, Principal
from magnetar.broker.usecases.quotas import ClientMeter
from magnetar.broker.usecases.sasl import SaslLogins
from magnetar.ledger.entry import EntryKind
from magnetar.protocols.door import Peer
from magnetar.protocols.intake import Intake, Limits
from magnetar.protocols.kafka.context import ClientSoftware, RequestContext
from magnetar.protocols.kafka.large import LARGE_REQUEST_BYTES, Encoded, Large
from magnetar.protocols.kafka.large_requests import LargeRequests
from magnetar.protocols.kafka.login import LoggedIn, Login, begins
from magnetar.protocols.kafka.registry import Api, Deferred, Silent, is_coroutine
from magnetar.protocols.kafka.request_time import RequestTime
from magnetar.protocols.kafka.service import KafkaService
from magnetar.protocols.kafka.slot import OBJECTS_RATIO, Slot
from magnetar.protocols.kafka.versions import unsupported
from magnetar.protocols.outbox import Outbox
from magnetar.protocols.throttle import Throttle
from magnetar.wire.framing import Frame
from magnetar.wire.kafka.header import (
    API_VERSIONS_KEY,
    encode_response_front,
    encode_response_header,
    read_request_header,
)
from magnetar.wire.kafka.runtime import Buffer, Message

log = logging.getLogger(__name__)

UNANSWERED_REQUESTS_MAX: Final = 2_000
UNANSWERED_BYTES_MAX: Final = 64 << 20
PRODUCE_KEY: Final = 0
DOOR: Final = "kafka"  # its name in the audit log

_pack_size: Final = Struct(">i").pack


class KafkaSession:
    """See the module's text."""

    def __init__(
        self,
        service: KafkaService,
        peer: Peer,
        node: Node,
        listener_name: str,
        connection_id: int,
        client_host: str,
        local_host: str,
        logins: SaslLogins | None = None,
        principal: Principal = ANONYMOUS,
        unasked: SaslLogins | None = None,
    ) -> None:
        """With `logins` the client must log in by one of them first; `principal` is the client until then.  Without
        them it may log in by `unasked`, as its first requests.
        """
        self._service = service
        self._peer = peer
        self._node = node
        self._listener_name = listener_name
        self._connection_id = connection_id
        self._client_host, self._local_host = client_host, local_host
        self.caller = Caller(principal, client_host, Origin(DOOR, listener_name))
        self._meter: ClientMeter | None = None
        self._software = ClientSoftware()
        self._context = self._context_of(0, None, False)
        self._logins = logins
        self._login = None if logins is None else Login(service.logins, logins, self, service.apis)
        self.intake = self._begin_intake(logins, unasked)
        self._backpressure = self.intake.backpressure
        self._outbox: Outbox[Slot] = Outbox(peer, service, self._backpressure)
        self._closed = False
        self._stage_one: asyncio.Task[None] | None = None  # of the latest request whose stage one waits
        self._large = LargeRequests(service, self._backpressure)
        self._throttle = Throttle(service.cases.clock, self._backpressure)
        # The methods of `Session`: the connection calls these directly, because each call costs time.
        self.get_buffer = self.intake.get_buffer
        self.received = self.intake.received
        self.peer_is_slow = self._outbox.peer_is_slow
        service.opened(self)
        if logins is None:
            service.cases.client_connected(EntryKind.KAFKA)

    def _begin_intake(self, logins: SaslLogins | None, unasked: SaslLogins | None) -> Intake:
        service = self._service
        frame_bytes_max = service.settings.request_bytes_max
        handle: Callable[[Frame], None] = self._handle
        admits_large = None
        if unasked is not None:
            handle = partial(self._handle_first, unasked)
        if self._login is not None and logins is not None:
            frame_bytes_max = min(frame_bytes_max, logins.token_bytes_max)
            handle, admits_large = partial(self._handle_login, self._login), self._login.admits
        limits = Limits(frame_bytes_max, UNANSWERED_REQUESTS_MAX, UNANSWERED_BYTES_MAX)
        return Intake(
            service, self._peer, limits, handle, self._abort, service.answer_waiting_fetches, admits_large
        )

    # --- before the client is known ----------------------------------------------------------------------------------

    def _handle_login(self, login: Login, frame: Frame) -> None:
        try:
            login.handle(frame)
        except WireError as error:
            self._abort(str(error))
        except Exception:
            log.exception("the login of %s failed inside the broker; the server closes its connection", self)
            self._abort("internal error")

    def _handle_first(self, logins: SaslLogins, frame: Frame) -> None:
        """Handle the first requests of a client that need not log in, until one shows whether it does."""
        try:
            logs_in = begins(frame, logins)
        except WireError as error:
            self._abort(str(error))
            return
        handle: Callable[[Frame], None] = self._handle
        if logs_in:
            self._login = Login(self._service.logins, logins, self, self._service.apis)
            handle = partial(self._handle_login, self._login)
        if logs_in is not None:
            self.intake.let_in(handle, self._service.settings.request_bytes_max)
        handle(frame)

    def answer(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        encode: Callable[[int, Any, list[Buffer]], None],
        response: object,
    ) -> None:
        """Answer a request of a login, in the order of requests."""
        parts: list[Buffer] = []
        encode(version, response, parts)
        header = encode_response_header(api_key, version, correlation_id, self._service.flexible_since)
        self.answer_bare(b"".join([header, *parts]))

    def answer_bare(self, message: bytes) -> None:
        """Answer with a frame that has only `message`."""
        if self._closed:
            return
        slot = Slot(0)
        self._outbox.places.append(slot)
        self._backpressure.began(0)
        self._outbox.fill(slot, [_pack_size(len(message)), message], 4 + len(message))

    def let_in(self, logged_in: LoggedIn) -> None:
        """Serve a client that has logged in, until the login's end."""
        self._login = None
        self._service.logins.let_in(self, logged_in)
        self.caller = self.caller.logged_in(logged_in.authenticated)
        self._context = self._context_of(0, None, False)
        handle = self._handle if logged_in.ends_s is None else partial(self._handle_until_end, logged_in)
        self.intake.let_in(handle, self._service.settings.request_bytes_max)
        self._service.cases.client_connected(EntryKind.KAFKA)

    def _handle_until_end(self, logged_in: LoggedIn, frame: Frame) -> None:
        service = self._service.logins
        now_s = service.clock.monotonic()
        if self._logins is not None and logged_in.begins_anew(frame, now_s):
            login = self._login = Login(service, self._logins, self, self._service.apis, logged_in)
            handle = partial(self._handle_login, login)
            self.intake.let_in(handle, self._service.settings.request_bytes_max)
            handle(frame)
        elif logged_in.is_over(now_s):
            error = LoginRefused("its session has ended, and the client did not log in again")
            service.failed(self, logged_in.mechanism, error)
            self.drop()
        else:
            self._handle(frame)

    def drop(self) -> None:
        """Close without an answer."""
        self.closed()
        self._peer.close()

    # --- requests in -------------------------------------------------------------------------------------------------

    def _handle(self, frame: Frame) -> None:
        try:
            self.dispatch(frame)
        except WireError as error:
            self._abort(str(error))
        except Exception:
            log.exception("a request of %s failed inside the broker; the server closes its connection", self)
            self._abort("internal error")

    def dispatch(self, frame: Frame) -> None:
        service = self._service
        data, owned, size = frame.data, frame.owned, len(frame.data)
        flexible = service.flexible_since
        api_key, version, correlation_id, client_id, position = read_request_header(data, flexible)
        api = service.apis.get(api_key)
        if api is None:
            raise WireError(f"no API with key {api_key} is served here")
        if not api.min_version <= version <= api.max_version:
            if api_key != API_VERSIONS_KEY:
                raise WireError(
                    f"{api.name} v{version} is not served; v{api.min_version} to v{api.max_version} are"
                )
            answer: Any = unsupported(service.apis)
            version, time = 0, None
        elif size - position > LARGE_REQUEST_BYTES and api_key != PRODUCE_KEY:
            time = self._time_of(self._meter_of(client_id))
            kept = data if owned else memoryview(bytes(data))
            context_of = partial(self._context_of, version, client_id, True)
            answer = self._large.answer(api, version, kept, position, context_of, self._heed_quotas)
        else:
            context = self._context
            if (
                version != context.api_version
                or owned is not context.owns_memory
                or client_id != context.client_id
            ):
                context = self._context = self._context_of(version, client_id, owned)
            time = self._time_of(context.meter)
            request = api.decode_request(version, data, position)
            service.request_counts[api_key] += 1
            answer = api.handle(context, request)
        if answer is None:
            if time is not None:
                self._heed_quotas(None, time)
                time.end()
            return
        if api_key != PRODUCE_KEY and size - position <= LARGE_REQUEST_BYTES:
            size *= 1 + OBJECTS_RATIO
        deferred = answer if isinstance(answer, Deferred) else None
        if deferred is not None and not deferred.keeps_request:
            size = 0
        slot = Slot(size, deferred, time)
        backpressure = self._backpressure
        self._outbox.places.append(slot)
        backpressure.began(size)
        if deferred is not None:
            deferred.time = time
            if deferred.mutes or deferred.stage_one is not None:
                backpressure.at_work = slot
            deferred.attach(partial(self._complete, slot, api, version, correlation_id))
            if deferred.stage_one is not None:
                rest = self._finish_stage_one(slot, deferred.take_stage_one())
                self._stage_one = service.tasks.spawn(api.name, rest)
        elif is_coroutine(answer):
            work = answer if time is None else time.of(answer)
            complete = partial(self._complete, slot, api, version, correlation_id)
            service.tasks.spawn(api.name, self._finish(work, complete))
            backpressure.at_work = slot
        else:
            self._complete(slot, api, version, correlation_id, answer)
        if time is not None:
            time.pause()
        if slot.counted_bytes:
            self._backpressure.look()

    def is_called(self, client_id: str | None) -> None:
        """Note the client id of the present request; it may change with each request."""
        origin = self.caller.origin
        if client_id is not None and client_id != origin.client:
            self.caller = replace(self.caller, origin=replace(origin, client=client_id))

    def _context_of(self, version: int, client_id: str | None, owns_memory: bool) -> RequestContext:
        self.is_called(client_id)
        return RequestContext(
            self._service,
            self._service.cases,
            self.caller,
            self._node,
            self._listener_name,
            self._connection_id,
            self._client_host,
            self._local_host,
            version,
            client_id,
            owns_memory,
            self._meter_of(client_id),
            self._software,
        )

    async def _finish_stage_one(self, slot: Slot, rest: Callable[[], Awaitable[None]]) -> None:
        try:
            await rest()
        except Exception:
            log.exception("a request of %s failed inside the broker; the server closes its connection", self)
            self._abort("internal error")
        if self._backpressure.at_work is slot:
            self._backpressure.at_work = None
            self._backpressure.resume_if_possible()

    async def _finish(self, answer: Awaitable[object], complete: Callable[[object], None]) -> None:
        try:
            complete(await answer)
        except WireError as error:
            self._abort(str(error))
        except Exception:
            log.exception("a request of %s failed inside the broker; the server closes its connection", self)
            self._abort("internal error")

    # --- responses out -----------------------------------------------------------------------------------------------

    def _complete(
        self, slot: Slot, api: Api[Any], version: int, correlation_id: int, response: object
    ) -> None:
        slot.deferred = None  # it refers to this slot: with a cycle, every request would need the collector
        time = slot.time
        if self._closed:
            if time is not None:
                time.end()  # the work was done, also if its client has gone
            if isinstance(response, Large):
                response.give_back()
            return
        if time is not None:
            time.go_on()
        if not isinstance(response, Message):
            self._complete_otherwise(slot, api, version, correlation_id, response)
            return
        parts: list[Buffer] = [b""]
        if time is not None or getattr(response, "throttle_time_ms", None):
            self._heed_quotas(response, time)
        encode = api.encode_response
        encode(version, response, parts)
        self._send(slot, api, version, correlation_id, parts)

    def _complete_otherwise(
        self, slot: Slot, api: Api[Any], version: int, correlation_id: int, response: object
    ) -> None:
        """As `_complete`, for a response that is not a message."""
        time = slot.time
        self._heed_quotas(response, time)
        if isinstance(response, Large):
            complete = partial(self._complete, slot, api, version, correlation_id)
            encoding = self._service.large.encode(api.encode_response, version, response)
            self._service.tasks.spawn(api.name, self._finish(encoding, complete))
            if time is not None:
                time.pause()
            return
        if isinstance(response, Encoded):
            self._send(slot, api, version, correlation_id, [b"", *response.parts])
            return
        assert response is None or isinstance(response, Silent), response
        self._outbox.fill(slot, [], 0)

    def _send(
        self, slot: Slot, api: Api[Any], version: int, correlation_id: int, parts: list[Buffer]
    ) -> None:
        """The answer of `slot` is ready; the first of `parts` is a place for its header."""
        size = sum(map(len, parts))
        front = parts[0] = encode_response_front(
            size, api.key, version, correlation_id, self._service.flexible_since
        )
        self._outbox.fill(slot, parts, len(front) + size)
        if slot.time is not None:
            slot.time.end()

    # --- quotas ------------------------------------------------------------------------------------------------------

    def _meter_of(self, client_id: str | None) -> ClientMeter:
        """One meter for all requests, because it keeps limits that it has looked up."""
        self._meter = self._service.cases.quotas.meter(self.caller, client_id, self._meter)
        return self._meter

    def _time_of(self, meter: ClientMeter) -> RequestTime | None:
        """A `RequestTime` from now on, if this client's time is limited."""
        return RequestTime(meter, self._service.cases.clock.monotonic) if meter.is_timed() else None

    def _heed_quotas(self, response: object, time: RequestTime | None) -> None:
        """Handle no further requests of the client during the throttle time of a response (KIP-219)."""
        if isinstance(response, Large):
            response = response.response
        told_ms = getattr(response, "throttle_time_ms", None)
        throttle_ms = told_ms or 0
        if time is not None:
            time_ms = time.told_ms()
            if time_ms > throttle_ms:
                throttle_ms = time_ms
                if told_ms is not None and isinstance(response, Message):
                    response.throttle_time_ms = time_ms  # type: ignore[attr-defined]
        if throttle_ms:
            self._throttle.hold(throttle_ms / 1000)

    # --- the connection's life ---------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Take no more requests; close the connection once every due response has been sent."""
        self._backpressure.finish(self._peer.close)
        for slot in list(self._outbox.places):
            slot.hurry()

    def _abort(self, reason: str) -> None:
        count_for(None)  # the request that fails may be counted
        if self._login is None:
            log.warning("closing connection %s: %s", self, reason)
        else:
            self._login.malformed(reason)
        self.drop()

    def look_for_hang_up(self) -> None:
        """Close the connection if its client has gone while nothing is read from it."""
        slot = self._backpressure.at_work
        waits_for_others = isinstance(slot, Slot) and self._backpressure.is_paused and slot.can_be_abandoned
        if (waits_for_others or self._throttle.is_on) and self._peer.has_hung_up():
            self.closed()
            self._peer.close()

    def closed(self) -> None:
        """The connection is gone: no more responses are sent.

        Requests at work run to their end.  A request that stopped between a write of metadata and its next step would
        leave a stored topic that can neither be used nor be created.  One that waits in stage one never takes effect.
        """
        if self._closed:
            return
        self._closed = True
        self._service.closed(self)
        self._service.logins.closed(self)
        self._service.cases.sharing.connection_lost(self._connection_id)
        self.intake.close()
        if self._login is not None:
            self._login.closed()
            self._login = None  # it refers to this session: a cycle would need the collector
        stage_one, self._stage_one = self._stage_one, None  # its frames have this session: a cycle, too
        if stage_one is not None:
            stage_one.cancel()
        self._throttle.close()
        self._large.close()
        self._backpressure.at_work = None
        for slot in self._outbox.close():
            slot.abandon()

    def __str__(self) -> str:
        return f"{self._connection_id} from {self._client_host} on {self._listener_name}"
