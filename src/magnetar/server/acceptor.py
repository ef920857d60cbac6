"""Accepts connections at the rates that are allowed (`broker/quotas/admission.py`), before any object exists for
them.

asyncio's servers accept every connection.  Here a listener that is over its rate pauses: its clients wait in the
kernel's queue and cost nothing, and when that queue is full, the kernel refuses more.  The address of a client is
known only after its connection was accepted.  If the address is over its rate, the acceptor holds the socket without
reading or answering, and closes it later, so that the client does not connect again at once.  If the process has no
more file descriptors, a listener tries again after a second.
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

ACCEPTED_AT_ONCE: Final = 16  # by one listener in one pass of the loop: takes less than 1 ms
RETRY_S: Final = 1.0
HELD_MAX: Final = 256  # held sockets; for one more, the acceptor closes the one held longest

MakeProtocol = Callable[[], asyncio.BaseProtocol]


class Acceptors:
    """The part that all listeners share: see the module's text."""

    def __init__(self, clock: Clock, admission: Admission, held_max: int = HELD_MAX) -> None:
        self.clock = clock
        self.admission = admission
        self.failures = RareLine(log, clock)
        self._tasks = Tasks(log)
        self._held: OrderedDict[socket.socket, TimerHandle] = OrderedDict()
        self._held_max = held_max

    def listen(self, name: str, listening: socket.socket, make_protocol: MakeProtocol) -> "Acceptor":
        """Start to accept connections of a listener; `name` is its name in capitals."""
        return Acceptor(self, name, listening, make_protocol)

    def serve(self, accepted: socket.socket, make_protocol: MakeProtocol) -> None:
        """Connect an accepted socket to a new protocol."""
        accepted.setblocking(False)
        self._tasks.spawn("accept", self._connect(accepted, make_protocol))

    async def _connect(self, accepted: socket.socket, make_protocol: MakeProtocol) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make_protocol, accepted)
        except OSError:  # the client has disconnected
            accepted.close()

    def hold(self, accepted: socket.socket, seconds: float) -> None:
        """Keep a socket for this time without reading from it, then close it."""
        if len(self._held) >= self._held_max:
            self._let_go(next(iter(self._held)))
        self._held[accepted] = self.clock.call_later(seconds, self._let_go, accepted)

    def _let_go(self, held: socket.socket) -> None:
        self._held.pop(held).cancel()
        held.close()

    async def close(self) -> None:
        """Close the held sockets; call it after all listeners have closed."""
        for held in list(self._held):
            self._let_go(held)
        await self._tasks.ended()


class Acceptor:
    """Accepts the connections of one listening socket."""

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
        """Accept waiting connections; the loop calls it while there are any."""
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
        """Stop accepting, and close the listening socket."""
        if self._timer is not None:
            self._timer.cancel()
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
