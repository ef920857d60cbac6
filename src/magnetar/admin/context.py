"""What every admin route has at hand: the broker, and the addresses that clients are told."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from magnetar.admin.peek import Bodies

if TYPE_CHECKING:
    from magnetar.admin.access import Access
    from magnetar.broker.broker import Broker
    from magnetar.broker.cluster.nodes import Endpoint


@dataclass(frozen=True, slots=True)
class AdminContext:
    """`pulsar` is the Pulsar listener's address, None when the server has none; `access` is who may do what; `bodies`
    are the messages that are being answered.
    """

    broker: "Broker"
    pulsar: "Endpoint | None"
    access: "Access"
    bodies: Bodies = field(default_factory=Bodies)

    def service_url(self, request: Request) -> str:
        """Where a Pulsar client connects that sent this request; empty when there is nothing to connect to."""
        if self.pulsar is None:
            return ""
        host = self.pulsar.host or request.url.hostname or "localhost"
        return (
            f"pulsar://[{host}]:{self.pulsar.port}" if ":" in host else f"pulsar://{host}:{self.pulsar.port}"
        )


def context_of(request: Request) -> AdminContext:
    return cast(AdminContext, request.app.state.admin)


def broker_of(request: Request) -> "Broker":
    return context_of(request).broker


def web_url(request: Request) -> str:
    """This server's own address, as the client wrote it."""
    return f"{request.url.scheme}://{request.url.netloc}"
