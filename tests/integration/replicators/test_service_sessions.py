"""A broker's connection to the replicator service, in frames: what it hears, and when the service gives it up."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar.base.tasks import Tasks
from magnetar.replicator_service.config import Target, Targets
from magnetar.replicator_service.lanes import Lanes
from magnetar.replicator_service.session import Session, Shared
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.testing.pulsar import framed
from magnetar.testing.server import MagnetarProcess
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.commands import read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

PATIENCE_S = 30.0
URL = "pulsar://127.0.0.1:6660"
log = logging.getLogger(__name__)


class Broker:
    """The broker's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, body: Any) -> None:
        self._writer.write(framed(body))

    async def hear(self) -> tuple[int, Any]:
        async with asyncio.timeout(PATIENCE_S):
            (size,) = struct.unpack(">I", await self._reader.readexactly(4))
            kind, body, _ = read_command(memoryview(await self._reader.readexactly(size)))
        return kind, body

    async def ask(self, body: Any) -> tuple[int, Any]:
        self.say(body)
        return await self.hear()

    async def is_closed(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.read() == b""

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def broker(keep_alive_s: float = PATIENCE_S, targets: Targets | None = None) -> AsyncIterator[Broker]:
    tasks, lanes = Tasks(log), Lanes()
    shared = Shared(targets or {}, (), None, lanes, tasks, URL, keep_alive_s)

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.spawn("a session", Session(shared, reader, writer).run())

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    made = Broker(*await asyncio.open_connection(*server.sockets[0].getsockname()))
    try:
        yield made
    finally:
        await made.close()
        server.close()
        await lanes.close()
        await tasks.ended()


CONNECT = pb.CommandConnect(client_version="t", protocol_version=19)


def test_the_service_says_what_it_can_and_finds_itself_for_every_topic() -> None:
    async def scenario() -> None:
        async with broker() as one:
            kind, connected = await one.ask(CONNECT)
            assert (kind, connected.protocol_version) == (BaseCommand.CONNECTED, 19)
            assert connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation
            assert not connected.feature_flags.supports_repl_dedup_by_lid_and_eid
            _, partitions = await one.ask(pb.CommandPartitionedTopicMetadata(topic="t", request_id=1))
            assert (partitions.request_id, partitions.partitions) == (1, 0)
            _, found = await one.ask(pb.CommandLookupTopic(topic="t", request_id=2))
            assert (found.request_id, found.response, found.brokerServiceUrl, found.authoritative) == (
                2,
                pb.CommandLookupTopicResponse.Connect,
                URL,
                True,
            )

    asyncio.run(scenario())


def test_any_schema_is_taken_and_none_is_kept() -> None:
    async def scenario() -> None:
        async with broker() as one:
            await one.ask(CONNECT)
            versions = []
            for number, data in enumerate((b"a", b"b", b"a")):
                schema = pb.Schema(name="s", schema_data=data, type="Avro")
                command = pb.CommandGetOrCreateSchema(topic="t", request_id=number, schema=schema)
                _, answer = await one.ask(command)
                assert answer.request_id == number
                versions.append(answer.schema_version)
            assert versions[0] == versions[2] != versions[1]
            _, none = await one.ask(pb.CommandGetSchema(topic="t", request_id=9))
            assert (none.request_id, none.error_code) == (9, pb.ServerError.TopicNotFound)

    asyncio.run(scenario())


def test_a_broker_that_answers_a_ping_stays_and_one_that_does_not_goes() -> None:
    async def scenario() -> None:
        async with broker(keep_alive_s=0.2) as one:
            await one.ask(CONNECT)
            for _ in range(3):
                kind, _ = await one.hear()
                assert kind == BaseCommand.PING
                one.say(pb.CommandPong())
            kind, _ = await one.hear()
            assert kind == BaseCommand.PING
            assert await one.is_closed()

    asyncio.run(scenario())


def test_a_stranger_that_says_nothing_hears_nothing_and_goes() -> None:
    async def scenario() -> None:
        async with broker(keep_alive_s=0.2) as one:
            assert await one.is_closed()

    asyncio.run(scenario())


def test_a_producer_that_is_closed_may_be_closed_again_and_its_late_messages_are_dropped() -> None:
    async def scenario() -> None:
        async with broker() as one:
            await one.ask(CONNECT)
            name = "pulsar.repl.a-->b"
            command = pb.CommandProducer(
                topic="persistent://p/n/t", producer_id=1, request_id=1, producer_name=name
            )
            kind, refused = await one.ask(command)
            assert (kind, refused.error) == (BaseCommand.ERROR, pb.ServerError.NotAllowedError)
            one.say(pb.CommandSend(producer_id=1, sequence_id=0))
            kind, done = await one.ask(pb.CommandCloseProducer(producer_id=1, request_id=2))
            assert (kind, done.request_id) == (BaseCommand.SUCCESS, 2)
            one.say(pb.CommandSend(producer_id=2, sequence_id=0))
            assert await one.is_closed()

    asyncio.run(scenario())


def test_a_producer_has_all_that_the_client_in_javas_broker_asks_for(server: MagnetarProcess) -> None:
    policies = ReplicatorPolicies("b", {"bootstrap.servers": server.bootstrap}, {"t": "copy"})

    async def scenario() -> None:
        async with broker(targets={("p/n", "b"): Target("p/n", "Kafka", policies)}) as one:
            await one.ask(CONNECT)
            name = "pulsar.repl.a-->b"
            command = pb.CommandProducer(
                topic="persistent://p/n/t", producer_id=1, request_id=1, producer_name=name
            )
            kind, opened = await one.ask(command)
            assert (kind, opened.request_id, opened.producer_name) == (BaseCommand.PRODUCER_SUCCESS, 1, name)
            assert opened.HasField("schema_version")
            assert (opened.last_sequence_id, opened.producer_ready) == (-1, True)

    asyncio.run(scenario())


@pytest.mark.parametrize("topic", ["persistent://p/n", "", "persistent://p/n/ "])
def test_a_name_that_is_no_topics_is_refused(topic: str) -> None:
    async def scenario() -> None:
        async with broker() as one:
            await one.ask(CONNECT)
            command = pb.CommandProducer(
                topic=topic, producer_id=1, request_id=1, producer_name="pulsar.repl.a-->b"
            )
            kind, refused = await one.ask(command)
            assert (kind, refused.error) == (BaseCommand.ERROR, pb.ServerError.InvalidTopicName)

    asyncio.run(scenario())
