"""What a broker of a cluster knows about who serves a topic: from its view, and from the logs that it has opened.

The broker serves a partition from the moment when all logs of the bundle are open to the one when the bundle goes.  An
open partition asks nothing here: topics ask when a partition is not open, and doors ask on behalf of clients that look
for a topic.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from magnetar.broker.cluster.bundles import Bundle, position_of
from magnetar.broker.cluster.nodes import ClusterNodes
from magnetar.broker.cluster.ownership.owner import Hold
from magnetar.broker.cluster.ownership.records import Record
from magnetar.broker.cluster.ownership.view import View
from magnetar.broker.cluster.place import Here, Place
from magnetar.broker.errors import NotLeader


class Leader(NamedTuple):
    """The node that serves a partition, and the generation of its bundle, which is the leader epoch."""

    node_id: int
    epoch: int


NO_LEADER: Final = (-1, -1)


class Seat:
    """See the module's text.  Topics and partitions have full names, as Pulsar's clients use them."""

    def __init__(self, here: Here, nodes: ClusterNodes) -> None:
        """`nodes` has the broker's own node, and learns of the others."""
        self.here = here
        self.nodes = nodes
        self.view = View()
        self._open: dict[Bundle, Hold] = {}

    @property
    def node_id(self) -> int:
        return self.here.place.node.node_id

    def brokers_changed(self) -> None:
        """The view has other brokers than before."""
        self.nodes.become(place.node for place in self.view.places.values())

    def opened(self, hold: Hold) -> None:
        """All logs of a bundle are open."""
        self._open[hold.bundle] = hold

    def closed(self, hold: Hold) -> None:
        """The bundle goes: its logs are served no longer."""
        if self._open.get(hold.bundle) == hold:
            del self._open[hold.bundle]

    @property
    def served(self) -> Collection[Bundle]:
        """The bundles that this broker serves."""
        return self._open.keys()

    def bundle_of(self, namespace: str, name: str) -> Bundle | None:
        """The bundle that has a partition, as this broker has heard."""
        record = self.view.find(namespace, position_of(name))
        return None if record is None else record.bundle

    def leader_of(self, namespace: str, name: str) -> Leader | None:
        """Who serves a partition, as this broker has heard; None if no broker does now, or it moves."""
        record = self.view.find(namespace, position_of(name))
        place = self._place(record)
        return None if record is None or place is None else Leader(place.node.node_id, record.generation)

    def serves(self, namespace: str, name: str) -> bool:
        """Whether this broker serves a partition."""
        return self._held(self.view.find(namespace, position_of(name))) is not None

    def hold_of(self, namespace: str, name: str) -> Hold:
        """The hold under which this broker serves a partition.

        Raises:
            NotLeader: another broker serves it, or none does now.
        """
        hold = self._held(self.view.find(namespace, position_of(name)))
        if hold is None:
            leader = self.leader_of(namespace, name) or NO_LEADER
            raise NotLeader(f"this broker does not serve {name} now: look it up again", *leader)
        return hold

    def place_of(self, namespace: str, name: str) -> Place:
        """Where clients find a topic or a partition, which need not exist.

        Raises:
            NotLeader: no broker serves it now, or it moves.
        """
        place = self._place(self.view.find(namespace, position_of(name)))
        if place is None:
            raise NotLeader(f"no broker serves {name} now: look it up again")
        return place

    def _held(self, record: Record | None) -> Hold | None:
        return None if record is None else self._open.get(record.bundle)

    def _place(self, record: Record | None) -> Place | None:
        if record is None or (record.owner == self.here.name and self._held(record) is None):
            return None
        return self.view.places.get(record.owner)
