"""One client's Pulsar connection, without its socket: it takes bytes, handles commands in order of arrival, and
returns answers.

Answers leave when they are ready, in any order (`registry.py`); all that become ready in one turn of the event loop
leave in one write.  A producer keeps the order of its receipts itself (`handlers/producer.py`).

**Life.**  CONNECT must come first, and only once; without it the connection closes at the first keep-alive tick.  At
each tick the session sends a PING if anything has come since the last one, and otherwise closes the connection.

**Producers, consumers, watchers** are attached to the session that created them: each is an `Attached`, with the id
that its client chose.  The session calls their `connection_lost` when the connection has gone.

**Back-pressure** (`protocols/backpressure.py`) counts SENDs and other commands that are at work, and the outbox
(`protocols/outbox.py`) counts what the peer does not read.  While the peer reads nothing, `is_writable` is false, and
messages, which can wait, are not sent until `when_writable` is called.  Answers are sent nevertheless, and reading
pauses when too many have piled up.

Malformed bytes end the connection with one log line.
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final, Protocol

from magnetar.base.clock import TimerHandle
from magnetar.base.distinguished_name import common_name
from magnetar.base.errors import BrokerError, WireError
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import ANONYMOUS, Caller, Credentials, Identity, Login, Origin
from magnetar.broker.usecases.logins import WITHDRAWN
from magnetar.ledger.entry import EntryKind
from magnetar.protocols.door import LOGIN_S_MAX, Peer
from magnetar.protocols.intake import Intake, Limits
from magnetar.protocols.outbox import Outbox, Place
from magnetar.protocols.pulsar.registry import Command
from magnetar.protocols.pulsar.service import PulsarService
from magnetar.protocols.throttle import Throttle
from magnetar.wire.framing import Frame
from magnetar.wire.pulsar.commands import FRAME_PADDING_BYTES, frame_command, read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthChallenge,
    CommandError,
    CommandPing,
    FeatureFlags,
    ServerError,
)

log = logging.getLogger(__name__)

DOOR: Final = "pulsar"  # its name in the audit log
AT_WORK_MAX: Final = 1_000  # Pulsar's maxPendingPublishRequestsPerConnection
AT_WORK_BYTES_MAX: Final = 64 << 20
UNTAKEN_ANSWER_BYTES_MAX: Final = 1 << 20  # for a peer that reads nothing; then reading pauses

# The largest frame of a client before its login; a token may have 64 KiB.
LOGIN_FRAME_BYTES_MAX: Final = 128 << 10

PROBE_S: Final = 5.0  # Pulsar's connectionLivenessCheckTimeoutMillis

_REFUSAL: Final = (1 << 64) - 1  # -1, the request_id of an error to a client that is refused
_REFRESH: Final = b"PulsarAuthRefresh"  # the challenge of Pulsar's broker, which clients know

_PING: Final = frame_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))


class Attached(Protocol):
    """A producer, consumer or watcher of one connection."""

    def connection_lost(self) -> None:
        """Release everything, because the connection has gone; nothing can be sent any more."""
        ...

    def close_notice(self) -> BaseCommand | None:
        """The command that tells the client that the broker closes this (CLOSE_PRODUCER, CLOSE_CONSUMER); None if
        there is none.
        """
        ...


class State(Enum):
    EXPECTING_CONNECT = auto()
    CONNECTED = auto()
    FINISHING = auto()  # graceful stop: commands at work are answered, and no more are read
    CLOSED = auto()


class PulsarSession:
    """See the module's text."""

    def __init__(
        self,
        service: PulsarService,
        peer: Peer,
        connection_id: int,
        client_host: str,
        local_host: str,
        certificate_name: str | None = None,
        listener_name: str = DOOR,
    ) -> None:
        """`certificate_name` is the full name in the client's certificate."""
        self.service = service
        self.cases = service.cases
        self.caller = Caller(ANONYMOUS, client_host, Origin(DOOR, listener_name))
        self.connection_id = connection_id
        self.client_host = client_host
        self.local_host = local_host  # the address that the client connected to
        self.advertised_listener = service.settings.bound.get(listener_name, "")
        self._common_name = common_name(certificate_name or "")
        self.state = State.EXPECTING_CONNECT
        self.connected_since_ms = service.clock.now_ms()
        # What CONNECT says about the client:
        self.client_version = ""
        self.protocol_version = 0
        self.features = FeatureFlags()
        self.login: Login | None = None  # None if clients need not log in
        self._withdrawable: Identity | None = None  # of a login that the server can withdraw at any time
        self._is_asked_anew = False

        self.producers: dict[int, Attached] = {}
        self.producers_closed_by_broker: set[int] = set()  # whose SENDs are dropped
        self.consumers: dict[int, Attached] = {}
        self.watchers: dict[int, Attached] = {}
        self.layouts: dict[
            tuple[int, int], Attached
        ] = {}  # by the command that asked for them, and the client's id

        self._peer = peer
        settings = service.settings
        limits = Limits(settings.message_bytes_max + FRAME_PADDING_BYTES, AT_WORK_MAX, AT_WORK_BYTES_MAX)
        self._frame_bytes_max = limits.frame_bytes
        self.intake = Intake(service, peer, limits, self._take, self.abort)
        self.get_buffer = self.intake.get_buffer
        self._backpressure = self.intake.backpressure
        # Counts a command at work, with its bytes; `ended_work` must follow, also if the connection ends.
        self.began_work = self._backpressure.began
        self.ended_work = self._backpressure.ended
        self.throttle = Throttle(service.clock, self._backpressure)
        self._outbox: Outbox[Place] = Outbox(peer, service, self._backpressure, UNTAKEN_ANSWER_BYTES_MAX)
        self.when_writable = self._outbox.when_writable
        self.peer_is_slow = self._outbox.peer_is_slow
        # Sends whole frames, with their total size; no part may change afterwards.
        self.send_parts = self._outbox.put
        self._heard = True  # anything has come since the last keep-alive tick
        self._probe: asyncio.Future[bool] | None = None  # a caller of `is_alive` waits
        self._keep_alive: TimerHandle | None = None
        if settings.keep_alive_s > 0:
            self._keep_alive = service.clock.call_later(settings.keep_alive_s, self._tick)
        self._login_timer: TimerHandle | None = None
        if service.cases.logins.are_required:
            self.intake.allow(min(limits.frame_bytes, LOGIN_FRAME_BYTES_MAX))
            self._login_timer = service.clock.call_later(LOGIN_S_MAX, self._is_late)
        service.opened(self, client_host)
        self.cases.client_connected(EntryKind.PULSAR)

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def received(self, count: int) -> None:
        """`count` bytes were put into the buffer that `get_buffer` returned."""
        self._heard = True
        if self._probe is not None:
            self._answer_probe(True)
        self.intake.received(count)

    def _take(self, frame: Frame) -> None:
        try:
            self._handle(frame)
        except WireError as error:
            self.abort(str(error))
        except Exception:
            log.exception("a command of %s failed inside the broker; the server closes its connection", self)
            self.abort("internal error")

    def _handle(self, frame: Frame) -> None:
        kind, body, entry = read_command(frame.data)
        service = self.service
        command = service.commands.get(kind)
        if command is None:
            raise WireError(f"{BaseCommand.Type.Name(kind)} is not served here")
        if (self.state is State.EXPECTING_CONNECT) != (kind == BaseCommand.CONNECT):
            order = "before" if self.state is State.EXPECTING_CONNECT else "after"
            raise WireError(f"{BaseCommand.Type.Name(kind)} {order} CONNECT")
        if self._withdrawable is not None and self._withdrawable.is_withdrawn:
            self.abort(WITHDRAWN)
            return
        service.command_counts[kind] += 1
        try:
            if kind == BaseCommand.SEND:
                command.handle(self, body, entry, frame.owned)
                return
            answer = command.handle(self, body)
        except BrokerError as error:
            self._refuse(command, body, error)
            return
        if answer is None:
            return
        if isinstance(answer, BaseCommand):
            self.send(answer)
        else:
            self.began_work(0)
            service.tasks.spawn("a Pulsar command", self._finish(command, body, answer))

    async def _finish(
        self, command: Command, body: Any, answer: Coroutine[Any, Any, BaseCommand | None]
    ) -> None:
        try:
            try:
                result = await answer
                if result is not None:
                    self.send(result)
            except BrokerError as error:
                self._refuse(command, body, error)
            finally:
                self.ended_work(0)
        except Exception:
            log.exception("a command of %s failed inside the broker; the server closes its connection", self)
            self.abort("internal error")

    def _refuse(self, command: Command, body: Any, error: BrokerError) -> None:
        answer = command.refused(body, error)
        if answer is not None:
            self.send(answer)
        else:
            self.abort(f"{BaseCommand.Type.Name(command.kind)} cannot be served: {error}")

    # --- bytes out ---------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self.state is State.CLOSED

    @property
    def is_writable(self) -> bool:
        """Whether the peer reads what it is sent; data that can wait is sent only then, in pieces with a check before
        each.
        """
        return self._outbox.is_writable and self.state is State.CONNECTED

    def send(self, command: BaseCommand) -> None:
        """Send a command that cannot wait; does nothing if the connection has gone."""
        frame = frame_command(command)
        self.send_parts([frame], len(frame))

    # --- the connection's life ---------------------------------------------------------------------------------------

    def connected(self) -> None:
        """CONNECT was accepted."""
        self.state = State.CONNECTED

    def credentials(self, method: str, data: bytes) -> Credentials:
        """The credentials in a command and of its connection."""
        return Credentials(method, data, self._common_name)

    def is_called(self, client_version: str) -> None:
        """Note the name of the client's program."""
        origin = replace(self.caller.origin, client=client_version)
        self.caller = replace(self.caller, origin=origin)

    def log_in(self, credentials: Credentials, original_role: str) -> None:
        """Log in with these credentials.

        Raises:
            AuthenticationFailed: the client is refused; TooManyConnections if it is known.
        """
        stranger = self.caller
        self.login, self.caller = self.cases.logins.log_in(stranger, credentials, original_role)
        self.cases.logins.take_place(self, stranger, self.caller.principal, self.login.method)
        self.intake.allow(self._frame_bytes_max)
        self._forget_login_timer()
        self._watch_login()

    def renew_login(self, credentials: Credentials) -> None:
        """Replace the login by one with new credentials.

        Raises:
            AuthenticationFailed: they are invalid, or of another client.
        """
        if self.login is not None:
            self.login = self.cases.logins.renew(self.caller, self.login, credentials)
            self._is_asked_anew = False
            self._watch_login()

    def refuse_login(self, kind: "ServerError", text: str, error: AuthenticationFailed) -> None:
        """Send the client only `text`, and close the connection; `error` is logged."""
        self.turn_away(kind, text, f"the client cannot be let in: {error}")

    def turn_away(self, kind: "ServerError", text: str, reason: str) -> None:
        """Send `text` to a refused client, and close the connection; `reason` is logged."""
        self.send(
            BaseCommand(
                type=BaseCommand.ERROR, error=CommandError(request_id=_REFUSAL, error=kind, message=text)
            )
        )
        self.abort(reason)

    def check_login(self) -> None:
        """See `login_watch.py`."""
        login = self.login
        if login is None or self.state is not State.CONNECTED:
            return
        if login.identity.is_withdrawn:
            self.abort(WITHDRAWN)
        elif not login.identity.has_expired(self.service.clock):
            return
        elif self._is_asked_anew:
            self.abort("the client's credentials have expired, and it sends no new ones")
        elif not self.features.supports_auth_refresh:
            self.abort("the client's credentials have expired, and it cannot send new ones")
        else:
            self._is_asked_anew = True
            challenge = CommandAuthChallenge(
                server_version=self.service.server_version,
                protocol_version=self.protocol_version,
                challenge=AuthData(auth_method_name=login.method, auth_data=_REFRESH),
            )
            self.send(BaseCommand(type=BaseCommand.AUTH_CHALLENGE, authChallenge=challenge))

    def _watch_login(self) -> None:
        assert self.login is not None
        identity = self.login.identity
        self._withdrawable = identity if identity.is_withdrawable else None
        if identity.ends:
            self.service.login_watch.add(self)
        else:
            self.service.login_watch.discard(self)

    def _is_late(self) -> None:
        self.abort(f"the client has not logged in within {LOGIN_S_MAX:g} s")

    def _forget_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    def _tick(self) -> None:
        assert self._keep_alive is not None
        if self.state is State.EXPECTING_CONNECT:
            self.abort(f"no CONNECT within {self.service.settings.keep_alive_s:g} s")
            return
        # While nothing is read from the client, its answer cannot come.
        if not self._heard and not self._backpressure.is_paused and self.state is State.CONNECTED:
            self.abort(f"no answer to a PING within {self.service.settings.keep_alive_s:g} s")
            return
        if self.throttle.is_on and self._peer.has_hung_up():
            self.abort("the client has hung up")
            return
        self._heard = False
        self.send_parts([_PING], len(_PING))
        self._keep_alive = self.service.clock.call_later(self.service.settings.keep_alive_s, self._tick)

    async def is_alive(self) -> bool:
        """Whether the client answers a PING within `PROBE_S`; if not, the connection is closed.

        A client whose network was cut reconnects long before a keep-alive tick shows that the old connection is dead.
        """
        if self.state is not State.CONNECTED:
            return False
        if self._probe is None:
            self._probe = asyncio.get_running_loop().create_future()
            self.send_parts([_PING], len(_PING))
            self.service.clock.call_later(PROBE_S, self._give_up, self._probe)
        return await asyncio.shield(self._probe)

    def _answer_probe(self, alive: bool) -> None:
        probe, self._probe = self._probe, None
        if probe is not None and not probe.done():
            probe.set_result(alive)

    def _give_up(self, probe: asyncio.Future[bool]) -> None:
        if not probe.done():
            self.abort(
                f"no answer to a PING within {PROBE_S:g} s, and another client needs what this one holds"
            )

    def finish(self) -> None:
        """Take no more commands; answer those at work, close producers and consumers, then the connection."""
        if self.state is not State.CLOSED:
            self.state = State.FINISHING
            self.when_writable.clear()
            self._backpressure.finish(self._take_leave)

    def _take_leave(self) -> None:
        """Tell the client that its producers and consumers are closed, and close the connection."""
        for attached in self._attached():
            notice = attached.close_notice()
            if notice is not None:
                self.send(notice)
        self._outbox.flush()
        self.closed()
        self._peer.close()

    def abort(self, reason: str) -> None:
        """Close the connection, and log the reason; before the login rarely, because any program can cause it."""
        if self.state is not State.CLOSED:
            if self.state is State.EXPECTING_CONNECT:
                self.service.strangers.warn(
                    f"closing connection {self}: {reason}", "were closed before CONNECT"
                )
            else:
                log.warning("closing connection %s: %s", self, reason)
            self._outbox.flush()
            self.closed()
            self._peer.close()

    def closed(self) -> None:
        """The connection is gone: no more answers are sent.

        Commands at work run to their end: one that stopped between a write of metadata and its next step would leave
        a topic that is stored but unknown.
        """
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self.throttle.close()
        self._answer_probe(False)
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None
        self._forget_login_timer()
        self.service.login_watch.discard(self)
        self.intake.close()
        self._outbox.close()
        attached = self._attached()
        for table in (self.producers, self.consumers, self.watchers, self.layouts):
            table.clear()
        for one in attached:
            try:
                one.connection_lost()
            except Exception:
                log.exception("the server could not release what %s held", self)
        self.service.closed(self, self.client_host)

    def _attached(self) -> list[Attached]:
        tables = (self.producers, self.consumers, self.watchers, self.layouts)
        return [one for table in tables for one in table.values()]

    def __str__(self) -> str:
        return f"{self.connection_id} from {self.client_host} (pulsar)"
