"""One client's Pulsar connection, without its socket: bytes in, commands handled in order of arrival, answers out.

Answers leave when they are ready, in any order (registry.py); what becomes ready in one turn of the event loop leaves
in one write.  What a producer is told keeps its order by the producer's own doing (`handlers/producer.py`).

**Life.**  Nothing but CONNECT may come first, and only once; without it the connection closes at the first keep-alive
tick.  At each tick a PING is sent if the one before it was answered by anything at all, and the connection closed if
not.

**Producers, consumers, watchers** are attached to the session that made them: each is an `Attached`, found by the id
that its client gave it, and told when the connection has gone.

**Back-pressure.**  Reading pauses while too many SENDs or other commands are at work, by number and by bytes, here or
over all sessions, and after a few milliseconds of work on what came at once, until everybody else has had a turn; what
was received behind that is held.  A peer that does not take what it is sent makes the session not `is_writable`: nobody
who has a choice (who delivers messages) sends it more, until `when_writable` is called.  What must be sent (answers) is
sent all the same, and reading pauses when too much of that has piled up.

Trouble with the peer's bytes ends the connection with one log line.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol

from magnetar.base.clock import TimerHandle
from magnetar.base.errors import BrokerError, WireError
from magnetar.wire.framing import SMALL_FRAME_BYTES_MAX, Frame, FrameReader
from magnetar.wire.pulsar.commands import FRAME_PADDING_BYTES, Buffer, frame_command, read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandPing, FeatureFlags

if TYPE_CHECKING:
    from magnetar.protocols.pulsar.registry import Command
    from magnetar.protocols.pulsar.service import PulsarService

log = logging.getLogger(__name__)

AT_WORK_MAX: Final = 1_000  # Pulsar's maxPendingPublishRequestsPerConnection
AT_WORK_BYTES_MAX: Final = 64 << 20
TURN_S: Final = 0.005  # of work on commands of one connection that came together
UNSENT_BYTES_MAX: Final = (
    4 << 20
)  # given to this turn's write: no more messages are taken before the next turn
UNTAKEN_ANSWER_BYTES_MAX: Final = (
    1 << 20
)  # answers for a peer that takes nothing, before no more is read from it
JOIN_PART_BYTES_MAX: Final = (
    2048  # parts smaller than this on average are joined: cheaper than a vector of crumbs
)

PROBE_S: Final = 5.0  # Pulsar's connectionLivenessCheckTimeoutMillis

_PING: Final = frame_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))


class Peer(Protocol):
    """What a session may do to its connection; the server implements it."""

    def send(self, parts: list[Buffer]) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class Attached(Protocol):
    """A producer, consumer or watcher of one connection."""

    def connection_lost(self) -> None:
        """The connection has gone: let go of everything; nothing can be sent any more."""
        ...

    def close_notice(self) -> BaseCommand | None:
        """What tells the client that the broker closes this (CLOSE_PRODUCER, CLOSE_CONSUMER); None: nothing does."""
        ...


class State(Enum):
    EXPECTING_CONNECT = auto()
    CONNECTED = auto()
    FINISHING = auto()  # graceful stop: what is at work is answered, nothing else is read
    CLOSED = auto()


class PulsarSession:
    """See the module's text."""

    def __init__(
        self, service: "PulsarService", peer: Peer, connection_id: int, client_host: str, local_host: str
    ) -> None:
        self.service = service
        self.broker = service.broker
        self.connection_id = connection_id
        self.client_host = client_host
        self.local_host = local_host  # the address that the client connected to
        self.state = State.EXPECTING_CONNECT
        self.connected_since_ms = service.clock.now_ms()
        # What CONNECT says of the client:
        self.client_version = ""
        self.protocol_version = 0
        self.features = FeatureFlags()

        self.producers: dict[int, Attached] = {}
        self.producers_closed_by_broker: set[int] = set()  # what they still send is dropped
        self.consumers: dict[int, Attached] = {}
        self.watchers: dict[int, Attached] = {}
        self.when_writable: set[Callable[[], None]] = (
            set()
        )  # each is called whenever `is_writable` becomes true again

        self._peer = peer
        settings = service.settings
        self._memory = service.memory
        self._monotonic = service.clock.monotonic
        self._frames = FrameReader(
            service.scratch,
            service.arena.take,
            settings.message_bytes_max + FRAME_PADDING_BYTES,
            self._admit,
        )
        self._frame_cost = 0  # what the frame that is being received counts in the budget
        self.get_buffer = self._frames.get_buffer
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._flush_scheduled = False
        self._peer_is_slow = False
        self._untaken_answer_bytes = 0
        self._told_unwritable = False
        self._at_work = 0
        self._at_work_bytes = 0
        self._paused = False
        self._held: deque[Frame] = deque()  # received before its turn; reading is paused then
        self._awaits_turn = False
        self._heard = True  # since the last keep-alive tick
        self._probe: asyncio.Future[bool] | None = None  # somebody wants to know whether the client is there
        self._keep_alive: TimerHandle | None = None
        if settings.keep_alive_s > 0:
            self._keep_alive = service.clock.call_later(settings.keep_alive_s, self._tick)

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def received(self, count: int) -> None:
        """`count` bytes were put into the buffer that `get_buffer` gave."""
        self.service.received_bytes += count
        self._heard = True
        if self._probe is not None:
            self._answer_probe(True)
        self._take_frames(lambda: self._frames.received(count))
        if self._frames.is_waiting:
            self._pause()

    def _take_frames(self, read: Callable[[], list[Frame]]) -> None:
        try:
            frames = read()
        except WireError as error:
            self.abort("%s", error)
            return
        over_s = self._monotonic() + TURN_S
        for frame in frames:
            if frame.owned and not self._frames.is_receiving:
                self._memory.end_frame(self)
            if self.state in (State.FINISHING, State.CLOSED):
                return
            if self._paused:
                self._hold(frame)
            elif self._monotonic() >= over_s:
                self._pause()
                self._hold(frame)
                self._await_turn()
            else:
                self._take(frame)

    def _take(self, frame: Frame) -> None:
        try:
            self._handle(frame)
        except WireError as error:
            self.abort("%s", error)
        except Exception:
            log.exception("a command of %s failed inside the broker; its connection is closed", self)
            self.abort("internal error")
        if frame.owned and not self.is_closed:  # a SEND that is at work counts by itself
            self._give_back(self._memory.cost(len(frame.data)))

    def _hold(self, frame: Frame) -> None:
        """Keep a command that was received before its turn; no more is read meanwhile."""
        if not frame.owned:
            cost = self._memory.cost(len(frame.data))
            self._frame_cost += cost
            self._memory.take_frame(cost)
            frame = Frame(memoryview(bytearray(frame.data)), True)
        self._held.append(frame)

    def _take_held(self) -> None:
        """Take what is held, for a turn's time and as far as nothing pauses it again."""
        self._awaits_turn = True  # what is answered at once must not bring us here again
        over_s = self._monotonic() + TURN_S
        while self._held and not self._paused and self._monotonic() < over_s:
            self._take(self._held.popleft())
        self._awaits_turn = False
        if self._held or self._paused:
            self._await_turn()

    def _await_turn(self) -> None:
        """Go on with what is held once everybody else has had his turn."""
        if not self._awaits_turn:
            self._awaits_turn = True
            self.service.call_soon(self._have_turn)

    def _have_turn(self) -> None:
        self._awaits_turn = False
        self.resume_if_possible()

    def _admit(self, frame_bytes: int) -> bool:
        """Whether there is memory for a frame now; a small one is always received."""
        if frame_bytes <= SMALL_FRAME_BYTES_MAX:
            self._memory.take_frame(self._memory.cost(frame_bytes))
        elif self.state is State.CLOSED or not self._memory.begin_frame(self, frame_bytes):
            return False
        self._frame_cost += self._memory.cost(frame_bytes)
        return True

    def memory_granted(self, cost: int) -> None:
        """There is memory for the frame that waits for it."""
        self._frame_cost += cost
        self._take_frames(self._frames.go_on)
        if self._paused:
            self.resume_if_possible()

    def frame_filled(self) -> int:
        return self._frames.filled_bytes

    def is_paused(self) -> bool:
        return self._paused

    def cut_off(self, reason: str) -> None:
        self.abort("%s", reason)

    def _give_back(self, cost: int) -> None:
        self._frame_cost -= cost
        self._memory.give_frame(cost)

    def _handle(self, frame: Frame) -> None:
        kind, body, entry = read_command(frame.data)
        service = self.service
        command = service.commands.get(kind)
        if command is None:
            raise WireError(f"{BaseCommand.Type.Name(kind)} is not served here")
        if (self.state is State.EXPECTING_CONNECT) != (kind == BaseCommand.CONNECT):
            order = "before" if self.state is State.EXPECTING_CONNECT else "after"
            raise WireError(f"{BaseCommand.Type.Name(kind)} {order} CONNECT")
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
            self._run(self._finish(command, body, answer))

    async def _finish(
        self, command: "Command", body: Any, answer: Coroutine[Any, Any, BaseCommand | None]
    ) -> None:
        try:
            result = await answer
            if result is not None:
                self.send(result)
        except BrokerError as error:
            self._refuse(command, body, error)
        finally:
            self.ended_work(0)

    def _refuse(self, command: "Command", body: Any, error: BrokerError) -> None:
        answer = command.refuse(body, error)
        if answer is not None:
            self.send(answer)
        else:
            self.abort("%s cannot be served: %s", BaseCommand.Type.Name(command.kind), error)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.service.tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: "asyncio.Task[None]") -> None:
        self.service.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "a command of %s failed inside the broker; its connection is closed", self, exc_info=error
            )
            self.abort("internal error")

    # --- back-pressure -----------------------------------------------------------------------------------------------

    def began_work(self, size: int) -> None:
        """A command that holds `size` bytes is at work; `ended_work` follows, whatever becomes of the connection."""
        service = self.service
        self._at_work += 1
        self._at_work_bytes += size
        service.queued_bytes += size
        self._memory.take(size)
        if self._memory.is_over:
            self._memory.hold(self)
            self._pause()
        elif self._at_work > AT_WORK_MAX or self._at_work_bytes > AT_WORK_BYTES_MAX:
            self._pause()

    def ended_work(self, size: int) -> None:
        """What `began_work` began is answered, or never will be."""
        service = self.service
        self._at_work -= 1
        self._at_work_bytes -= size
        service.queued_bytes -= size
        self._memory.give(size)
        if self._paused:
            self.resume_if_possible()
        elif self.state is State.FINISHING and not self._at_work:
            self._take_leave()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._peer.pause_reading()

    def resume_if_possible(self) -> None:
        """Read on, if there is little enough at work and the peer takes its answers."""
        if self.state is State.FINISHING:
            if not self._at_work:
                self._take_leave()
        elif (
            self._paused
            and not self._awaits_turn
            and self.state is not State.CLOSED
            and self._untaken_answer_bytes <= UNTAKEN_ANSWER_BYTES_MAX
            and self._at_work <= AT_WORK_MAX // 2
            and self._at_work_bytes <= AT_WORK_BYTES_MAX // 2
        ):
            if self._memory.is_over:
                self._memory.hold(self)
                return
            self._paused = False
            self._memory.let_go(self)
            if self._held:
                self._take_held()
            if self._held or self._paused or self._frames.is_waiting:
                self._paused = True
            elif not self.is_closed:
                self._peer.resume_reading()

    @property
    def is_writable(self) -> bool:
        """Whether the peer takes what it is sent: who may choose sends only then, and asks again in between."""
        writable = (
            not self._peer_is_slow and self._out_bytes < UNSENT_BYTES_MAX and self.state is State.CONNECTED
        )
        if not writable:
            self._told_unwritable = True
        return writable

    def peer_is_slow(self, slow: bool) -> None:
        """The peer does not take what it is sent (True), or does again."""
        self._peer_is_slow = slow
        if not slow:
            self._untaken_answer_bytes = 0
            if self._paused:
                self.resume_if_possible()
            self._tell_writable()

    def _tell_writable(self) -> None:
        if self._told_unwritable and self.is_writable:
            self._told_unwritable = False
            for callback in list(self.when_writable):
                callback()

    # --- bytes out ---------------------------------------------------------------------------------------------------

    @property
    def service_url(self) -> str:
        """Where this client is told to connect."""
        endpoint = self.service.settings.endpoint
        host = endpoint.host or self.local_host
        return f"pulsar://[{host}]:{endpoint.port}" if ":" in host else f"pulsar://{host}:{endpoint.port}"

    @property
    def is_closed(self) -> bool:
        return self.state is State.CLOSED

    def send(self, command: BaseCommand) -> None:
        """Send a command that has to be sent; nothing happens when the connection has gone."""
        frame = frame_command(command)
        if self._peer_is_slow:
            self._untaken_answer_bytes += len(frame)
            if self._untaken_answer_bytes > UNTAKEN_ANSWER_BYTES_MAX:
                self._pause()
        self.send_parts([frame], len(frame))

    def send_parts(self, parts: list[Buffer], size: int) -> None:
        """Send `size` bytes in whole frames; no part may change afterwards, and none is copied unless it is small.

        They leave at the end of this turn of the event loop, with all else that was sent in it.
        """
        if self.state is State.CLOSED:
            return
        self._out += parts
        self._out_bytes += size
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.service.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self.state is State.CLOSED or not self._out:
            return
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        self.service.sent_bytes += size
        if len(out) > 1 and size < JOIN_PART_BYTES_MAX * len(out):
            out = [b"".join(out)]
        self._peer.send(out)
        self._tell_writable()

    # --- the connection's life ---------------------------------------------------------------------------------------

    def connected(self) -> None:
        """CONNECT was accepted."""
        self.state = State.CONNECTED

    def _tick(self) -> None:
        assert self._keep_alive is not None
        if self.state is State.EXPECTING_CONNECT:
            self.abort("no CONNECT within %g s", self.service.settings.keep_alive_s)
            return
        # While we read nothing its answer cannot be heard.
        if not self._heard and not self._paused and self.state is State.CONNECTED:
            self.abort("no answer to a PING within %g s", self.service.settings.keep_alive_s)
            return
        self._heard = False
        self.send_parts([_PING], len(_PING))
        self._keep_alive = self.service.clock.call_later(self.service.settings.keep_alive_s, self._tick)

    async def is_alive(self) -> bool:
        """Whether the client answers a PING within some seconds; if not, the connection is closed.

        A client whose network was cut comes back on another connection long before a keep-alive tick tells us so.
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

    def _give_up(self, probe: "asyncio.Future[bool]") -> None:
        if not probe.done():
            self.abort("no answer to a PING within %g s, and somebody asks for what it holds", PROBE_S)

    def finish(self) -> None:
        """Take no more commands; close the connection once what is at work is answered and everybody has been told."""
        if self.state is not State.CLOSED:
            self.state = State.FINISHING
            self._paused = True
            if not self._at_work:
                self._take_leave()

    def _take_leave(self) -> None:
        """Tell the client that its producers and consumers are closed, and close the connection."""
        for attached in self._attached():
            notice = attached.close_notice()
            if notice is not None:
                self.send(notice)
        self._flush()
        self.closed()
        self._peer.close()

    def abort(self, reason: str, *args: object) -> None:
        """Close the connection for a reason that the log is told."""
        if self.state is not State.CLOSED:
            log.warning("closing connection %s: " + reason, self, *args)
            self._flush()
            self.closed()
            self._peer.close()

    def closed(self) -> None:
        """The connection is gone: nothing that is still being worked on will be sent.

        It is worked on to its end all the same: stopped between a write of metadata and what follows from it, a command
        would leave behind a topic that is stored but unknown.
        """
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._answer_probe(False)
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None
        self._out.clear()
        self._held.clear()
        self.when_writable.clear()
        attached = self._attached()
        for table in (self.producers, self.consumers, self.watchers):
            table.clear()
        for one in attached:
            try:
                one.connection_lost()
            except Exception:
                log.exception("what %s had could not be let go of", self)
        self._frames.close()
        self._memory.let_go(self)
        self._memory.end_frame(self)
        self._give_back(self._frame_cost)
        self.service.sessions.discard(self)

    def _attached(self) -> list[Attached]:
        return [*self.producers.values(), *self.consumers.values(), *self.watchers.values()]

    def __str__(self) -> str:
        return f"{self.connection_id} from {self.client_host} (pulsar)"
