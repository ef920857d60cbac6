"""A broker on a small local store, and a client that calls the handlers through the codecs, without sockets."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from magnetar.base.arena import Arena
from magnetar.base.clock import SystemClock
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Endpoint, Node, Nodes
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.authorizer import Authorizer
from magnetar.broker.security.model import ANONYMOUS, Caller, DelegationToken, Principal
from magnetar.broker.settings import BrokerSettings
from magnetar.protocols.kafka.apis import load_apis
from magnetar.protocols.kafka.context import ClientSoftware, RequestContext
from magnetar.protocols.kafka.service import KafkaService, KafkaSettings
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.testing.audit import MemoryAudit
from magnetar.testing.kafka import ask
from magnetar.testing.metadata import MemoryMetadataStore

_SMALL = LocalStoreSettings(journal_file_bytes=4 << 20, journal_file_count=2, round_bytes_max=1 << 20)


def record_batch(count: int, timestamp_ms: int, producer_id: int = -1) -> bytearray:
    """`count` records (fewer than 64) without key, with the value b"v"."""
    # length, attributes, timestamp delta, offset delta, key length -1, value length 1, value, no headers
    records = b"".join(bytes([14, 0, 0, 2 * delta, 1, 2]) + b"v\0" for delta in range(count))
    epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
    body = struct.pack(
        ">hiqqqhii", 0, count - 1, timestamp_ms, timestamp_ms, producer_id, epoch, sequence, count
    )
    checked = body + records
    head = struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked))
    return bytearray(head + checked)


class Client:
    """Asks handlers as a connection would: request and response go through their encoders and decoders."""

    def __init__(
        self, broker: Broker, service: KafkaService, metadata: MemoryMetadataStore, audit: MemoryAudit
    ) -> None:
        self.service = service
        self.audit = audit
        self.broker = broker
        self.metadata = metadata
        self.caller = Caller(ANONYMOUS, "127.0.0.1")
        self.software = ClientSoftware()
        self.connection_id = 1

    async def ask(self, name: str, version: int, request: Any, node_id: int | None = None) -> Any:
        nodes = self.broker.nodes
        node = nodes.by_id[nodes.controller_id if node_id is None else node_id]
        context = RequestContext(
            service=self.service,
            cases=self.broker.cases,
            caller=self.caller,
            node=node,
            listener_name="PLAINTEXT",
            connection_id=self.connection_id,
            client_host="127.0.0.1",
            local_host="127.0.0.1",
            api_version=version,
            client_id="test",
            owns_memory=False,
            meter=self.broker.cases.quotas.meter(self.caller, "test"),
            software=self.software,
        )
        return await ask(context, name, request)

    async def make_token(self, user: Principal) -> DelegationToken:
        """One that the user has asked for, good for a minute."""
        tokens, now_ms = self.broker.delegation_tokens, self.broker.clock.now_ms()
        ends_ms = now_ms + 60_000
        return await tokens.add(tokens.new_id(), user, user, [], now_ms, ends_ms, ends_ms)

    async def append(self, partition: Partition, count: int, producer_id: int = -1) -> None:
        """One durable batch of `count` records."""
        durable: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        now_ms = self.broker.clock.now_ms()
        partition.append(memoryview(record_batch(count, now_ms, producer_id)), now_ms, durable.set_result)
        assert await durable is None


@asynccontextmanager
async def _running(
    folder: Path, node_count: int, settings: BrokerSettings, authorizer: Authorizer | None = None
) -> AsyncIterator[Client]:
    metadata = MemoryMetadataStore()
    clock = SystemClock()
    store = await LocalLedgerStore.start(folder, settings=_SMALL, clock=clock)
    nodes = Nodes(
        [
            Node(node_id, None, {"PLAINTEXT": Endpoint("127.0.0.1", 9000 + node_id)})
            for node_id in range(1, node_count + 1)
        ]
    )
    audit = MemoryAudit(with_logins=True)
    broker = Broker(settings, store, metadata, clock, nodes, authorizer, audit=audit.audit)
    await broker.start()
    try:
        service = KafkaService(broker.cases, Arena(64 << 20), KafkaSettings(), load_apis())
        yield Client(broker, service, metadata, audit)
    finally:
        await broker.stop()
        await store.close()


Scenario = Callable[[Client], Coroutine[Any, Any, None]]


@pytest.fixture
def with_broker(tmp_path: Path) -> Callable[..., None]:
    """`with_broker(scenario, node_count=1, authorizer=None, **settings)` runs the scenario against a fresh broker."""

    def run(
        scenario: Scenario, node_count: int = 1, authorizer: Authorizer | None = None, **settings: Any
    ) -> None:
        async def main() -> None:
            wanted = BrokerSettings(data_dir=str(tmp_path), entry_cache_bytes=1 << 20, **settings)
            async with _running(tmp_path, node_count, wanted, authorizer) as client:
                await scenario(client)

        asyncio.run(main())

    return run
