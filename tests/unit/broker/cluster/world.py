"""Whole brokers in one event loop, over shared ledgers and metadata: a cluster without sockets.

    async with cluster(2) as world:
        first, second = world.brokers
        await world.hand_over("persistent://public/default/t", second)

A broker's session ends when a test says so.  Time does not move until a test, or `until`, moves it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Final

from crc32c import crc32c

from magnetar.base.arena import Arena
from magnetar.base.names import TopicName
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.bundles import position_of
from magnetar.broker.cluster.model import NO_ENDPOINTS, Endpoint, Node
from magnetar.broker.cluster.nodes import ClusterNodes
from magnetar.broker.cluster.ownership.leader import Leader
from magnetar.broker.cluster.ownership.membership import Membership
from magnetar.broker.cluster.ownership.records import BROKERS, Record
from magnetar.broker.cluster.place import Here, Place
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.model import ANONYMOUS, Caller
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.metadata.store import ANY_VERSION, Change, CommitStep, Versioned
from magnetar.protocols.kafka.apis import load_apis
from magnetar.protocols.kafka.context import ClientSoftware, RequestContext
from magnetar.protocols.kafka.service import KafkaService, KafkaSettings
from magnetar.protocols.pulsar.commands import load_commands
from magnetar.protocols.pulsar.service import PulsarService, PulsarSettings
from magnetar.testing.clock import FakeClock
from magnetar.testing.kafka import ask
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.testing.pulsar import PulsarClient
from magnetar.wire.convert import plain
from magnetar.wire.kafka.records import CRC_COVER, HEADER, HEADER_SIZE, LENGTH_PREFIX

NAMESPACE: Final = "public/default"
NOW_MS: Final = 1_700_000_000_000
TURN_S: Final = 0.05
TIMEOUT_S: Final = 20.0
CALLER: Final = Caller(ANONYMOUS, "127.0.0.1")


class Still(Leader):
    """Leaves bundles where they are: a test moves them."""

    def _balance(self) -> list[Sequence[CommitStep]]:
        return []


class Session:
    """The metadata store as one broker has it.  While it is deaf, the broker hears of no changes; what the broker gets
    and writes waits while `answers` is clear.
    """

    def __init__(self, store: MemoryMetadataStore) -> None:
        self._store = store
        self.is_deaf = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.scan: Final = store.scan
        self.close: Final = store.close

    async def get(self, path: str) -> Versioned | None:
        await self.answers.wait()
        return await self._store.get(path)

    async def put(
        self, path: str, value: bytes, expected_version: int = ANY_VERSION, *, ephemeral: bool = False
    ) -> int:
        await self.answers.wait()
        return await self._store.put(path, value, expected_version, ephemeral=ephemeral)

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self.answers.wait()
        await self._store.delete(path, expected_version)

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        await self.answers.wait()
        await self._store.commit(operations)

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        def changed(change: Change) -> None:
            if not self.is_deaf:
                callback(change)

        return self._store.watch(prefix, changed)


class Member:
    """One broker, with what its doors have."""

    def __init__(self, world: "Cluster", number: int) -> None:
        self.session = Session(world.metadata)
        self.name = f"b{number}"
        self.host = f"{self.name}.example"
        self.node = Node(number, None, {"PLAINTEXT": Endpoint(self.host, 9092)})
        addresses = {"pulsar": Endpoint(self.host, 6650), "http": Endpoint(self.host, 8080)}
        self.place = Place(self.node, addresses)
        self.seat = Seat(Here(self.name, self.place), ClusterNodes([self.node]))
        self.broker = Broker(
            BrokerSettings(entry_cache_bytes=1 << 20),
            world.ledgers,
            self.session,
            world.clock,
            self.seat.nodes,
            seat=self.seat,
        )
        cases = self.broker.cases
        self.kafka = KafkaService(cases, Arena(64 << 20), KafkaSettings(), load_apis())
        self.pulsar = PulsarService(cases, Arena(64 << 20), PulsarSettings(NO_ENDPOINTS), load_commands())

    @property
    def membership(self) -> Membership:
        part = self.broker.part
        assert part is not None
        return part.membership

    def topic(self, name: str) -> Topic:
        return self.broker.topics.get(TopicName.parse(name))

    async def make(self, name: str, partition_count: int = 1, *, is_partitioned: bool = True) -> Topic:
        wanted = NewTopic(TopicName.parse(name), partition_count, is_partitioned=is_partitioned)
        topic = self.broker.topics.plan(wanted)
        await self.broker.topics.create([topic])
        return topic

    async def ask(self, name: str, version: int, request: Any) -> Any:
        """A Kafka client's request to this broker."""
        context = RequestContext(
            service=self.kafka,
            cases=self.broker.cases,
            caller=CALLER,
            node=self.node,
            listener_name="PLAINTEXT",
            connection_id=1,
            client_host="127.0.0.1",
            local_host="127.0.0.1",
            api_version=version,
            client_id="test",
            owns_memory=False,
            meter=self.broker.cases.quotas.meter(CALLER, "test"),
            software=ClientSoftware(),
        )
        return await ask(context, name, request)

    async def client(self) -> PulsarClient:
        """A Pulsar client that has connected to this broker."""
        client = PulsarClient(self.pulsar)
        await client.connect()
        return client

    async def stop(self) -> None:
        for session in list(self.pulsar.sessions):
            session.closed()
        await self.pulsar.tasks.ended()
        await self.broker.stop()


