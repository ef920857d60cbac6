"""The listening sockets, and the open connections."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from magnetar.base.clock import Clock
from magnetar.base.errors import ConfigError
from magnetar.base.listeners import LOCALHOST
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.rare_line import RareLine
from magnetar.broker.quotas.admission import Admission
from magnetar.protocols.door import Session
from magnetar.server.certificates import Certificate
from magnetar.server.connection import Connection, ConnectionLimits
from magnetar.server.tls import TlsConnection
from magnetar.server.tls_handshakes import Handshakes

log = logging.getLogger(__name__)

MakeSession = Callable[[Connection, int], Session]  # with the connection's number


class Connections:
    """Every open connection of the process, and whether another one is allowed.

    Each accepted socket has a place, even while its client is still in the handshake of TLS. Names of listeners are
    in capitals.
    """

    def __init__(
        self, limits: ConnectionLimits, clock: Clock, memory: MemoryBudget, admission: Admission
    ) -> None:
        self._limits = limits
        self._memory = memory
        self._clock = clock
        self._admission = admission
        self._open: dict[Connection, str] = {}  # the name of each connection's listener
        self._sequence = 0
        self.refused_count = 0
        self._refusals = RareLine(log, clock)
        self._empty = asyncio.Event()  # set while no connection is open
        self.handshakes = Handshakes(clock, self._take_place, admission.give_place)

    def __len__(self) -> int:
        return len(self._open)

    def factory(self, listener: str, make_session: MakeSession) -> Callable[[], Connection]:
        """The function that a listener calls for each accepted socket."""

        def admit(connection: Connection) -> Session | None:
            if not self._take_place(listener, connection.client_host):
                return None
            return self._opened(connection, listener, make_session)

        return lambda: Connection(admit, self._forget, self._clock, self._limits, self._memory)

    def tls_factory(
        self, listener: str, make_session: MakeSession, certificate: Certificate
    ) -> Callable[[], TlsConnection]:
        """The same for a listener with TLS, which creates sessions only after the handshake."""

        def admit(connection: Connection) -> Session:
            return self._opened(connection, listener, make_session)

        def make() -> TlsConnection:
            connection = Connection(admit, self._forget, self._clock, self._limits, self._memory)
            return TlsConnection(connection, certificate.context, self.handshakes, listener)

        return make

    def _take_place(self, listener: str, client_host: str) -> bool:
        count = self._admission.count
        if count >= self._limits.connections_max:
            why: str | None = f"{count} are open, as many as the process may have"
        else:
            why = self._admission.take_place(listener, client_host)
        if why is not None:
            self._refused(why, client_host)
        return why is None

    def _opened(self, connection: Connection, listener: str, make_session: MakeSession) -> Session:
        self._open[connection] = listener
        self._empty.clear()
        self._sequence += 1
        return make_session(connection, self._sequence)

    def _refused(self, why: str, client_host: str) -> None:
        """Count a refusal, and log one now and then, however many there are."""
        self.refused_count += 1
        self._refusals.warn(f"refusing a connection from {client_host}: {why}", "were refused")

    def _forget(self, connection: Connection) -> None:
        listener = self._open.pop(connection, None)
        if listener is not None:
            self._admission.give_place(listener, connection.client_host)
            if not self._open:
                self._empty.set()

    async def drain(self, timeout_s: float) -> None:
        """Let requests in flight finish and close every connection; after `timeout_s`, cut off the remaining
        connections.
        """
        self.handshakes.abort_all()
        for connection in list(self._open):
            connection.close_when_idle()
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout_s)
        for connection in list(self._open):
            connection.abort()


def bind(host: str, port: int) -> list[socket.socket]:
    """Open the listening sockets for `host` and `port` (0: one free port for all).

    An empty host means every address, IPv4 and IPv6.  `localhost` means 127.0.0.1 and ::1, whatever the machine's
    table of hosts says about that name (RFC 6761, section 6.3).  A machine without IPv6 listens only on IPv4.

    Raises:
        ConfigError: the address does not belong to this machine, or another process listens there.
    """
    wanted = host.strip("[]") or None
    sockets: list[socket.socket] = []
    for family, kind, protocol, address in _addresses(wanted, port):
        try:
            listening = socket.socket(family, kind, protocol)
        except OSError:
            continue  # a machine without IPv6
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # With port 0 the kernel chooses a port for the first socket, and the others use it, too.
            chosen = sockets[0].getsockname()[1] if sockets else port
            listening.bind((address[0], chosen, *address[2:]))
            listening.listen(1024)
        except OSError as error:
            listening.close()
            if sockets and family == socket.AF_INET6 and _may_do_without(wanted, error):
                log.info("not listening on IPv6: %s", error.strerror)
                continue
            for other in sockets:
                other.close()
            raise ConfigError(f"cannot listen on {host or '*'}:{port}: {error.strerror}") from error
        sockets.append(listening)
    if not sockets:
        raise ConfigError(f"cannot listen on {host or '*'}:{port}: no usable address")
    return sockets


def _addresses(wanted: str | None, port: int) -> list[tuple[int, int, int, tuple[Any, ...]]]:
    """(family, type, protocol, address) of each socket to open for a host; None means every address."""
    names = ("127.0.0.1", "::1") if wanted is not None and wanted.lower() == LOCALHOST else (wanted,)
    found: list[tuple[int, int, int, tuple[Any, ...]]] = []
    for name in names:
        # An ASCII name is passed as bytes: for text, Python would load its tables of international names.
        host = name.encode() if name is not None and name.isascii() else name
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as error:
            reason = f"no address for this name ({error.strerror})"
            raise ConfigError(f"cannot listen on {wanted}: {reason}") from error
        except UnicodeError:  # a part of it is empty or too long for DNS
            raise ConfigError(f"cannot listen on {wanted}: no address has such a name") from None
        found += [(family, kind, protocol, address) for family, kind, protocol, _, address in rows]
    return list(dict.fromkeys(found))


def _may_do_without(wanted: str | None, error: OSError) -> bool:
    """Whether a server that listens on IPv4 may start without this IPv6 address."""
    if wanted is None:
        return True
    return wanted.lower() == LOCALHOST and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
