"""A broker with replicators, over stores that outlive it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from magnetar.base.names import TopicName
from magnetar.base.replicator_variables import ReplicatorVariables
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.jobs.model import Pipeline, PipelineKeys, WorkerSays
from magnetar.broker.policy.model import Region
from magnetar.broker.security.model import Caller, Principal
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.metadata.store import CommitStep
from magnetar.replicators.naming import pipeline_name

from .test_topics import MortalMetadataStore
from .test_topics import World as TopicsWorld

ORDERS = TopicName("public", "default", "orders")
AUDIT = TopicName("public", "default", "audit")
N = "public/default"
KAFKA = Region("Kafka", "us-west1")
ALICE = Caller(Principal("User", "alice"))
BOB = Caller(Principal("User", "bob"))
PROPERTIES = {"bootstrap.servers": "kafka:9092"}
SECRET = {"sasl.username": "magnetar", "sasl.password": "a-well-kept-secret"}
SUBSCRIPTION = "pulsar.repl.Kafka.us-west1"
KEYS = PipelineKeys(b"key of the server", b"1" * 32)


class Mortal(MortalMetadataStore):
    """Says when the process is about to die."""

    def __init__(self) -> None:
        super().__init__()
        self.died = asyncio.Event()

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        if self.steps_left <= 0:
            self.died.set()
        await super().commit(operations)


@dataclass
class World(TopicsWorld):
    """As for topics, with what replicators are asked for."""

    metadata: MortalMetadataStore = field(default_factory=Mortal)
    keys: PipelineKeys = KEYS
    environment: dict[str, str] = field(default_factory=dict)

    async def start(self) -> Broker:
        settings = BrokerSettings(
            pipeline_keys=self.keys,
            replicator_environment=self.environment,
            replicator_variables=ReplicatorVariables.of(["public/*:ORDERS_*"]),
        )
        self.broker = Broker(settings, self.store, self.metadata, self.clock, Nodes([Node(1)]))
        await self.broker.start()
        await self.broker.replicators.ended()
        return self.broker

    async def make(self, name: TopicName, partition_count: int = 1) -> Topic:
        self.clock.advance(1)
        await self.broker.topics.create([self.broker.topics.plan(NewTopic(name, partition_count))])
        return self.broker.topics.get(name)

    async def add(
        self,
        mapping: Mapping[str, str],
        auth_param: Mapping[str, Any] | None = None,
        *,
        region: Region = KAFKA,
        key_store: str = "",
        caller: Caller = ALICE,
        **properties: Any,
    ) -> None:
        self.clock.advance(1)
        await self.broker.cases.replicators.add_config(
            caller, N, region, {**PROPERTIES, **properties}, mapping, key_store, auth_param
        )

    def pipeline(self, topic: TopicName = ORDERS, region: Region = KAFKA) -> Pipeline | None:
        return self.broker.pipelines.find(pipeline_name(*region, topic.full))

    def target(self, topic: TopicName = ORDERS, region: Region = KAFKA) -> str | None:
        found = self.pipeline(topic, region)
        return None if found is None else found.config["target"]

    async def publish(self, topic: TopicName = ORDERS, count: int = 1, partition: int = 0) -> None:
        outcomes: list[Exception | None] = []
        for _ in range(count):
            self.produce(self.broker.topics.get(topic).partition(partition), outcomes)
        await self.flush()
        assert outcomes == [None] * count

    def backlog(self, topic: TopicName = ORDERS) -> int:
        (one,) = self.broker.cases.replicators.statistics(ALICE, topic)
        return one.backlog

    def has_subscription(self, topic: TopicName = ORDERS) -> bool:
        partition = self.broker.topics.get(topic).partition(0)
        return SUBSCRIPTION in self.broker.subscription_admin.names(partition)

    async def stored(self) -> bytes:
        return b"".join(path.encode() + one.value for path, one in await self.metadata.scan("/"))

    async def worker(self) -> int:
        return await self.broker.pipelines.take_lease("w", "here", 1, "here:/w")

    async def says(self, epoch: int, pipeline: Pipeline, state: str, status: Mapping[str, Any]) -> None:
        report = {"id": pipeline.id, "run": pipeline.run, "state": state, "status": dict(status)}
        await self.broker.pipelines.reported("w", epoch, {pipeline.name: report}, WorkerSays())


def run(scenario: Any) -> None:
    async def main() -> None:
        world = World()
        await world.start()
        await scenario(world)
        await world.broker.replicators.ended()
        await world.broker.stop()

    asyncio.run(main())
