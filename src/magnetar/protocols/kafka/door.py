"""The Kafka protocol as a door: its listeners, for each node of the process."""

from collections.abc import Sequence
from typing import Final

from magnetar.base.listeners import ANY_HOST
from magnetar.base.metrics import Metrics
from magnetar.base.settings import ServerSettings
from magnetar.base.settings_network import client_host
from magnetar.broker.cluster.model import Endpoint, Nodes
from magnetar.broker.security.errors import LoginRefused, TooManyConnections
from magnetar.broker.security.model import ANONYMOUS, USER, Principal
from magnetar.broker.usecases.sasl import SaslLogins
from magnetar.protocols.door import AcceptedPeer, Door, DoorContext, DoorListener, Session
from magnetar.protocols.kafka.apis import load_apis
from magnetar.protocols.kafka.metrics import declare_kafka_metrics
from magnetar.protocols.kafka.service import KafkaService, KafkaSettings
from magnetar.protocols.kafka.session import KafkaSession

NAME: Final = "kafka"
_CERTIFICATE: Final = "tls"  # in the audit log: how a client without SASL has authenticated


class KafkaDoor(Door):
    """See the module's text."""

    name = NAME
    _service: KafkaService
    _nodes: Nodes
    _context: DoorContext
    _logins: dict[str, SaslLogins]
    _unasked: SaslLogins

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings

    def listeners(self) -> Sequence[DoorListener]:
        nodes, network = self._settings.nodes, self._settings.network
        return [
            DoorListener(
                one.name,
                one.host,
                one.port,
                one.protocol,
                f"({one.name}, node {nodes.first_id + index})",
                index,
                network.tls.get(one.name),
                one.has_sasl,
            )
            for index in range(nodes.count)
            for one in network.listeners_of(index)
        ]

    def advertised(self, listener: DoorListener, port: int) -> Endpoint:
        default = (client_host(listener.host), 0)
        host, told_port = self._settings.network.advertised_of(listener.node).get(listener.name, default)
        return Endpoint("" if host in ANY_HOST else host, told_port or port)

    def open(self, context: DoorContext) -> None:
        network = self._settings.network
        settings = KafkaSettings(
            request_bytes_max=network.request_bytes_max,
            fetch_bytes_max=network.fetch_bytes_max,
            fetch_sessions_max=network.fetch_sessions_max,
        )
        self._context = context
        self._logins = {name: context.cases.sasl.at(sasl) for name, sasl in network.sasl.items()}
        self._unasked = context.cases.sasl.unasked()
        self._service = KafkaService(
            context.cases, context.arena, settings, load_apis(), context.memory, context.turn_end
        )

    def connected(self, listener: DoorListener, peer: AcceptedPeer, connection_id: int) -> Session:
        node = self._context.nodes.all[listener.node]
        logins = self._logins.get(listener.name)
        principal = _principal(self._settings, listener, peer) if logins is None else ANONYMOUS
        session = KafkaSession(
            self._service,
            peer,
            node,
            listener.name,
            connection_id,
            peer.client_host,
            peer.local_host,
            logins,
            principal or ANONYMOUS,
            self._unasked if logins is None else None,
        )
        if principal is None:
            # As in Kafka, a certificate for which no rule has a name does not authenticate.
            reason = "no rule of ssl.principal.mapping.rules fits the name in its certificate"
            self._service.logins.failed(session, _CERTIFICATE, LoginRefused(reason))
            session.drop()
        elif principal != ANONYMOUS:
            try:
                self._service.logins.take_place(session, principal, _CERTIFICATE)
            except TooManyConnections:
                session.drop()  # before any request there is nothing to answer
        return session

    def declare_metrics(self, metrics: Metrics) -> None:
        declare_kafka_metrics(metrics, self._service, self._context.connection_count)

    def close(self) -> None:
        self._service.large.close()


def _principal(settings: ServerSettings, listener: DoorListener, peer: AcceptedPeer) -> Principal | None:
    """The principal of a client that need not log in: by its certificate, or ANONYMOUS; None if no rule has a name
    for it.
    """
    if peer.certificate_name is None:
        return ANONYMOUS
    name = settings.network.principals[listener.name].name_of(peer.certificate_name)
    return None if name is None else Principal(USER, name)
