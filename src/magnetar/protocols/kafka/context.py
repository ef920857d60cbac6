"""What every handler can use: the caller, the node, and the version of the request."""

from dataclasses import dataclass, field

from magnetar.broker.cluster.model import Node
from magnetar.broker.security.model import ANONYMOUS, Caller
from magnetar.broker.telemetry.model import TelemetryClient
from magnetar.broker.usecases.cases import UseCases
from magnetar.broker.usecases.quotas import ClientMeter
from magnetar.protocols.kafka.service import KafkaService


@dataclass(slots=True)
class ClientSoftware:
    """The name and version that a client's program sends in ApiVersions (KIP-511), if it does."""

    name: str = "unknown"
    version: str = "unknown"


@dataclass(slots=True)
class RequestContext:
    """See the module's text.  Requests of one connection with equal values share one object."""

    service: KafkaService
    cases: UseCases
    caller: Caller
    node: Node  # the node to whose listener the client connected
    listener_name: str
    connection_id: int
    client_host: str
    local_host: str  # the address that the client connected to
    api_version: int
    client_id: str | None
    # Whether the request's memory may be kept, because it is in its own block of the arena; otherwise the handler
    # must copy what must outlive stage one.
    owns_memory: bool
    meter: ClientMeter
    software: ClientSoftware = field(default_factory=ClientSoftware)  # of the connection
    has_objects: bool = False  # memory for objects of the request has been taken: it must not wait for more

    @property
    def telemetry_client(self) -> TelemetryClient:
        """The client, by which subscriptions to clients' metrics match."""
        software, principal = self.software, self.caller.principal
        owner = None if principal == ANONYMOUS else principal
        return TelemetryClient(self.client_id or "", software.name, software.version, self.client_host, owner)
