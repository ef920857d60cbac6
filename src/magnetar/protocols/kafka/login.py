"""The login of a Kafka connection with SASL: the requests that it may send before its client is known.

The order is this.  First ApiVersions, any number of times, because a client may retry with a lower version.  Then
SaslHandshake with a mechanism.  Then messages of the mechanism, in SaslAuthenticate, or without a header after
SaslHandshake v0 (KIP-43, KIP-152).  The first four bytes of a request decide whether it may come now, before the rest
is read.  As in Kafka, any other request ends the connection before the handshake; after it, the request first gets an
empty answer with ILLEGAL_SASL_STATE.

A session may have an end (KIP-368): that of a token, or a time limit in the settings.  Its client logs in again with
a SaslHandshake, at any time, on the same connection, by the same mechanism and as the same principal.  After the end,
any other request closes the connection.

A client has `LOGIN_S_MAX` for a complete login.  Frames of more than a few kilobytes share `LARGE_BYTES_MAX` over all
connections, so clients that have not logged in cannot use up the memory of those that have.  A session without an end
drops its login object after the login, which costs nothing from then on.

When the server withdraws the token of a pipeline, it closes the connections that have shown the token.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from struct import Struct
from typing import Any, Final, Protocol

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.rare_line import RareLine
from magnetar.broker.security.errors import AuthenticationFailed, LoginRefused, TooManyConnections
from magnetar.broker.security.model import Authenticated, Caller, Exchange, Principal, Refused
from magnetar.broker.usecases.logins import WITHDRAWN, LoginCases
from magnetar.broker.usecases.sasl import SaslLogins
from magnetar.protocols.door import LOGIN_S_MAX
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.framing import SMALL_FRAME_BYTES_MAX, Frame
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.header import API_VERSIONS_KEY, RequestHeader, decode_request_header
from magnetar.wire.kafka.messages import sasl_authenticate, sasl_handshake
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateResponse
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeResponse
from magnetar.wire.kafka.runtime import Buffer

Encode = Callable[[int, Any, list[Buffer]], None]

log = logging.getLogger(__name__)

LARGE_BYTES_MAX: Final = 16 << 20
VERSIONS_ASKED_MAX: Final = 16
ANEW_EVERY_S: Final = 1.0
_BARE_HANDSHAKE: Final = 0  # the version of SaslHandshake after which messages have no header
_unpack_api = Struct(">hh").unpack_from


class _State(Enum):
    UNKNOWN = "unknown"
    IN_MECHANISM = "in mechanism"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The result of a login.  `ends_s` (monotonic clock) is its end, None if it has none; `anew_s` is when it began,
    unless it is the first one of its connection.
    """

    authenticated: Authenticated
    mechanism: str
    ends_s: float | None
    anew_s: float | None

    def begins_anew(self, frame: Frame, now_s: float) -> bool:
        """Whether this is the handshake of a new login, which may not begin too often."""
        if len(frame.data) < 4:
            return False
        api_key, version = _unpack_api(frame.data)
        return (
            api_key == sasl_handshake.API_KEY
            and _BARE_HANDSHAKE < version <= sasl_handshake.VERSIONS[1]
            and (self.anew_s is None or now_s - self.anew_s >= ANEW_EVERY_S)
        )

    def is_over(self, now_s: float) -> bool:
        """Whether it has ended, or the server has withdrawn its credentials."""
        return self.authenticated.is_withdrawn or (self.ends_s is not None and now_s >= self.ends_s)