class Cluster:
    """See the module's text."""

    def __init__(self) -> None:
        self.metadata = MemoryMetadataStore()
        self.ledgers = MemoryLedgerStore()
        self.clock = FakeClock()
        self.brokers: list[Member] = []
        self._numbers = 0
        self._is_still = False

    async def join(self) -> Member:
        """One more broker, which serves its share when this returns; none, once the cluster is still."""
        member = await self.begin()
        if self._is_still:
            self.be_still()
            await self.settle()
        else:
            await self.until(lambda: self._is_settled() and self._has_share(member))
        return member

    async def begin(self) -> Member:
        """One more broker, which serves nothing yet."""
        self._numbers += 1
        member = Member(self, self._numbers)
        self.brokers.append(member)
        await member.broker.start()
        return member

    def _has_share(self, member: Member) -> bool:
        owners = [record.owner for record in member.seat.view.records.values()]
        return owners.count(member.name) >= len(owners) // len(self.brokers)

    def be_still(self) -> None:
        """From now on bundles stay where they are, unless a test moves them, or their owner goes."""
        self._is_still = True
        for one in self.brokers:
            one.membership._leader = Still(one.name, one.seat.view, dict)

    async def turn(self) -> None:
        """Let a moment pass."""
        self.clock.advance(TURN_S)
        await self.work()

    @staticmethod
    async def work() -> None:
        """Let all go on that waits for no time."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_so():
                await self.turn()

    async def run(self, work: Awaitable[Any]) -> Any:
        """Let time pass until `work` has ended."""
        task = asyncio.ensure_future(work)
        await self.until(task.done)
        return await task

    async def settle(self) -> None:
        """Until each bundle is served by its owner, and loads are balanced."""
        await self.until(self._is_settled)

    @property
    def running(self) -> list[Member]:
        """Those that take part, and hear what others do."""
        return [one for one in self.brokers if not one.membership.is_over and not one.session.is_deaf]

    def _is_settled(self) -> bool:
        running = {one.name: one for one in self.running}
        views = [one.seat.view for one in running.values()]
        if any(not view.records or view.wishes or view.alive != running.keys() for view in views):
            return False
        return all(
            record.owner in running and record.bundle in running[record.owner].seat.served
            for record in views[0].records.values()
        )

    async def end_session(self, member: Member) -> None:
        """The metadata store has not heard of a broker for too long."""
        await self.metadata.delete(BROKERS + member.name)

    # --- owners ------------------------------------------------------------------------------------------------------

    def record(self, name: str) -> Record:
        """Of the bundle that a partition is in."""
        found = self.running[0].seat.view.find(NAMESPACE, position_of(name))
        assert found is not None
        return found

    def owner(self, name: str) -> Member:
        """The broker that serves a partition."""
        return next(one for one in self.brokers if one.name == self.record(name).owner)

    def other(self, name: str) -> Member:
        """One that does not."""
        return next(one for one in self.running if one.name != self.record(name).owner)

    async def ask_to_hand_over(self, name: str, to: Member) -> Record:
        record = self.record(name)
        await to.membership.ask(record, to.name)
        return record

    async def hand_over(self, name: str, to: Member) -> None:
        """Let the owner of a partition's bundle give it to another broker, which then serves it."""
        await self.ask_to_hand_over(name, to)
        await self.until(lambda: to.seat.serves(NAMESPACE, name))


@asynccontextmanager
async def cluster(count: int) -> AsyncIterator[Cluster]:
    """So many brokers, each of which serves its share; bundles move only if a test moves them."""
    world = Cluster()
    try:
        for _ in range(count):
            await world.join()
        world.be_still()
        yield world
    finally:
        world.ledgers.automatic = True
        world.ledgers.write()
        for member in world.brokers:
            await world.run(member.stop())


def run(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """The tests are coroutines."""

    @wraps(test)
    def whole(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return whole


def batch(sequence: int = -1, producer_id: int = -1) -> memoryview:
    """A record batch with one record, which says the sequence; of an idempotent producer if it has an id."""
    records = b"".join(plain.record(0, 0, b"k", b"v%d" % sequence, []))
    made = bytearray(HEADER_SIZE + len(records))
    made[HEADER_SIZE:] = records
    fields = (0, len(made) - LENGTH_PREFIX, -1, 2)
    producer = (producer_id, 0, sequence) if producer_id >= 0 else (-1, -1, -1)
    rest = (0, 0, NOW_MS, NOW_MS, *producer, 1)
    HEADER.pack_into(made, 0, *fields, 0, *rest)
    HEADER.pack_into(made, 0, *fields, crc32c(memoryview(made)[CRC_COVER:]), *rest)
    return memoryview(made)


async def append(partition: Partition, sequence: int = -1, producer_id: int = -1) -> int:
    """The offset of one durable batch."""
    durable: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    appended = partition.append(batch(sequence, producer_id), NOW_MS, durable.set_result)
    error = await durable
    assert error is None, error
    return appended.base_offset
