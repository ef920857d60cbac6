"""A session of Kafka's door whose peer is a test."""

import asyncio
from collections.abc import Callable
from typing import Any

from magnetar.broker.topics.model import NewTopic
from magnetar.protocols.kafka.session import KafkaSession
from magnetar.wire.kafka.header import decode_response_header, encode_request_header
from magnetar.wire.kafka.messages import asking
from magnetar.wire.kafka.runtime import Buffer


class Wire:
    """A session whose peer notes what it is sent."""

    def __init__(self, client: Any) -> None:
        nodes = client.broker.nodes
        node = nodes.by_id[nodes.controller_id]
        self.bytes = bytearray()
        self.session = KafkaSession(client.service, self, node, "PLAINTEXT", 1, "127.0.0.1", "127.0.0.1")
        self.session.intake.monotonic = lambda: 0.0  # turns have no end, however busy the machine is
        self.is_closed = False

    def send(self, parts: list[Buffer]) -> None:
        for part in parts:
            self.bytes += part

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def has_hung_up(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True

    def feed(self, codec: Any, version: int, request: Any) -> None:
        parts: list[Buffer] = [encode_request_header(codec.API_KEY, version, 7, "test")]
        asking.load(codec.API_KEY).encode_request(version, request, parts)
        body = b"".join(parts)
        view = memoryview(len(body).to_bytes(4, "big") + body)
        while len(view):
            buffer = self.session.get_buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            self.session.received(count)
            view = view[count:]

    async def ask(self, codec: Any, version: int, request: Any) -> Any:
        self.bytes.clear()
        self.feed(codec, version, request)
        while not self.bytes:
            assert not self.is_closed
            await asyncio.sleep(0.001)
        view = memoryview(bytes(self.bytes))
        assert int.from_bytes(view[:4], "big") == len(view) - 4
        _, position = decode_response_header(view[4:], codec.API_KEY, version)
        return asking.load(codec.API_KEY).decode_response(version, view[4:], position)


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110  no code would set an event
        await asyncio.sleep(0.001)


async def create(client: Any, name: str, width: int) -> Any:
    topics = client.broker.topics
    wanted = client.broker.kafka_topics.name(name)
    await topics.create([topics.plan(NewTopic(wanted, width))])
    return topics.get(wanted)