class LoginService:
    """What the logins of all connections share."""

    def __init__(self, clock: Clock, cases: LoginCases) -> None:
        self.clock = clock
        self.cases = cases
        self.failed_count = 0
        self._large: dict[object, int] = {}
        self._failures = RareLine(log, clock)
        self._withdrawable: dict[LoginSession, LoggedIn] = {}
        cases.hear_withdrawals(self._close_withdrawn)

    def let_in(self, session: "LoginSession", logged_in: LoggedIn) -> None:
        """From now on until `closed`, close the session when the server withdraws the client's credentials."""
        if logged_in.authenticated.is_withdrawable:
            self._withdrawable[session] = logged_in
        else:  # it may have shown a token before
            self._withdrawable.pop(session, None)

    def closed(self, session: "LoginSession") -> None:
        """The connection has ended, whether its client had logged in or not."""
        self._withdrawable.pop(session, None)
        self.cases.give_place(session)

    def _close_withdrawn(self) -> None:
        for session, logged_in in list(self._withdrawable.items()):
            if logged_in.authenticated.is_withdrawn:
                log.warning("closing connection %s: %s", session, WITHDRAWN)
                session.drop()

    def take_large(self, one: object, frame_bytes: int) -> bool:
        """Whether there is room for a large frame of connection `one`, which has at most one at a time."""
        self._large.pop(one, None)
        if sum(self._large.values()) + frame_bytes > LARGE_BYTES_MAX:
            return False
        self._large[one] = frame_bytes
        return True

    def give_large(self, one: object) -> None:
        self._large.pop(one, None)

    def failed(self, session: "LoginSession", method: str, error: AuthenticationFailed) -> None:
        """Log a failed login, but not too often.  The error contains no text of the client."""
        self._note(session, error)
        self.cases.failed(session.caller, method, error)

    def _note(self, session: "LoginSession", error: AuthenticationFailed) -> None:
        self.failed_count += 1
        self._failures.warn(f"login of connection {session} failed: {error.reason}", "failed")

    def take_place(self, session: "LoginSession", principal: Principal, method: str) -> None:
        """Count a connection for the principal as which it logs in, until `closed`.

        Raises:
            TooManyConnections: there is no room for it, which is logged.
        """
        try:
            self.cases.take_place(session, session.caller, principal, method)
        except TooManyConnections as error:
            self._note(session, error)
            raise


class LoginSession(Protocol):
    """The session, as its login uses it."""

    @property
    def caller(self) -> Caller:
        """The caller before the login."""
        ...

    def is_called(self, client_id: str | None) -> None:
        """Note the client id in the header of a request."""
        ...

    def dispatch(self, frame: Frame) -> None:
        """Handle a request that any client may send."""
        ...

    def answer(self, api_key: int, version: int, correlation_id: int, encode: Encode, response: Any) -> None:
        """Answer a request, in the order of requests."""
        ...

    def answer_bare(self, message: bytes) -> None:
        """Answer with a frame that has only `message`."""
        ...

    def let_in(self, logged_in: LoggedIn) -> None:
        """The client has logged in; the session serves it from now on."""
        ...

    def finish(self) -> None:
        """Send due answers, then close."""
        ...

    def drop(self) -> None:
        """Close at once."""
        ...


