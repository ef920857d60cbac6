"""A pipeline's token at the Pulsar door: its client is the owner, whether or not others have to log in."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.jobs.model import OWNER_TOKEN_S
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.model import Principal
from magnetar.testing.pulsar import PulsarDoor, running_door
from magnetar.wire.pulsar.PulsarApi_pb2 import AuthData, BaseCommand, CommandAuthResponse, CommandPing
from tests.unit.protocols.pulsar.test_pulsar_login import CHECK_S, FAILED, connect_command, logged_in, refusal

Scenario = Callable[[PulsarDoor], Coroutine[Any, Any, None]]


def with_door(tmp_path: Path, scenario: Scenario, *, asks: bool = True) -> None:
    async def main() -> None:
        # To a client with a bad token there is the anonymous role, which it must not get.
        authentication = Authentication({}, "nemo", frozenset(["proxy"])) if asks else None
        pulsar = {"refresh_check_s": CHECK_S, "keep_alive_s": 0.0}
        async with running_door(
            tmp_path, None, pulsar, authentication=authentication, with_logins=asks
        ) as door:
            await scenario(door)

    asyncio.run(main())


async def tokens_of(door: PulsarDoor, *names: str) -> list[bytes]:
    """Tokens of new pipelines, whose owner is alice."""
    pipelines = door.broker.pipelines
    for name in names:
        await pipelines.create(name, "table", {}, Principal("User", "alice"))
    epoch = await pipelines.take_lease("w", "here", 1, "here:/w")
    made = pipelines.tokens("w", epoch, names)
    return [made[name].encode() for name in names]


@pytest.mark.parametrize("asks", [True, False])
def test_its_client_is_the_owner_until_the_pipeline_is_deleted(tmp_path: Path, asks: bool) -> None:
    async def scenario(door: PulsarDoor) -> None:
        (token,) = await tokens_of(door, "p")
        client = await logged_in(door, token)
        caller = client.session.caller
        assert (caller.principal, caller.pipeline, caller.by_token) == (Principal("User", "alice"), "p", True)
        assert caller.origin.proxy == "pipeline p"
        await client.ask(CommandPing(), BaseCommand.PONG)
        await door.broker.pipelines.delete("p", force=True)
        client.say(CommandPing())
        assert client.is_closed, "for the owner of what has been deleted it may do nothing more"

    with_door(tmp_path, scenario, asks=asks)


def test_a_silent_client_is_closed_as_well_when_its_pipeline_is_deleted(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        (token,) = await tokens_of(door, "p")
        client = await logged_in(door, token, refreshes=True)
        await door.broker.pipelines.delete("p", force=True)
        door.clock.advance(CHECK_S)
        assert client.is_closed

    with_door(tmp_path, scenario)


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("change", [lambda token: token + b"x", lambda token: b"magnetar-pipeline.\xff"])
def test_a_bad_token_makes_no_other_client_of_it(
    tmp_path: Path, asks: bool, change: Callable[[bytes], bytes]
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        (token,) = await tokens_of(door, "p")
        client = door.client()
        client.say(connect_command(auth_method_name="token", auth_data=change(token)))
        assert refusal(client) == FAILED

    with_door(tmp_path, scenario, asks=asks)


def test_a_new_token_keeps_the_connection_and_that_of_another_pipeline_ends_it(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        old, _ = await tokens_of(door, "p", "q")
        client = await logged_in(door, old, refreshes=True)
        pipelines = door.broker.pipelines
        assert pipelines.lease.holder is not None
        epoch = pipelines.lease.holder.epoch
        for _ in range(int(OWNER_TOKEN_S / CHECK_S)):
            pipelines.lease.renew("w", epoch)
            door.clock.advance(CHECK_S)
        await client.hear(BaseCommand.AUTH_CHALLENGE)
        new = pipelines.tokens("w", epoch, ["p", "q"])

        def answer(token: bytes) -> None:
            response = AuthData(auth_method_name="token", auth_data=token)
            client.say(CommandAuthResponse(response=response))

        answer(new["p"].encode())
        await client.ask(CommandPing(), BaseCommand.PONG)
        answer(new["q"].encode())
        assert client.is_closed

    with_door(tmp_path, scenario)
