"""A protocol of lines over topics, for `nc` and small devices.

PUT <topic> <text>       ->  OK <offset>
GET <topic> <offset>     ->  MESSAGE <offset> <text>   or   NONE
anything that fails      ->  ERROR <code> <sentence>
"""

import asyncio
from collections.abc import Sequence

from magnetar.base.errors import BrokerError
from magnetar.base.settings import ServerSettings
from magnetar.broker.cluster.model import Endpoint
from magnetar.broker.security.model import ANONYMOUS, Caller
from magnetar.broker.usecases.cases import UseCases
from magnetar.protocols.backpressure import Backpressure
from magnetar.protocols.door import AcceptedPeer, Door, DoorContext, DoorListener, Session
from magnetar.protocols.outbox import Outbox, Place
from magnetar.protocols.traffic import Traffic

LINE_BYTES_MAX = 64 << 10


class LineSession:
    """One connection: its lines are answered one after the other."""

    def __init__(self, cases: UseCases, traffic: Traffic, peer: AcceptedPeer) -> None:
        self._cases, self._peer = cases, peer
        self._caller = Caller(ANONYMOUS, peer.client_host)
        self._line, self._filled = memoryview(bytearray(LINE_BYTES_MAX)), 0
        # With no request allowed beside the one at work nothing is read: a fast client waits for a slow disk.
        self._backpressure = Backpressure(peer, traffic, requests_max=0, bytes_max=LINE_BYTES_MAX)
        self._outbox: Outbox[Place] = Outbox(peer, traffic, self._backpressure)
        self.peer_is_slow = self._outbox.peer_is_slow
        self._answering: asyncio.Task[None] | None = None

    def get_buffer(self) -> memoryview:
        return self._line[self._filled :]

    def received(self, count: int) -> None:
        self._filled += count
        *lines, rest = bytes(self._line[: self._filled]).split(b"\n")
        self._line[: len(rest)], self._filled = rest, len(rest)
        if self._filled == LINE_BYTES_MAX:
            self._peer.close()  # a line that long is none of this protocol's
        elif lines:
            self._answering = asyncio.get_running_loop().create_task(self._answer_all(lines))
            self._backpressure.began(LINE_BYTES_MAX)

    async def _answer_all(self, lines: Sequence[bytes]) -> None:
        try:
            for line in lines:
                answer = await self._answer(line.decode("utf-8", "replace")) + b"\n"
                self._outbox.put([answer], len(answer))
        finally:
            self._outbox.flush()
            self._backpressure.ended(LINE_BYTES_MAX)

    async def _answer(self, line: str) -> bytes:
        messages = self._cases.messages
        try:
            match line.rstrip("\r").split(" ", 2):
                case ["PUT", topic, text]:
                    return b"OK %d" % await messages.publish(self._caller, topic, text.encode())
                case ["GET", topic, offset] if offset.isdecimal():
                    found = await messages.read(self._caller, topic, 0, int(offset), messages_max=1)
                    return b"MESSAGE %d %b" % (found[0].offset, found[0].value or b"") if found else b"NONE"
        except BrokerError as error:
            return f"ERROR {error.code} {error}".encode()
        return b"ERROR BAD_REQUEST say PUT <topic> <text> or GET <topic> <offset>"

    def finish(self) -> None:
        self._backpressure.finish(self._peer.close)

    def closed(self) -> None:
        self._backpressure.close()
        self._outbox.close()


class LineDoor(Door):
    name = "line"
    _cases: UseCases
    _traffic: Traffic

    def __init__(self, settings: ServerSettings) -> None:
        options = settings.door_options.get(self.name, {})
        self._host, self._port = options.get("host", "localhost"), int(options.get("port", "7000"))

    def listeners(self) -> Sequence[DoorListener]:
        return [DoorListener(self.name, self._host, self._port, self.name)]

    def advertised(self, listener: DoorListener, port: int) -> Endpoint:
        return Endpoint("", port)

    def open(self, context: DoorContext) -> None:
        self._cases, self._traffic = context.cases, Traffic(context.memory, context.clock, context.turn_end)

    def connected(self, listener: DoorListener, peer: AcceptedPeer, connection_id: int) -> Session:
        return LineSession(self._cases, self._traffic, peer)
