"""One client's Kafka connection, without its socket: bytes in, requests dispatched, responses out in order.

Requests are handled as soon as they are complete, each one's stage one in the order of arrival (registry.py
says what that is); their responses leave in the same order, whenever they are ready.  Responses that become
ready together leave in one write.  Reading pauses while too many requests or request bytes are unanswered, and while
the peer does not take what it is sent.  While a request waits or is at work in a coroutine, none behind it is
handled: a client that asks for a thousand large fetches at once has one of them in memory, and one that asks for a
thousand that wait has one waiting.  What was received before its turn is held until then, and reading pauses with it.
A turn is a few milliseconds of work: 64 KiB can be 1,500 requests of which each describes a large topic.

Trouble with the peer's bytes ends the connection with one log line; a request for an unknown API or version
too, except ApiVersions, whose unknown versions are answered in version 0 so that newer clients can step down
(KIP-35).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.errors import WireError
from magnetar.protocols.kafka.large import LARGE_REQUEST_BYTES, Encoded, Large
from magnetar.protocols.kafka.peer import Peer
from magnetar.protocols.kafka.registry import Api, Deferred, RequestContext, is_coroutine, resolved
from magnetar.wire.framing import SMALL_FRAME_BYTES_MAX, Frame, FrameReader
from magnetar.wire.kafka.header import API_VERSIONS_KEY, decode_request_header, encode_response_header
from magnetar.wire.kafka.runtime import Buffer

if TYPE_CHECKING:
    from magnetar.broker.cluster.nodes import Node
    from magnetar.protocols.kafka.service import KafkaService

log = logging.getLogger(__name__)

UNANSWERED_REQUESTS_MAX: Final = 2_000
UNANSWERED_BYTES_MAX: Final = 64 << 20
PRODUCE_KEY: Final = 0
TURN_S: Final = 0.005  # of work on requests of one connection that came together; then all others have a turn
# What a request's objects occupy besides its bytes while it is not answered: an element of 33 bytes in a Fetch becomes
# 500, and there are no more of them than `REQUEST_ELEMENTS_MAX`.  Produce's are few and gone when it waits; a large
# request waits until there is room for them.
OBJECTS_RATIO: Final = 15
OBJECTS_BYTES_MAX: Final = 100 << 20
JOIN_BYTES_MAX: Final = (
    16 * 1024
)  # smaller responses are joined into one piece, cheaper than a vector of crumbs

_pack_size: Final = Struct(">i").pack


class _Slot:
    """The place of one request in the order of responses."""

    __slots__ = ("deferred", "parts", "request_bytes", "response_bytes")

    def __init__(self) -> None:
        self.request_bytes = 0  # and its objects
        self.response_bytes = 0  # while a large one waits for its turn
        self.deferred: Deferred | None = None  # what will resolve it, while that is not known
        self.parts: list[Buffer] | None = None  # the encoded response; empty when none is due


class KafkaSession:
    """See the module's text."""

    def __init__(
        self,
        service: "KafkaService",
        peer: Peer,
        node: "Node",
        listener_name: str,
        connection_id: int,
        client_host: str,
        local_host: str,
    ) -> None:
        self._service = service
        self._peer = peer
        self._node = node
        self._listener_name = listener_name
        self._connection_id = connection_id
        self._client_host = client_host
        self._local_host = local_host
        self._context = self._context_of(0, None, False)
        self._memory = service.memory
        self._monotonic = service.broker.clock.monotonic
        self._frames = FrameReader(
            service.scratch, service.arena.take, service.settings.request_bytes_max, self._admit
        )
        self._frame_cost = 0  # what frames that are being received or held count in the budget
        self._held_cost = 0  # of it, copies of what was received with others
        self._slots: deque[_Slot] = deque()
        self._unanswered_bytes = 0
        self._flush_scheduled = False
        self._paused = False
        self._peer_is_slow = False
        self._closed = False
        self._finishing = False  # graceful stop
        # A request that all others wait for, until its response was sent or it only waits for the disk.
        self._at_work: _Slot | None = None
        self._stage_one: asyncio.Task[None] | None = None  # of the latest request that has to wait in it
        self._waits_for_room: asyncio.Task[Any] | None = None  # a large request, for its objects
        self._held: deque[Frame] = deque()  # received before reading paused
        self._awaits_turn = False
        self.get_buffer = self._frames.get_buffer

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def received(self, count: int) -> None:
        """`count` bytes were put into the buffer that `get_buffer` gave."""
        self._service.received_bytes += count
        try:
            frames = self._frames.received(count)
        except WireError as error:
            self._abort("%s", error)
            return
        if frames and frames[0].owned and not self._frames.is_receiving:
            self._memory.end_frame(self)
        over_s = self._monotonic() + TURN_S
        is_over = self._memory.is_over  # it is asked again by each request that is handled
        for position, frame in enumerate(frames):
            if self._closed:
                return
            has_turn = self._monotonic() < over_s
            if self._paused or self._at_work is not None or is_over or not has_turn:
                self._hold(frames[position:])
                if not has_turn:
                    self._await_turn()
                break
            self._handle(frame)
        if self._frames.is_waiting and not self._paused:
            self._pause()

    def _admit(self, frame_bytes: int) -> bool:
        """Whether there is memory for a frame now; a small one is always received."""
        if frame_bytes <= SMALL_FRAME_BYTES_MAX:
            self._charge(self._memory.cost(frame_bytes))
            return True
        if self._closed or not self._memory.begin_frame(self, frame_bytes):
            return False
        self._frame_cost += self._memory.cost(frame_bytes)
        return True

    def _charge(self, cost: int) -> None:
        self._frame_cost += cost
        self._memory.take_frame(cost)

    def _discharge(self, cost: int) -> None:
        self._frame_cost -= cost
        self._memory.give_frame(cost)

    def memory_granted(self, cost: int) -> None:
        """There is memory for the frame that waits for it."""
        self._frame_cost += cost
        try:
            frames = self._frames.go_on()
        except WireError as error:
            self._abort("%s", error)
            return
        if frames and not self._frames.is_receiving:
            self._memory.end_frame(self)
        self._hold(frames)
        self.resume_if_possible()

    def frame_filled(self) -> int:
        return self._frames.filled_bytes

    def is_paused(self) -> bool:
        return self._paused

    def cut_off(self, reason: str) -> None:
        self._abort("%s", reason)

    def _hold(self, frames: list[Frame]) -> None:
        """Keep requests that were received before their turn; no more is read meanwhile."""
        # Not before one has come: who waits for his answer costs no calls, and is missed at once when he hangs up.
        if not self._paused:
            self._pause()
            if self._memory.is_over:
                self._memory.hold(self)
        borrowed = [frame.data for frame in frames if not frame.owned]
        if borrowed:
            # One copy for all of them, and still lent: who keeps a small request must not keep its neighbours.
            copies = memoryview(b"".join(borrowed))
            cost = self._memory.cost(len(copies))
            self._held_cost += cost
            self._charge(cost)
            position = 0
            for frame in frames:
                if not frame.owned:
                    end = position + len(frame.data)
                    frame = Frame(copies[position:end], False)
                    position = end
                self._held.append(frame)
        else:
            self._held += frames

    def _await_turn(self) -> None:
        """Go on with what is held once everybody else has had his turn."""
        if not self._awaits_turn:
            self._awaits_turn = True
            self._service.call_soon(self._have_turn)

    def _have_turn(self) -> None:
        self._awaits_turn = False
        self.resume_if_possible()

    def _handle(self, frame: Frame) -> None:
        try:
            self._dispatch(frame)
        except WireError as error:
            self._abort("%s", error)
        except Exception:
            log.exception("a request of %s failed inside the broker; its connection is closed", self)
            self._abort("internal error")
        if frame.owned and not self._closed:
            self._discharge(self._memory.cost(len(frame.data)))

    def _dispatch(self, frame: Frame) -> None:
        service = self._service
        header = decode_request_header(frame.data, service.flexible_since)
        api = service.apis.get(header.api_key)
        version = header.api_version
        if api is None:
            raise WireError(f"no API with key {header.api_key} is served here")
        if not api.min_version <= version <= api.max_version:
            if api.key != API_VERSIONS_KEY:
                raise WireError(
                    f"{api.name} v{version} is not served; v{api.min_version} to v{api.max_version} are"
                )
            answer = service.unsupported_api_versions()
            version = 0
        elif len(frame.data) > LARGE_REQUEST_BYTES and api.key != PRODUCE_KEY:
            data = frame.data if frame.owned else memoryview(bytes(frame.data))
            answer = self._answer_large(api, version, header.client_id, data, header.position)
        else:
            request = api.decode_request(version, frame.data, header.position)
            context = self._context
            if (
                version != context.api_version
                or frame.owned != context.owns_memory
                or header.client_id != context.client_id
            ):
                context = self._context = self._context_of(version, header.client_id, frame.owned)
            service.request_counts[api.key] += 1
            answer = api.handle(context, request)
        if answer is None:
            return
        size = len(frame.data)
        if api.key != PRODUCE_KEY and size <= LARGE_REQUEST_BYTES:
            size *= 1 + OBJECTS_RATIO
        slot = _Slot()
        self._slots.append(slot)
        complete = partial(self._complete, slot, api, version, header.correlation_id)
        if not isinstance(answer, Deferred):
            self._count(slot, size)
            if is_coroutine(answer):
                self._at_task(self._finish(answer, complete))
                self._at_work = slot
            else:
                complete(answer)
        else:
            if answer.keeps_request:
                self._count(slot, size)
            if answer.mutes or answer.stage_one is not None:
                self._at_work = slot
            slot.deferred = answer
            answer.attach(complete)
            if answer.stage_one is not None:
                self._stage_one = self._at_task(self._finish_stage_one(slot, answer.stage_one))
        if not self._paused and (
            len(self._slots) > UNANSWERED_REQUESTS_MAX
            or self._unanswered_bytes > UNANSWERED_BYTES_MAX
            or self._memory.is_over
        ):
            if self._memory.is_over:
                self._memory.hold(self)
                service.answer_waiting_fetches()
            self._pause()

    def _context_of(self, version: int, client_id: str | None, owns_memory: bool) -> RequestContext:
        service = self._service
        return RequestContext(
            service,
            service.broker,
            self._node,
            self._listener_name,
            self._connection_id,
            self._client_host,
            self._local_host,
            version,
            client_id,
            owns_memory,
        )

    def _pause(self) -> None:
        self._paused = True
        self._peer.pause_reading()

    def _at_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks = self._service.tasks
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def _finish_stage_one(self, slot: _Slot, rest: Callable[[], Awaitable[None]]) -> None:
        try:
            await rest()
        except Exception:
            log.exception("a request of %s failed inside the broker; its connection is closed", self)
            self._abort("internal error")
        if self._at_work is slot:
            self._at_work = None
            self.resume_if_possible()

    async def _answer_large(
        self, api: Api, version: int, client_id: str | None, data: memoryview, position: int
    ) -> object:
        """Answer a request of many elements: read on a thread, handled in pieces where it can be cut, and encoded."""
        service = self._service
        slot = self._at_work
        if slot is None:
            return None  # the client has gone
        objects_bytes = min(len(data) * OBJECTS_RATIO, OBJECTS_BYTES_MAX)
        self._waits_for_room = asyncio.current_task()
        async with self._memory.objects(len(data), objects_bytes):
            self._waits_for_room = None
            request = await service.large.decode(partial(api.decode_request, version, data, position))
            if self._closed:
                return None
            service.request_counts[api.key] += 1
            context = self._context_of(version, client_id, True)
            if api.pieces is not None:
                ask = partial(api.handle, context)
                answer: Any = await service.large.in_pieces(ask, request, api.pieces)
            else:
                answer = api.handle(context, request)
            if not isinstance(answer, Deferred):
                return await self._encoded(api, version, await answer if is_coroutine(answer) else answer)
        # It may wait for long: others of its kind shall not wait for that.
        slot.deferred = answer
        if answer.keeps_request:
            self._count(slot, objects_bytes)
            if self._memory.is_over:
                service.answer_waiting_fetches()
        else:
            del request, data
            self._lighten(slot)
        return await self._encoded(api, version, await resolved(answer))

    async def _encoded(self, api: Api, version: int, answer: object) -> Encoded | None:
        if self._closed:
            return None
        response = answer.response if isinstance(answer, Large) else answer
        return await self._service.large.encode(api.encode_response, version, response)

    async def _finish(self, answer: Awaitable[object], complete: Callable[[object], None]) -> None:
        try:
            complete(await answer)
        except WireError as error:
            self._abort("%s", error)
        except Exception:
            log.exception("a request of %s failed inside the broker; its connection is closed", self)
            self._abort("internal error")

    # --- responses out -----------------------------------------------------------------------------------------------

    def _complete(self, slot: _Slot, api: Api, version: int, correlation_id: int, response: object) -> None:
        slot.deferred = None  # it knows this slot: a cycle would leave every request to the collector
        if self._closed:
            return
        if isinstance(response, Large):
            complete = partial(self._complete, slot, api, version, correlation_id)
            encoding = self._service.large.encode(api.encode_response, version, response.response)
            self._at_task(self._finish(encoding, complete))
            return
        if response is None:
            slot.parts = []
        else:
            parts: list[Buffer] = [b""]
            if isinstance(response, Encoded):
                parts += response.parts
            else:
                api.encode_response(version, response, parts)
            size = sum(map(len, parts))
            header = encode_response_header(api.key, version, correlation_id, self._service.flexible_since)
            parts[0] = _pack_size(len(header) + size) + header
            self._service.sent_bytes += size
            if size <= JOIN_BYTES_MAX:
                parts = [b"".join(parts)]
            else:
                slot.response_bytes = size
                self._memory.take(size)  # until its turn comes; then the socket counts
            slot.parts = parts
        if not self._flush_scheduled and self._slots and self._slots[0].parts is not None:
            self._flush_scheduled = True
            self._service.call_soon(self._flush)

    def _flush(self) -> None:
        """Send every response whose turn it is, in one write."""
        self._flush_scheduled = False
        if self._closed:
            return
        slots = self._slots
        out: list[Buffer] = []
        request_bytes = response_bytes = 0
        while slots and (parts := slots[0].parts) is not None:
            out.extend(parts)
            slot = slots.popleft()
            request_bytes += slot.request_bytes
            response_bytes += slot.response_bytes
            if slot is self._at_work:
                self._at_work = None
        self._give(request_bytes, response_bytes)
        if out:
            self._peer.send(out)
        if self._finishing:
            if not slots:
                self._peer.close()
        else:
            self.resume_if_possible()

    def _count(self, slot: _Slot, size: int) -> None:
        slot.request_bytes += size
        self._unanswered_bytes += size
        self._service.queued_bytes += size
        self._memory.take(size)

    def _lighten(self, slot: _Slot) -> None:
        """Nothing of the request is kept any more."""
        self._give(slot.request_bytes, 0)
        slot.request_bytes = 0

    def _give(self, request_bytes: int, response_bytes: int) -> None:
        """What slots counted is gone."""
        self._unanswered_bytes -= request_bytes
        self._service.queued_bytes -= request_bytes
        self._memory.give(request_bytes + response_bytes)

    def resume_if_possible(self) -> None:
        """Read on, if there is little enough to answer and the peer takes it."""
        if (
            self._paused
            and not self._closed
            and not self._awaits_turn
            and not self._finishing
            and not self._peer_is_slow
            and self._at_work is None
            and len(self._slots) <= UNANSWERED_REQUESTS_MAX // 2
            and self._unanswered_bytes <= UNANSWERED_BYTES_MAX // 2
        ):
            if self._memory.is_over:
                self._memory.hold(self)
                return
            self._paused = False
            self._memory.let_go(self)
            over_s = self._monotonic() + TURN_S
            while self._held and not self._paused and not self._closed and self._at_work is None:
                if self._monotonic() >= over_s:
                    self._await_turn()
                    break
                self._handle(self._held.popleft())
            if not self._held and not self._closed:
                self._discharge(self._held_cost)
                self._held_cost = 0
            if self._held or self._frames.is_waiting:
                self._paused = True
            elif not self._paused and not self._closed:
                self._peer.resume_reading()

    # --- the connection's life ---------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Take no more requests; close the connection once every response due has been sent."""
        self._finishing = True
        self._paused = True
        if not self._slots:
            self._peer.close()
        for slot in list(self._slots):
            if slot.deferred is not None and slot.deferred.hurry is not None:
                slot.deferred.hurry()

    def peer_is_slow(self, slow: bool) -> None:
        """The peer does not take what it is sent (True), or does again."""
        self._peer_is_slow = slow
        if slow and not self._paused:
            self._pause()
        elif not slow:
            self.resume_if_possible()

    def _abort(self, reason: str, *args: object) -> None:
        log.warning("closing connection %s: " + reason, self, *args)
        self.closed()
        self._peer.close()

    def closed(self) -> None:
        """The connection is gone: nothing that is still being worked on will be sent.

        It is worked on to its end all the same.  Stopped between a write of metadata and what follows from
        it, a request would leave behind a topic that is stored but unknown, and so can neither be used nor be
        made.  Stage one is the exception: what has not taken effect by then never does.
        """
        if self._closed:
            return
        self._closed = True
        self._held.clear()
        self._frames.close()
        self._memory.end_frame(self)
        self._memory.give_frame(self._frame_cost)
        if self._stage_one is not None:
            self._stage_one.cancel()
        if self._waits_for_room is not None:
            self._waits_for_room.cancel()
            self._waits_for_room = (
                None  # it knows this session: a cycle would leave the request to the collector
            )
        self._at_work = None
        while self._slots:
            slot = self._slots.popleft()
            self._give(slot.request_bytes, slot.response_bytes)
            if slot.deferred is not None and slot.deferred.abandon is not None:
                slot.deferred.abandon()
        self._memory.let_go(self)

    def __str__(self) -> str:
        return f"{self._connection_id} from {self._client_host} on {self._listener_name}"
