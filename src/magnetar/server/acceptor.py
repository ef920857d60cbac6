"""Accepts connections as fast as they may come (`broker/quotas/admission.py`), before anything is made for them.

asyncio's servers accept every connection.  Here a listener that is over its rate pauses: clients wait in the kernel's
queue and cost nothing; when that queue is full, the kernel refuses them.  An address is known only after a connection
was accepted: if the address is over its rate, the acceptor holds the socket without reading or answering, and closes it
later, so that the client does not come back at once.  A process that has no more file
descriptors tries again after a second.
"""

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.rare_line import RareLine
from magnetar.base.tasks import Tasks
from magnetar.broker.quotas.admission import Admission

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE: Final = 16  # by one listener in one pass of the loop: less than a millisecond
RETRY_S: Final = 1.0
HELD_MAX: Final = 256  # sockets that are held; past it the one held longest is closed

MakeProtocol = Callable[[], asyncio.BaseProtocol]


class Acceptors:
    """What all listeners share: see the module's text."""

    def __init__(self, clock: Clock, admission: Admission, held_max: int = HELD_MAX) -> None:
        self.clock = clock
        self.admission = admission
        self.failures = RareLine(log, clock)
        self._tasks = Tasks(log)
        self._held: OrderedDict[socket.socket, TimerHandle] = OrderedDict()
        self._held_max = held_max

    def listen(self, name: str, listening: socket.socket, make_protocol: MakeProtocol) -> "Acceptor":
        """Accept connections of a listener, which is known by its name in capitals, from now on."""
        return Acceptor(self, name, listening, make_protocol)

    def serve(self, accepted: socket.socket, make_protocol: MakeProtocol) -> None:
        """A client is connected to a protocol of its own."""
        accepted.setblocking(False)
        self._tasks.spawn("accept", self._connect(accepted, make_protocol))

    async def _connect(self, accepted: socket.socket, make_protocol: MakeProtocol) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make_protocol, accepted)
        except OSError:  # its client has gone
            accepted.close()

    def hold(self, accepted: socket.socket, seconds: float) -> None:
        """Close it after that time, and leave it alone until then."""
        if len(self._held) >= self._held_max:
            self._let_go(next(iter(self._held)))
        self._held[accepted] = self.clock.call_later(seconds, self._let_go, accepted)

    def _let_go(self, held: socket.socket) -> None:
        self._held.pop(held).cancel()
        held.close()

    async def close(self) -> None:
        """All listeners have closed."""
        for held in list(self._held):
            self._let_go(held)
        await self._tasks.ended()


class Acceptor:
    """Of one listening socket."""

    def __init__(
        self, shared: Acceptors, name: str, listening: socket.socket, make_protocol: MakeProtocol
    ) -> None:
        self._shared = shared
        self._name = name
        self._listening = listening
        self._make_protocol = make_protocol
        self._timer: TimerHandle | None = None
        listening.setblocking(False)
        self._go_on()

    def _go_on(self) -> None:
        self._timer = None
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _pause(self, seconds: float) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        self._timer = self._shared.clock.call_later(seconds, self._go_on)

    def _accept(self) -> None:
        """Called while clients wait to be accepted."""
        admission = self._shared.admission
        for _ in range(ACCEPTED_AT_ONCE):
            owed_s = admission.owed_s(self._name)
            if owed_s:
                self._pause(owed_s)
                return
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._shared.failures.warn(f"cannot accept connections now: {error.strerror}", "failed")
                self._pause(RETRY_S)
                return
            held_s = admission.came(self._name, str(address[0]))
            if held_s:
                self._shared.hold(accepted, held_s)
            else:
                self._shared.serve(accepted, self._make_protocol)

    def close(self) -> None:
        """Accept nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
