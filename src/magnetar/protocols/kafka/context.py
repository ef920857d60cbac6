"""What every handler has at hand: the caller, the node that it asks and the version of its request."""

from dataclasses import dataclass, field

from magnetar.broker.cluster.model import Node
from magnetar.broker.security.model import Caller
from magnetar.broker.telemetry.model import TelemetryClient
from magnetar.broker.usecases.cases import UseCases
from magnetar.broker.usecases.quotas import ClientMeter
from magnetar.protocols.kafka.service import KafkaService


@dataclass(slots=True)
class ClientSoftware:
    """What the program at the other end of a connection calls itself in ApiVersions (KIP-511), if it does."""

    name: str = "unknown"
    version: str = "unknown"


@dataclass(slots=True)
class RequestContext:
    """See the module's text.  Requests of one connection that agree in all of it share one."""

    service: KafkaService
    cases: UseCases
    caller: Caller
    node: Node  # the node id whose listener was connected to
    listener_name: str
    connection_id: int
    client_host: str
    local_host: str  # the address that the client connected to
    api_version: int
    client_id: str | None
    # True when the request's memory may be kept (it lies in its own block of the arena); otherwise what must
    # outlive stage one has to be copied.
    owns_memory: bool
    meter: ClientMeter
    software: ClientSoftware = field(default_factory=ClientSoftware)  # the connection's

    @property
    def telemetry_client(self) -> TelemetryClient:
        """What subscriptions to clients' metrics go by."""
        software = self.software
        return TelemetryClient(self.client_id or "", software.name, software.version, self.client_host)
