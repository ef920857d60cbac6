"""The topologies of streams groups, which outlive the process.

    /group-topologies/<group id>    {"v": 1, "epoch": 0, "subtopologies": [...]}

A group keeps its topology for as long as it exists.  Members send it again when they join.  It is stored for tools,
which show the topics that an application without members has read and created.  It is also stored so that the server
refuses members with another topology after a restart, too.
"""

import json
import logging
from collections.abc import Iterable
from typing import Any, Final

from magnetar.broker.groups.model import Copartitioned, InternalTopic, Subtopology, Topology
from magnetar.metadata.path_parts import escape, unescape
from magnetar.metadata.store import Delete, MetadataStore, Put

log: Final = logging.getLogger(__name__)

ROOT: Final = "/group-topologies/"
_VERSION: Final = 1


class StoredTopologies:
    """See the module's text.  It writes nothing: the writer of the group's record gets the operations, so that one step
    writes both.
    """

    def __init__(self) -> None:
        self._topologies: dict[str, Topology] = {}

    async def load(self, store: MetadataStore) -> None:
        """Read all topologies.  Raises MetadataError."""
        for path, one in await store.scan(ROOT):
            group_id = unescape(path.removeprefix(ROOT))
            try:
                self._topologies[group_id] = decoded(one.value)
            except (ValueError, KeyError, TypeError):
                log.error("the topology of group %r is damaged: its members bring it anew", group_id)

    def of(self, group_id: str) -> Topology | None:
        return self._topologies.get(group_id)

    def writes(self, group_id: str, topology: Topology | None) -> list[Put | Delete]:
        """The operations that give the group this topology, or none.  The caller calls `stored` when a topology is
        durable; a topology that is given up is forgotten at once.
        """
        path = ROOT + escape(group_id)
        if topology is None:
            return [Delete(path)] if self._topologies.pop(group_id, None) is not None else []
        return [] if topology == self._topologies.get(group_id) else [Put(path, encoded(topology))]

    def stored(self, group_id: str, topology: Topology | None) -> None:
        if topology is not None:
            self._topologies[group_id] = topology


def encoded(topology: Topology) -> bytes:
    """The stored form of a topology."""
    document = {
        "v": _VERSION,
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "id": part.subtopology_id,
                "sources": part.sources,
                "sinks": part.sinks,
                "repartitions": [_topic(topic) for topic in part.repartitions],
                "changelogs": [_topic(topic) for topic in part.changelogs],
                "copartitioned": part.copartitioned,
            }
            for part in topology.subtopologies
        ],
    }
    return json.dumps(document).encode()


def _topic(topic: InternalTopic) -> list[Any]:
    return [topic.name, topic.partitions, topic.replication_factor, topic.configs]


def decoded(value: bytes) -> Topology:
    """The inverse of `encoded`.  Raises ValueError, KeyError or TypeError if `value` is no stored topology."""
    document = json.loads(value)
    if document["v"] != _VERSION:
        raise ValueError("a topology of a version that this build does not know")
    return Topology(
        document["epoch"],
        tuple(
            Subtopology(
                part["id"],
                tuple(part["sources"]),
                (),
                tuple(part["sinks"]),
                _topics(part["repartitions"]),
                _topics(part["changelogs"]),
                tuple(Copartitioned(tuple(one), tuple(other)) for one, other in part["copartitioned"]),
            )
            for part in document["subtopologies"]
        ),
    )


def _topics(rows: Iterable[Any]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(name, partitions, replicas, tuple((key, value) for key, value in configs))
        for name, partitions, replicas, configs in rows
    )
