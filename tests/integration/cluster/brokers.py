"""Brokers with listeners for Kafka, Pulsar and HTTP in one event loop, over shared ledgers and metadata in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from magnetar.base.clock import SystemClock
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.metrics import Metrics
from magnetar.base.pulsar_listeners import PULSAR
from magnetar.base.settings import load_settings
from magnetar.base.turn_end import TurnEnd
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.bundles import position_of
from magnetar.broker.cluster.model import Endpoint
from magnetar.broker.cluster.nodes import ClusterNodes
from magnetar.broker.cluster.ownership.membership import Membership
from magnetar.broker.cluster.ownership.records import Record
from magnetar.broker.cluster.place import Here, Place
from magnetar.broker.cluster.seat import Seat
from magnetar.metadata.store import MetadataStore
from magnetar.server.layer_settings import broker_settings, connection_limits, connection_memory
from magnetar.server.listeners import Connections
from magnetar.server.start_steps import Start
from magnetar.storage.store import LedgerStore
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.testing.ports import free_ports

HOST = "127.0.0.1"
NAMESPACE = "public/default"
OPEN_FILES = 4096
LOOK_S = 0.01


class Served:
    """One broker, and the ports where its clients connect."""

    def __init__(self, number: int, folder: Path, metadata: MetadataStore, ledgers: LedgerStore) -> None:
        self.name = f"b{number}"
        self.kafka_port, self.pulsar_port, self.http_port = free_ports(3)
        self._settings = load_settings(
            assignments=[
                f"node.id={number}",
                f"listeners=PLAINTEXT://{HOST}:{self.kafka_port}",
                f"pulsar.port={self.pulsar_port}",
                f"http.port={self.http_port}",
            ],
            flags={"data.dir": str(folder)},
        )
        self._metadata = metadata
        self._ledgers = ledgers

    @property
    def membership(self) -> Membership:
        assert self.broker.part is not None
        return self.broker.part.membership

    async def start(self, stack: AsyncExitStack) -> None:
        """As `standalone.py` starts a server, but for the stores."""
        start = Start(self._settings, lambda line: None, OPEN_FILES, stack)
        ports = start.bind()
        (node,) = ports.nodes.all
        assert ports.plain is not None
        addresses = {PULSAR: ports.plain, "http": Endpoint(HOST, self.http_port)}
        self.seat = Seat(Here(self.name, Place(node, addresses)), ClusterNodes([node]))
        self.broker = Broker(
            broker_settings(self._settings, "test", "", (b"", b"")),
            self._ledgers,
            self._metadata,
            SystemClock(),
            self.seat.nodes,
            seat=self.seat,
        )
        await self.broker.start()
        stack.push_async_callback(self.broker.stop)
        clock, turn_end = SystemClock(), TurnEnd()
        memory = MemoryBudget(connection_memory(self._settings), clock)
        limits = connection_limits(self._settings, OPEN_FILES)
        connections = Connections(limits, clock, memory, self.broker.admission)
        start.open_doors(ports, self.broker, connections, memory, turn_end)
        start.accept(ports, self.broker, connections)
        await start.serve_http(ports, self.broker, Metrics(), "")

    def record(self, name: str) -> Record:
        """Of the bundle that has a topic or a partition."""
        found = self.seat.view.find(NAMESPACE, position_of(name))
        assert found is not None
        return found


async def until(is_so: Callable[[], bool]) -> None:
    """Let the brokers work until it is so; the test's time-out ends what never is."""
    while not is_so():  # noqa: ASYNC110  threads of clients change it
        await asyncio.sleep(LOOK_S)


async def hand_over(brokers: list[Served], name: str) -> None:
    """Let the bundle of a topic or a partition go to another broker, which serves it when this returns."""
    record = brokers[0].record(name)
    owner = next(one for one in brokers if one.name == record.owner)
    taker = brokers[(brokers.index(owner) + 1) % len(brokers)]
    await owner.membership.ask(record, taker.name)
    await until(
        lambda: (
            brokers[0].record(name).generation > record.generation
            and any(one.seat.serves(NAMESPACE, name) for one in brokers)
        )
    )


@asynccontextmanager
async def brokers_in(folder: Path, count: int) -> AsyncIterator[list[Served]]:
    """Brokers that serve all bundles of the namespace, each some of them."""
    metadata, ledgers = MemoryMetadataStore(), MemoryLedgerStore()
    async with AsyncExitStack() as stack:
        brokers = [Served(number, folder / str(number), metadata, ledgers) for number in range(1, count + 1)]
        for one in brokers:
            await one.start(stack)
        await until(lambda: _all_served(brokers))
        yield brokers


def _all_served(brokers: list[Served]) -> bool:
    records = brokers[0].seat.view.records.values()
    owners = {record.owner for record in records}
    return owners == {one.name for one in brokers} and not brokers[0].seat.view.wishes
