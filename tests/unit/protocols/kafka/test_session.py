"""A Kafka connection's session, driven with bytes; its peer only remembers."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from magnetar.base.turns import TURN_S
from magnetar.protocols.kafka.session import KafkaSession
from magnetar.wire.kafka.header import encode_request_header
from magnetar.wire.kafka.messages import asking, create_topics, metadata
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.runtime import Buffer

Run = Callable[..., None]


class SilentPeer:
    def __init__(self) -> None:
        self.sent: list[Buffer] = []
        self.closed = False

    def send(self, parts: list[Buffer]) -> None:
        self.sent += parts

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def has_hung_up(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def frame(codec: Any, version: int, request: Any) -> bytes:
    parts: list[Buffer] = [encode_request_header(codec.API_KEY, version, 7, "test")]
    asking.load(codec.API_KEY).encode_request(version, request, parts)
    body = b"".join(parts)
    return len(body).to_bytes(4, "big") + body


def connect(client: Any) -> tuple[SilentPeer, Any]:
    peer = SilentPeer()
    nodes = client.broker.nodes
    node = nodes.by_id[nodes.controller_id]
    return peer, KafkaSession(client.service, peer, node, "PLAINTEXT", 1, "127.0.0.1", "127.0.0.1")


def feed(session: Any, data: bytes) -> None:
    session.get_buffer()[: len(data)] = data
    session.received(len(data))


def test_a_topic_is_made_though_the_client_hangs_up_meanwhile(with_broker: Run) -> None:
    # What librdkafka does: it asks the bootstrap address for a new topic, and drops that connection once it knows the
    # brokers.
    asked = {
        "by-metadata": frame(metadata, 12, MetadataRequest([MetadataRequestTopic(name="by-metadata")])),
        "by-create": frame(create_topics, 7, CreateTopicsRequest([CreatableTopic("by-create", 1, 1)], 1000)),
    }

    async def scenario(client: Any) -> None:
        commit = client.metadata.commit
        written, go_on = asyncio.Event(), asyncio.Event()

        async def held_commit(*operations: Any) -> None:
            await commit(*operations)
            written.set()
            await go_on.wait()

        client.metadata.commit = held_commit
        for name, data in asked.items():
            written.clear()
            go_on.clear()
            peer, session = connect(client)
            feed(session, data)
            await written.wait()
            session.closed()
            await asyncio.sleep(0)
            go_on.set()
            await client.service.tasks.ended()
            assert peer.sent == []
            assert client.broker.topics.get(client.broker.kafka_topics.name(name)).partition_count == 1

    with_broker(scenario)


def test_requests_that_came_together_leave_turns_to_others(with_broker: Run) -> None:
    # 64 KiB of requests that describe a large topic were one turn of the event loop, of eight seconds.
    async def scenario(client: Any) -> None:
        await client.ask("create_topics", 7, CreateTopicsRequest([CreatableTopic("wide", 50, 1)], 1000))
        peer, session = connect(client)
        time_s = count(0, TURN_S / 3)
        session.intake.monotonic = lambda: next(time_s)
        counts = client.service.request_counts
        asked = frame(metadata, 12, MetadataRequest([MetadataRequestTopic(name="wide")]))
        feed(session, asked * 50)
        assert counts[metadata.API_KEY] <= 3
        feed(session, asked)  # was on its way when reading stopped
        done = counts[metadata.API_KEY]
        while done < 51:
            await asyncio.sleep(0)
            assert counts[metadata.API_KEY] <= done + 3
            done = counts[metadata.API_KEY]
        await asyncio.sleep(0)
        assert len(peer.sent) == 51
        assert client.service.memory.used == 0

    with_broker(scenario)


def test_requests_that_wait_for_their_turn_are_forgotten_with_their_connection(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        peer, session = connect(client)
        time_s = count(0, TURN_S)
        session.intake.monotonic = lambda: next(time_s)
        feed(session, frame(metadata, 12, MetadataRequest([])) * 5)
        session.closed()
        for _ in range(3):
            await asyncio.sleep(0)
        assert peer.sent == []
        assert client.service.memory.used == 0
        assert client.service.request_counts[metadata.API_KEY] <= 1

    with_broker(scenario)
