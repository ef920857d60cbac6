"""The listening sockets of HTTP, without and with TLS."""

import contextlib
import socket
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.admin.access import WebPorts
from magnetar.admin.serving import Secured
from magnetar.base.clock import Clock
from magnetar.base.settings_network import NetworkSettings
from magnetar.server.certificates import Certificates
from magnetar.server.https import Https
from magnetar.server.layer_settings import asks_for_certificate
from magnetar.server.listeners import bind


class HttpPorts(NamedTuple):
    """The sockets `plain` and `with_tls`; `https` makes the connections of the latter, and is None without them."""

    plain: list[socket.socket]
    with_tls: list[socket.socket]
    https: Https | None

    @property
    def all(self) -> list[socket.socket]:
        return [*self.plain, *self.with_tls]

    @property
    def numbers(self) -> WebPorts:
        return WebPorts(_number(self.plain), _number(self.with_tls))

    @property
    def secured(self) -> Secured | None:
        return None if self.https is None else Secured(self.with_tls, self.https.factory)

    @property
    def tls_failure_count(self) -> int:
        return 0 if self.https is None else self.https.handshakes.failed_count

    def open_to_all(self, network: NetworkSettings) -> list[socket.socket]:
        """The sockets where a client without a certificate may ask, if clients need not log in."""
        return self.plain if asks_for_certificate(network.https_tls) else self.all


def bind_http(
    network: NetworkSettings,
    certificates: Certificates,
    clock: Clock,
    stack: contextlib.ExitStack | contextlib.AsyncExitStack,
) -> HttpPorts:
    """Bind the ports that the settings want; `stack` closes the sockets.

    Raises:
        ConfigError: the address does not belong to this machine, another process listens there, or a file of the
            certificate cannot be used.
    """
    plain: list[socket.socket] = []
    if network.http_port is not None:
        plain = _bound(network.http_host, network.http_port, stack)
    if network.https_tls is None or network.https_port is None:
        return HttpPorts(plain, [], None)
    https = Https(certificates.of(network.https_tls), clock)
    return HttpPorts(plain, _bound(network.http_host, network.https_port, stack), https)


def _bound(
    host: str, port: int, stack: contextlib.ExitStack | contextlib.AsyncExitStack
) -> list[socket.socket]:
    sockets = bind(host, port)
    for listening in sockets:
        stack.callback(listening.close)
    return sockets


def _number(sockets: Sequence[socket.socket]) -> int | None:
    return sockets[0].getsockname()[1] if sockets else None
