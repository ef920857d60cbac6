"""The Pulsar protocol as a door: one listener, whatever the number of nodes."""

from collections.abc import Sequence
from typing import Final

from magnetar.base.metrics import Metrics
from magnetar.base.settings import ServerSettings
from magnetar.broker.cluster.model import Endpoint
from magnetar.protocols.door import AcceptedPeer, Door, DoorContext, DoorListener, Session
from magnetar.protocols.pulsar.commands import load_commands
from magnetar.protocols.pulsar.metrics import declare_pulsar_metrics
from magnetar.protocols.pulsar.service import PulsarService, PulsarSettings
from magnetar.protocols.pulsar.session import PulsarSession

NAME: Final = "pulsar"


class PulsarDoor(Door):
    """See the module's text."""

    name = NAME
    _service: PulsarService

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings.network.pulsar

    def listeners(self) -> Sequence[DoorListener]:
        return [DoorListener(NAME, self._settings.host, self._settings.port, NAME)]

    def advertised(self, listener: DoorListener, port: int) -> Endpoint:
        return Endpoint(self._settings.advertised_host, self._settings.advertised_port or port)

    def open(self, context: DoorContext) -> None:
        settings = PulsarSettings(
            endpoint=context.nodes.all[0].advertised[NAME],
            message_bytes_max=self._settings.message_bytes_max,
            keep_alive_s=float(self._settings.keep_alive_s),
        )
        self._service = PulsarService(
            context.cases, context.arena, settings, load_commands(), context.memory, context.turn_end
        )

    def connected(self, listener: DoorListener, peer: AcceptedPeer, connection_id: int) -> Session:
        return PulsarSession(self._service, peer, connection_id, peer.client_host, peer.local_host)

    def declare_metrics(self, metrics: Metrics) -> None:
        declare_pulsar_metrics(metrics, self._service)
