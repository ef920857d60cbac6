"""A broker with its Pulsar door and its admin API, for tests of both together."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx

from magnetar.admin.access import Access
from magnetar.admin.app import create_app
from magnetar.admin.context import AdminContext
from magnetar.base.metrics import Metrics
from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.settings import BrokerSettings
from magnetar.testing.pulsar import PulsarClient, PulsarDoor, running_door
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

NAME = TopicName.parse("persistent://public/default/t")
T = "/admin/v2/persistent/public/default/t"
WORKER_TOKEN = "4f" * 32
N = "/admin/v2/namespaces/public/default"


class World:
    """A door, an HTTP client, and shortcuts for both."""

    def __init__(self, door: PulsarDoor, http: httpx.AsyncClient) -> None:
        self.door = door
        self.broker = door.broker
        self.http = http
        self._sequence = 0

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        response = await self.http.request(method, path, **({} if body is None else {"json": body}))
        assert response.status_code == status, f"{method} {path}: {response.status_code} {response.text}"
        if response.headers.get("content-type") == "application/json":
            return response.json()
        return response

    @property
    def context(self) -> AdminContext:
        transport = self.http._transport
        assert isinstance(transport, httpx.ASGITransport)
        return cast("AdminContext", cast("Any", transport.app).state.admin)

    @property
    def partition(self) -> Partition:
        return self.broker.topics.get(NAME).partition(0)

    async def publish(
        self, count: int = 1, batch: int = 0, partition: Partition | None = None, **fields: Any
    ) -> None:
        """`count` entries, each of one message or of a batch."""
        partition = partition or self.partition
        for _ in range(count):
            self._sequence += 1
            metadata = pb.MessageMetadata(
                producer_name="p",
                sequence_id=self._sequence,
                publish_time=self.door.clock.now_ms(),
                **fields,
            )
            payload = b"m%d" % self._sequence
            if batch:
                metadata.num_messages_in_batch = batch
                payload = b"".join(
                    len(one).to_bytes(4, "big") + one + b"x" * 3
                    for one in [pb.SingleMessageMetadata(payload_size=3).SerializeToString()] * batch
                )
            entry = memoryview(frame_entry(metadata, payload))
            view = read_entry(entry, verify=True)
            written: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
            partition.publish(entry, view, self.door.clock.now_ms(), written.set_result)
            assert await written is None

    async def subscribed(
        self, name: str = "s", kind: int = 1, permits: int = 0, **fields: Any
    ) -> PulsarClient:
        client = await self.door.connected()
        command = pb.CommandSubscribe(
            topic=NAME.full,
            subscription=name,
            subType=kind,  # type: ignore[arg-type]
            consumer_id=1,
            request_id=1,
            consumer_name="c",
            initialPosition=pb.CommandSubscribe.Earliest,
            **fields,
        )
        await client.ask(command, BaseCommand.SUCCESS)
        if permits:
            client.say(pb.CommandFlow(consumer_id=1, messagePermits=permits))
        return client

    async def backlog(self, name: str = "s") -> int:
        backlog: int = (await self.ask("GET", f"{T}/stats"))["subscriptions"][name]["msgBacklog"]
        return backlog


Scenario = Callable[[World], Awaitable[None]]


def run(folder: Path, scenario: Scenario, **settings: Any) -> None:
    """The scenario against a broker with the topic `t`, which is not partitioned."""

    async def main() -> None:
        wanted = BrokerSettings(data_dir=str(folder), entry_cache_bytes=1 << 20, **settings)
        async with running_door(folder, wanted) as door:
            transport = httpx.ASGITransport(
                create_app(
                    door.broker.cases, Metrics(), access=Access.of(["test"], worker_token=WORKER_TOKEN)
                )
            )
            headers = {"authorization": f"Bearer {WORKER_TOKEN}"}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://test", headers=headers
            ) as http:
                await door.broker.pulsar_topics.create(NAME)
                await scenario(World(door, http))

    asyncio.run(main())
