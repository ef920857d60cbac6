"""The Pulsar door without sockets: a broker on a small store, and clients that talk to their sessions in frames.

    async with running_door(folder) as door:
        client = await door.connected()
        client.say(CommandFlow(consumer_id=1, messagePermits=10))
        message, entry = await client.hear_entry(BaseCommand.MESSAGE)

Time does not move until a test moves `door.clock`.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from magnetar.base.arena import Arena
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Endpoint, Node, Nodes, PulsarEndpoints
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.authorizer import Authorizer
from magnetar.broker.settings import BrokerSettings
from magnetar.protocols.pulsar.commands import load_commands
from magnetar.protocols.pulsar.service import PulsarService, PulsarSettings
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.testing.audit import MemoryAudit
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.pulsar.commands import Buffer, frame_command, read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect, FeatureFlags

_SMALL = LocalStoreSettings(journal_file_bytes=4 << 20, journal_file_count=2, round_bytes_max=1 << 20)
TIMEOUT_S = 10.0

Received = tuple[int, Any, bytes]  # type, sub-message, entry


class PulsarClient:
    """One connection: its session receives at once what it sends, and `received` has what the session sends."""

    def __init__(
        self, service: PulsarService, host: str = "127.0.0.1", certificate_name: str | None = None
    ) -> None:
        self.received: list[Received] = []
        self.writes: list[int] = []  # the number of frames in each write
        self.is_closed = False
        self.is_paused = False
        self._came = asyncio.Event()
        self.session = PulsarSession(service, self, 1, host, "127.0.0.1", certificate_name)

    # what the session calls

    def send(self, parts: list[Buffer]) -> None:
        assert not self.is_closed
        data = memoryview(b"".join(parts))
        count = 0
        while data:
            (size,) = struct.unpack_from(">I", data)
            kind, body, entry = read_command(data[4 : 4 + size])
            self.received.append((kind, body, bytes(entry)))
            data = data[4 + size :]
            count += 1
        self.writes.append(count)
        self._came.set()

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def has_hung_up(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True
        self._came.set()

    # what a test calls

    def give(self, data: bytes) -> None:
        """Pass bytes to the session, as a socket would."""
        view = memoryview(data)
        while view and not self.is_closed:
            buffer = self.session.get_buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            self.session.received(count)

    def say(self, body: Any, entry: bytes = b"") -> None:
        """Send a command, given by its sub-message, followed by an entry."""
        self.give(framed(body, entry))

    async def hear(self, kind: "BaseCommand.Type") -> Any:
        """Wait for the next command of this type, and remove it and all earlier ones from `received`."""
        return (await self.hear_entry(kind))[0]

    async def hear_entry(self, kind: "BaseCommand.Type") -> tuple[Any, bytes]:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for at, (found, body, entry) in enumerate(self.received):
                    if found == kind:
                        del self.received[: at + 1]
                        return body, entry
                assert not self.is_closed, "the connection was closed"
                self._came.clear()
                await self._came.wait()

    async def ask(self, body: Any, kind: "BaseCommand.Type") -> Any:
        self.say(body)
        return await self.hear(kind)

    async def connect(self, version: int = 21, **fields: Any) -> Any:
        command = CommandConnect(client_version="test", protocol_version=version, **fields)
        command.feature_flags.CopyFrom(FeatureFlags(supports_broker_entry_metadata=True))
        return await self.ask(command, BaseCommand.CONNECTED)

    def leave(self) -> None:
        """Break the connection."""
        self.is_closed = True
        self.session.closed()


_NAMES = {
    field.message_type.full_name: (field.number, field.name)
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}


def framed(body: Any, entry: bytes = b"") -> bytes:
    """The frame of a command, given by its sub-message, followed by an entry."""
    number, name = _NAMES[body.DESCRIPTOR.full_name]
    command = BaseCommand(type=BaseCommand.Type.Name(number))
    getattr(command, name).CopyFrom(body)
    frame = frame_command(command)
    (size,) = struct.unpack_from(">I", frame)
    return struct.pack(">I", size + len(entry)) + frame[4:] + entry


class PulsarDoor:
    """A Pulsar service with its broker; a test moves `clock`."""

    def __init__(
        self,
        service: PulsarService,
        broker: Broker,
        clock: FakeClock,
        metadata: MemoryMetadataStore,
        audit: MemoryAudit,
    ) -> None:
        self.service = service
        self.broker = broker
        self.clock = clock
        self.metadata = metadata
        self.audit = audit

    def client(self, certificate_name: str | None = None) -> PulsarClient:
        return PulsarClient(self.service, certificate_name=certificate_name)

    async def connected(self, version: int = 21) -> PulsarClient:
        client = PulsarClient(self.service)
        await client.connect(version)
        return client


@asynccontextmanager
async def running_door(
    folder: Path,
    settings: BrokerSettings | None = None,
    pulsar: Mapping[str, Any] | None = None,
    authorizer: Authorizer | None = None,
    authentication: Authentication | None = None,
    with_logins: bool = False,
) -> AsyncIterator[PulsarDoor]:
    """A new broker with its ledgers in `folder`; `pulsar` are fields of `PulsarSettings`; with `with_logins` its
    audit log has successful logins, too.
    """
    metadata = MemoryMetadataStore()
    clock = FakeClock()
    settings = settings or BrokerSettings(data_dir=str(folder), entry_cache_bytes=1 << 20)
    door_settings = replace(
        PulsarSettings(PulsarEndpoints(Endpoint("broker.example", 6650))), **(pulsar or {})
    )
    store = await LocalLedgerStore.start(folder, settings=_SMALL, clock=clock)
    nodes = Nodes([Node(1, None, {"PLAINTEXT": Endpoint("127.0.0.1", 9092)})])
    audit = MemoryAudit(with_logins=with_logins)
    broker = Broker(settings, store, metadata, clock, nodes, authorizer, authentication, audit=audit.audit)
    await broker.start()
    service = PulsarService(broker.cases, Arena(64 << 20), door_settings, load_commands())
    try:
        yield PulsarDoor(service, broker, clock, metadata, audit)
    finally:
        for session in list(service.sessions):
            session.closed()
        await service.tasks.ended()
        await broker.stop()
        await store.close()
