"""A Pulsar connection: its handshake, its keep-alive, and commands that close it."""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.protocols.pulsar.session import AT_WORK_MAX, PROBE_S
from magnetar.testing.pulsar import PulsarDoor
from magnetar.wire.pulsar.commands import FRAME_PADDING_BYTES
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAuthResponse,
    CommandCloseConsumer,
    CommandConnect,
    CommandPing,
    CommandPong,
    CommandSeek,
)

WithDoor = Callable[..., None]


@pytest.mark.parametrize(("client", "answered"), [(0, 0), (17, 17), (20, 20), (21, 21), (22, 21), (1000, 21)])
def test_the_lower_protocol_version_holds(with_door: WithDoor, client: int, answered: int) -> None:
    async def scenario(door: PulsarDoor) -> None:
        connected = await door.client().connect(client)
        assert connected.protocol_version == answered
        assert connected.server_version.startswith("Magnetar ")
        assert connected.max_message_size == 5 << 20
        assert connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation

    with_door(scenario)


def test_any_credentials_are_accepted(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = door.client()
        await client.connect(auth_method_name="token", auth_data=b"\xff\0whatever")
        client.say(CommandAuthResponse())
        await client.ask(CommandPing(), BaseCommand.PONG)

    with_door(scenario)


@pytest.mark.parametrize("first", [CommandPing(), CommandSeek(consumer_id=1, request_id=1)])
def test_nothing_may_come_before_connect(with_door: WithDoor, first: Any) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = door.client()
        client.say(first)
        assert client.is_closed
        assert not client.received

    with_door(scenario)


def test_those_that_never_connect_cannot_fill_the_log(
    with_door: WithDoor, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        for _ in range(50):
            door.client().say(CommandPing())
        assert len(caplog.messages) == 1
        known = door.client()
        await known.connect()
        known.say(CommandConnect(client_version="again"))
        assert known.is_closed
        assert len(caplog.messages) == 2, "of a client that is known each line counts"

    with caplog.at_level(logging.WARNING):
        with_door(scenario)


def test_connect_comes_once(with_door: WithDoor, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.say(CommandConnect(client_version="again"))
        assert client.is_closed
        assert "after CONNECT" in caplog.text

    with_door(scenario)


def test_a_command_that_is_not_served_closes_with_one_line(
    with_door: WithDoor, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.say(CommandCloseConsumer(consumer_id=1, request_id=1))
        served = door.service.commands.items()
        door.service.commands = {kind: command for kind, command in served if kind != BaseCommand.PING}
        other = await door.connected()
        other.say(CommandPing())
        assert other.is_closed
        assert [record.levelno for record in caplog.records if "PING is not served" in record.message] == [
            logging.WARNING
        ]
        assert other.session not in door.service.sessions

    with_door(scenario)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (struct.pack(">I", 0), "a frame of 0 bytes"),
        (struct.pack(">I", (5 << 20) + FRAME_PADDING_BYTES + 1), "are allowed"),
        (b"GET / HTTP/1.1\r\n\r\n", "are allowed"),
        (struct.pack(">II", 4, 0), "unknown type"),
        (struct.pack(">II", 6, 2) + b"\x08\x52", "unknown type"),
        (struct.pack(">II", 5, 1) + b"\xff", "malformed"),
    ],
)
def test_nonsense_closes_the_connection(
    with_door: WithDoor, caplog: pytest.LogCaptureFixture, data: bytes, says: str
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.give(data)
        assert client.is_closed
        assert says in caplog.text

    with_door(scenario)


def test_a_client_without_connect_is_cut_off(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = door.client()
        door.clock.advance(29.9)
        assert not client.is_closed
        door.clock.advance(0.2)
        assert client.is_closed

    with_door(scenario)


def test_a_silent_client_is_asked_and_then_cut_off(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        door.clock.advance(30)
        await client.hear(BaseCommand.PING)
        client.say(CommandPong())
        door.clock.advance(30)
        await client.hear(BaseCommand.PING)
        client.say(CommandPing())  # anything will do
        door.clock.advance(30)
        assert not client.is_closed
        door.clock.advance(30)
        assert client.is_closed

    with_door(scenario)


def test_a_client_that_nothing_is_read_from_is_not_blamed_for_its_silence(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        for _ in range(AT_WORK_MAX + 1):
            client.session.began_work(1)
        assert client.is_paused
        door.clock.advance(300)
        assert not client.is_closed
        for _ in range(AT_WORK_MAX + 1):
            client.session.ended_work(1)
        assert not client.is_paused

    with_door(scenario)


def test_a_client_that_is_asked_and_answers_is_alive(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        asked = [asyncio.ensure_future(client.session.is_alive()) for _ in range(2)]
        await client.hear(BaseCommand.PING)
        client.say(CommandPong())
        assert await asyncio.gather(*asked) == [True, True]
        door.clock.advance(PROBE_S)
        assert not client.is_closed
        assert not client.received, "one PING for both who asked"
        gone = asyncio.ensure_future(client.session.is_alive())
        await client.hear(BaseCommand.PING)
        client.leave()
        assert await gone is False
        assert await client.session.is_alive() is False

    with_door(scenario)