class Login:
    """See the module's text."""

    def __init__(
        self,
        service: LoginService,
        logins: SaslLogins,
        session: LoginSession,
        apis: Mapping[int, Api[Any]],
        before: LoggedIn | None = None,
    ) -> None:
        """`before` is the present login of a client that logs in again, and must stay the same principal."""
        self._service = service
        self._before = before
        self._anew_s = None if before is None else service.clock.monotonic()
        self._logins = logins
        self._session = session
        self._apis = apis
        self._state = _State.UNKNOWN
        self._versions_asked = 0
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._is_bare = False
        self._refusal: str | None = None  # the refusal that the client got and must answer
        self._late: TimerHandle | None = service.clock.call_later(LOGIN_S_MAX, self._is_late)
        self._telling: TimerHandle | None = None

    def admits(self, frame_bytes: int) -> bool:
        """Whether a frame of this size may be received now."""
        return self._state is _State.IN_MECHANISM and self._service.take_large(self, frame_bytes)

    def handle(self, frame: Frame) -> None:
        """Handle the next frame.

        Raises:
            WireError: it is malformed.
        """
        self._service.give_large(self)
        if self._state is _State.OVER:
            return
        if self._state is _State.IN_MECHANISM and self._is_bare:
            self._respond(None, bytes(frame.data))
            return
        if len(frame.data) < 4 or (self._state is _State.UNKNOWN and len(frame.data) > SMALL_FRAME_BYTES_MAX):
            self._refuse("the client sent bytes that are no request")
            return
        api_key, version = _unpack_api(frame.data)
        if self._state is _State.IN_MECHANISM:
            self._authenticate(frame, api_key, version)
        elif api_key == API_VERSIONS_KEY and self._versions_asked < VERSIONS_ASKED_MAX:
            self._versions_asked += 1
            self._session.dispatch(frame)
        elif api_key == sasl_handshake.API_KEY and _is_version(sasl_handshake.VERSIONS, version):
            self._shake_hands(frame)
        else:
            self._refuse(f"a request of API {api_key} v{version} came before the handshake")

    def _shake_hands(self, frame: Frame) -> None:
        header = decode_request_header(frame.data)
        self._session.is_called(header.client_id)
        request = sasl_handshake.decode_request(header.api_version, frame.data, header.position)
        exchange = self._logins.begin(request.mechanism)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if exchange is None else ErrorCode.NONE
        self._answer(header, sasl_handshake, SaslHandshakeResponse(code, list(self._logins.mechanisms)))
        if exchange is None:
            self._end("the client asked for a mechanism that is not enabled")
            return
        self._mechanism, self._exchange = request.mechanism, exchange
        self._is_bare = header.api_version == _BARE_HANDSHAKE
        self._state = _State.IN_MECHANISM

    def _authenticate(self, frame: Frame, api_key: int, version: int) -> None:
        if api_key != sasl_authenticate.API_KEY:
            api = self._apis.get(api_key)
            if api is None or not _is_version((api.min_version, api.max_version), version):
                self._refuse(f"a request of API {api_key} v{version} came instead of its login")
                return
            header = decode_request_header(frame.data)
            self._answer(header, api, _empty_answer(api))
            self._end(f"a request of API {api_key} v{version} came instead of its login")
        elif _is_version(sasl_authenticate.VERSIONS, version):
            header = decode_request_header(frame.data)
            request = sasl_authenticate.decode_request(version, frame.data, header.position)
            self._respond(header, request.auth_bytes)
        else:
            self._refuse(f"SaslAuthenticate v{version} is not served")

    def _respond(self, header: RequestHeader | None, message: bytes) -> None:
        assert self._exchange is not None, "the handshake began one"
        if len(message) > self._logins.token_bytes_max:
            self._refuse("the client's message is too large")
            return
        if self._before is not None and self._mechanism != self._before.mechanism:
            self._refuse("the client logs in again by another mechanism than before")
            return
        if self._refusal is not None:
            self._fail(header, self._refusal)
            return
        try:
            step = self._exchange.respond(message)
            if isinstance(step, Authenticated):
                self._require_same(step.principal)
                if self._before is None:
                    self._service.take_place(self._session, step.principal, self._mechanism)
        except TooManyConnections as error:
            # No SASL_AUTHENTICATION_FAILED, after which Java's clients give up: they try again later.
            self._fail(header, str(error), ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            return
        except AuthenticationFailed as error:
            what = "authentication" if self._before is None else "re-authentication"
            told = f"Authentication failed during {what} due to invalid credentials with SASL mechanism"
            told = str(error) if isinstance(error, LoginRefused) else f"{told} {self._mechanism}"
            shown = LoginRefused(told, error.reason)
            shown.user = error.user
            self._failed(shown)
            self._fail(header, told)
            return
        if isinstance(step, Refused):
            self._failed(LoginRefused("", step.reason))
            self._refusal = step.data.decode()
        logged_in, lifetime_ms = None, 0
        if isinstance(step, Authenticated):
            now_s = self._service.clock.monotonic()
            ends_s = self._end_of(step, now_s)
            logged_in = LoggedIn(step, self._mechanism, ends_s, self._anew_s)
            if ends_s is not None:
                lifetime_ms = max(int((ends_s - now_s) * 1000), 1)  # 0 would mean no end
        if header is None:
            self._session.answer_bare(step.data)
        else:
            response = SaslAuthenticateResponse(ErrorCode.NONE, None, step.data, lifetime_ms)
            self._answer(header, sasl_authenticate, response)
        if logged_in is not None:
            self.closed()
            self._session.let_in(logged_in)
            self._service.cases.succeeded(self._session.caller, self._mechanism)

    def _require_same(self, principal: Principal) -> None:
        before = None if self._before is None else self._before.authenticated.principal
        if before is not None and principal != before:
            names = [f"{one.kind}.{one.name}" for one in (before, principal)]
            raise LoginRefused(
                f"Cannot change principals during re-authentication from {names[0]}: {names[1]}",
                "the client logs in again as another user than before",
            )

    def _end_of(self, step: Authenticated, now_s: float) -> float | None:
        """The time, of the monotonic clock, by which the client must log in again; None if it need not."""
        session_s_max = self._logins.session_s_max.get(self._mechanism)
        ends_s = step.ends_s
        if session_s_max is not None:
            ends_s = now_s + session_s_max if ends_s is None else min(ends_s, now_s + session_s_max)
        return ends_s

    def _fail(
        self,
        header: RequestHeader | None,
        told: str,
        code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED,
    ) -> None:
        self._state = _State.OVER
        self._exchange = None
        delay_s = self._logins.failure_delay_s
        self._telling = self._service.clock.call_later(delay_s, self._tell, header, told, code)

    def _tell(self, header: RequestHeader | None, told: str, code: ErrorCode) -> None:
        if header is None:
            self._session.drop()
            return
        self._answer(header, sasl_authenticate, SaslAuthenticateResponse(code, told))
        self._session.finish()

    def _answer(self, header: RequestHeader, codec: Any, response: Any) -> None:
        key = codec.key if isinstance(codec, Api) else codec.API_KEY
        self._session.answer(key, header.api_version, header.correlation_id, codec.encode_response, response)

    def _end(self, reason: str) -> None:
        """Close after the answer."""
        self._state = _State.OVER
        self._failed(LoginRefused(reason))
        self._session.finish()

    def _refuse(self, reason: str) -> None:
        """Close without an answer."""
        self._state = _State.OVER
        self._failed(LoginRefused(reason))
        self._session.drop()

    def _is_late(self) -> None:
        if self._state is not _State.OVER:
            self._failed(LoginRefused(f"the client did not finish it within {LOGIN_S_MAX:g} s"))
        self._session.drop()

    def malformed(self, reason: str) -> None:
        """Log that malformed bytes of the client end the connection, but not too often, because any program can send
        them.
        """
        if self._state is not _State.OVER:
            self._failed(LoginRefused(reason))

    def _failed(self, error: AuthenticationFailed) -> None:
        self._service.failed(self._session, self._mechanism, error)

    def closed(self) -> None:
        """End the login, because the connection is gone or the client has logged in."""
        self._state = _State.OVER
        self._service.give_large(self)
        for timer in (self._late, self._telling):
            if timer is not None:
                timer.cancel()


def begins(frame: Frame, logins: SaslLogins) -> bool | None:
    """Whether the first request of a client, at a listener that needs no login, begins a login by one of `logins`;
    None if it may come before a login.

    Raises:
        WireError: it is malformed.
    """
    api_key, version = _unpack_api(frame.data) if len(frame.data) >= 4 else (-1, -1)
    if api_key == API_VERSIONS_KEY:
        return None
    if api_key != sasl_handshake.API_KEY or not _BARE_HANDSHAKE < version <= sasl_handshake.VERSIONS[1]:
        return False
    header = decode_request_header(frame.data)
    request = sasl_handshake.decode_request(header.api_version, frame.data, header.position)
    return logins.begin(request.mechanism) is not None


def _is_version(versions: tuple[int, int], version: int) -> bool:
    return versions[0] <= version <= versions[1]


def _empty_answer(api: Api[Any]) -> Any:
    """An empty answer with ILLEGAL_SASL_STATE, if the API has a field for an error."""
    codec = import_module(api.decode_request.__module__)
    response = getattr(codec, "".join(word.capitalize() for word in api.name.split("_")) + "Response")()
    if "error_code" in response.__slots__:
        response.error_code = ErrorCode.ILLEGAL_SASL_STATE
    return response
