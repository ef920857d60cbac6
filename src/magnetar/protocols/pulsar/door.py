"""The Pulsar protocol as a door: one listener without TLS, one with TLS, or both, for any number of nodes.

`bindAddresses` adds listeners.  Their clients get the addresses of an advertised listener in answers to look-ups.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from magnetar.base.metrics import Metrics
from magnetar.base.settings import ServerSettings
from magnetar.broker.cluster.model import Endpoint, PulsarEndpoints
from magnetar.protocols.door import AcceptedPeer, Door, DoorContext, DoorListener, Session
from magnetar.protocols.pulsar.commands import load_commands
from magnetar.protocols.pulsar.metrics import declare_pulsar_metrics
from magnetar.protocols.pulsar.service import PulsarService, PulsarSettings
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import ServerError

NAME: Final = "pulsar"
TLS_NAME: Final = "pulsar+ssl"


class PulsarDoor(Door):
    """See the module's text."""

    name = NAME
    _service: PulsarService

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings.network.pulsar
        self._authentication = settings.authentication

    def listeners(self) -> Sequence[DoorListener]:
        settings = self._settings
        ports = ((NAME, settings.port, None), (TLS_NAME, settings.tls_port, settings.tls))
        asks_for_login = self._authentication is not None
        own = [
            DoorListener(
                name,
                settings.host,
                port,
                name,
                tls=tls,
                asks_for_login=asks_for_login,
                is_looked_up=True,
            )
            for name, port, tls in ports
            if port is not None
        ]
        bound = [
            DoorListener(
                one.name,
                one.host,
                one.port,
                one.scheme,
                f"({one.listener})",
                tls=settings.tls if one.has_tls else None,
                asks_for_login=asks_for_login,
            )
            for one in settings.listeners.bindings
        ]
        return own + bound

    def advertised(self, listener: DoorListener, port: int) -> Endpoint:
        if listener.scheme in self._settings.listeners.default:
            return Endpoint(*self._settings.listeners.default[listener.scheme])
        # `pulsar.advertised.url` has the port of the listener without TLS.
        told_port = 0 if listener.tls else self._settings.advertised_port
        return Endpoint(self._settings.advertised_host, told_port or port)

    def open(self, context: DoorContext) -> None:
        advertised = context.nodes.all[0].advertised
        settings = PulsarSettings(
            PulsarEndpoints(
                advertised.get(NAME), advertised.get(TLS_NAME), self._settings.listeners.advertised
            ),
            bound={one.name: one.listener for one in self._settings.listeners.bindings},
            message_bytes_max=self._settings.message_bytes_max,
            keep_alive_s=float(self._settings.keep_alive_s),
            connections_max=self._settings.connections_max,
            connections_per_host_max=self._settings.connections_per_address_max,
        )
        if self._authentication is not None:
            settings = replace(settings, refresh_check_s=float(self._authentication.refresh_check_s))
        self._service = PulsarService(
            context.cases, context.arena, settings, load_commands(), context.memory, context.turn_end
        )

    def connected(self, listener: DoorListener, peer: AcceptedPeer, connection_id: int) -> Session:
        session = PulsarSession(
            self._service,
            peer,
            connection_id,
            peer.client_host,
            peer.local_host,
            peer.certificate_name,
            listener.name,
        )
        crowd = self._service.crowd(peer.client_host)
        if crowd is not None:
            session.turn_away(ServerError.NotAllowedError, crowd, crowd.lower())  # Pulsar's code and text
        return session

    def declare_metrics(self, metrics: Metrics) -> None:
        declare_pulsar_metrics(metrics, self._service)
