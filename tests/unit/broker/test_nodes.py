"""Data belongs to the folder, not to node ids: a start with other nodes serves all of it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from magnetar.base.clock import SystemClock
from magnetar.base.names import TopicName
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.model import NewTopic
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore

SMALL = LocalStoreSettings(journal_file_bytes=4 << 20, journal_file_count=2, round_bytes_max=1 << 20)
TOPIC = TopicName.parse("orders")


def nodes(*ids: int) -> Nodes:
    return Nodes([Node(node_id) for node_id in ids])


def replicas_after_restarts(folder: Path, topic: NewTopic, starts: Sequence[Nodes]) -> list[list[list[int]]]:
    """Create `topic` with the first nodes; its replica lists as each start then serves them."""

    async def main() -> list[list[list[int]]]:
        metadata, clock = MemoryMetadataStore(), SystemClock()
        store = await LocalLedgerStore.start(folder, settings=SMALL, clock=clock)
        seen: list[list[list[int]]] = []
        for present in starts:
            broker = Broker(BrokerSettings(), store, metadata, clock, present)
            await broker.start()
            if not seen:
                await broker.topics.create([broker.topics.plan(topic)])
            found = broker.topics.get(TOPIC)
            seen.append([found.partition(index).replicas for index in range(found.partition_count)])
            await broker.stop()
        await store.close()
        return seen

    return asyncio.run(main())


def test_partitions_of_nodes_that_are_gone_go_to_those_that_are_there(tmp_path: Path) -> None:
    wanted = NewTopic(TOPIC, partition_count=3, replication_factor=1)
    three, one, other, again = replicas_after_restarts(
        tmp_path, wanted, [nodes(1, 2, 3), nodes(1), nodes(8, 9), nodes(1, 2, 3)]
    )
    assert three == [[1], [2], [3]]
    assert one == [[1], [1], [1]]
    assert other == [[8], [9], [8]]
    assert again == three


def test_replicas_that_are_still_there_stay_in_their_order(tmp_path: Path) -> None:
    wanted = NewTopic(TOPIC, replicas=[[3, 1, 2], [2, 3, 1]])
    _, fewer = replicas_after_restarts(tmp_path, wanted, [nodes(1, 2, 3), nodes(1, 3)])
    assert fewer == [[3, 1], [3, 1]]
