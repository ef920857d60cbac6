"""The nodes of a cluster of brokers: each broker that is alive is one."""

from collections.abc import Iterable
from typing import NoReturn

from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.errors import CoordinatorNotAvailable


class ClusterNodes(Nodes):
    """As `Nodes`, but they come and go.  None of them coordinates groups and transactional ids, whose state does not
    move with ownership yet.
    """

    def become(self, nodes: Iterable[Node]) -> None:
        """These brokers are alive now.  A broker that hears of none, because its session has ended, shows the last
        ones.
        """
        known = {node.node_id: node for node in nodes}
        if known:
            self.by_id = known
            self.all = [known[node_id] for node_id in sorted(known)]

    def coordinator_of(self, key: str) -> NoReturn:
        raise CoordinatorNotAvailable("No broker of a cluster coordinates groups and transactional ids yet.")

    def coordinates(self, node: Node, key: str) -> bool:
        return False
