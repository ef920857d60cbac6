"""By which names and ports this server is asked over HTTP, whose pages may ask, and how its worker is known.

`guard.py` holds requests to the names, `routes/pipelines.py` the worker to its token.

Imports nothing of the web framework, so that a server knows its names before that is loaded.
"""

import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from magnetar.base.listeners import LOCALHOST

EVERY: Final = "*"  # in a list of what is allowed


class WebPorts(NamedTuple):
    """The ports that HTTP is served on, without and with TLS; None where it is not."""

    http: int | None = None
    https: int | None = None


NO_PORTS: Final = WebPorts()


@dataclass(frozen=True, slots=True)
class Access:
    """Names in lower case; `hosts` are those of the server and the ones that the configuration adds, `origins` as
    browsers write them (`https://console.example.com`).  `asks_for_metrics`: where clients have to
    show who they are, so have those that read the numbers.  Without a `worker_token` no client passes for the worker.
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
        """Whether a Host header may stand for this server; its port does not matter."""
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
        """Whether pages of `origin` may ask; `own` is the server as the request names it."""
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
