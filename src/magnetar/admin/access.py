"""The names and ports of this server over HTTP, the sites whose pages may use it, and the token of its worker.

`guard.py` checks the names of requests, and `routes/pipelines.py` the worker's token.

It imports nothing of the web framework, so that a server knows its names before that is loaded.
"""

import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from magnetar.base.listeners import LOCALHOST

EVERY: Final = "*"  # in a list of allowed names


class WebPorts(NamedTuple):
    """The ports of HTTP, without and with TLS; None if the server does not listen there."""

    http: int | None = None
    https: int | None = None


NO_PORTS: Final = WebPorts()


@dataclass(frozen=True, slots=True)
class Access:
    """Names are in lower case.  `hosts` are the server's names and those that the configuration adds; `origins` are
    in the form of browsers (`https://console.example.com`).  `asks_for_metrics`: if clients must log in, clients that
    read metrics must, too.  Without a `worker_token` no client counts as the worker.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    worker_token: str = field(default="", repr=False)
    asks_for_metrics: bool = False

    @classmethod
    def of(
        cls,
        hosts: Iterable[str],
        origins: Iterable[str] = (),
        worker_token: str = "",
        asks_for_metrics: bool = False,
    ) -> "Access":
        return cls(
            frozenset(_bare(host) for host in hosts if host),
            frozenset(origin.lower().rstrip("/") for origin in origins if origin),
            worker_token,
            asks_for_metrics,
        )

    def takes_host(self, header: str) -> bool:
        """Whether a Host header may name this server; its port does not matter."""
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        if EVERY in self.hosts or _bare(name) in self.hosts or _bare(name) == LOCALHOST:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def takes_origin(self, origin: str, own: str) -> bool:
        """Whether pages of `origin` may send requests; `own` is the server's origin by the request's Host."""
        return origin.lower() == own.lower() or EVERY in self.origins or origin.lower() in self.origins

    def is_worker(self, authorization: str) -> bool:
        """Whether an Authorization header has the worker's token, as `Bearer <token>`."""
        scheme, _, given = authorization.partition(" ")
        wanted = self.worker_token.encode()
        return (
            bool(wanted)
            and scheme.lower() == "bearer"
            and hmac.compare_digest(given.strip().encode(), wanted)
        )


def _bare(host: str) -> str:
    return host.lower().removeprefix("[").removesuffix("]").rstrip(".")
