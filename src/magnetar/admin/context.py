"""What every admin route can use: the use cases, their caller, and the addresses for clients."""

import asyncio
from dataclasses import dataclass, field
from typing import Final, cast

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from magnetar.admin.access import NO_PORTS, Access, WebPorts
from magnetar.admin.in_flight import AppendedBytes, SentBytes
from magnetar.admin.peek import Bodies
from magnetar.base.lane import Lane
from magnetar.base.pulsar_listeners import PULSAR, PULSAR_TLS
from magnetar.broker.cluster.model import Endpoint, PulsarEndpoints, url_of
from magnetar.broker.security.model import ANONYMOUS, Caller, Origin
from magnetar.broker.usecases.cases import UseCases

CALLER: Final = "magnetar.caller"  # in a request's scope: its caller (`login.py`)
DOOR: Final = "http"  # its name in the audit log


@dataclass(frozen=True, slots=True)
class AdminContext:
    """`pulsar` has the addresses for Pulsar clients, `web` the ports of HTTP, and `access` the server's names.
    `bodies` counts the large answers that are being sent; `appended` and `sent` count the records.  Long lists are
    encoded in `lane`, one at a time (`one_list`).
    """

    cases: UseCases
    pulsar: PulsarEndpoints
    access: Access
    web: WebPorts = NO_PORTS
    bodies: Bodies = field(default_factory=Bodies)
    appended: AppendedBytes = field(default_factory=AppendedBytes)
    sent: SentBytes = field(default_factory=SentBytes)
    lane: Lane = field(default_factory=Lane)
    one_list: asyncio.Lock = field(default_factory=asyncio.Lock)

    def service_url(self, request: Request) -> str:
        """The URL to which the Pulsar client that sent this request connects; empty if there is no listener."""
        return self._service_url(PULSAR, request)

    def tls_service_url(self, request: Request) -> str:
        """The same over TLS."""
        return self._service_url(PULSAR_TLS, request)

    def _service_url(self, scheme: str, request: Request) -> str:
        own = self.pulsar.of("")
        assert own is not None, "clients that name no listener have the server's own addresses"
        return url_of(own, scheme, host_of(request)) or ""

    def web_urls(self, request: Request) -> tuple[str, str]:
        """The URLs of this server without and with TLS, with the host that the client used; empty if there is no such
        port.
        """
        if request.url.scheme == "https" and self.web.https is None:  # a proxy terminates TLS for this server
            return web_url(request), ""
        return self._web_url("http", self.web.http, request), self._web_url("https", self.web.https, request)

    def _web_url(self, scheme: str, port: int | None, request: Request) -> str:
        if request.url.scheme == scheme:
            return web_url(request)
        return "" if port is None else Endpoint("", port).url(scheme, host_of(request))


def host_of(request: Request) -> str:
    """The host to which the client has connected."""
    return request.url.hostname or "localhost"


def context_of(request: Request) -> AdminContext:
    return cast(AdminContext, request.app.state.admin)


def cases_of(request: Request) -> UseCases:
    return context_of(request).cases


def stranger_of(scope: Scope, headers: Headers) -> Caller:
    """The caller of a request whose client is not known yet."""
    client = scope.get("client")
    origin = Origin(DOOR, scope.get("scheme", DOOR), headers.get("user-agent", ""))
    return Caller(ANONYMOUS, client[0] if client else "", origin)


def caller_of(request: Request) -> Caller:
    """The caller that has logged in, or an anonymous one."""
    known: Caller | None = request.scope.get(CALLER)
    return stranger_of(request.scope, request.headers) if known is None else known


def known_caller_of(request: Request) -> Caller | None:
    """As `caller_of`; None for one that has not logged in where clients have to."""
    if CALLER not in request.scope and cases_of(request).logins.are_required:
        return None
    return caller_of(request)


def web_url(request: Request) -> str:
    """The URL of this server, with the host that the client used."""
    return f"{request.url.scheme}://{request.url.netloc}"
