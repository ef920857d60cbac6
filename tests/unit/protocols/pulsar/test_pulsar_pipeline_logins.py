"""Tokens of pipelines and functions at the Pulsar door: whether or not others log in, the client is the owner."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.jobs.function_model import Function, new_function
from magnetar.broker.jobs.model import LEASE_S, OWNER_TOKEN_S, WorkerSays
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.model import Principal
from magnetar.broker.settings import BrokerSettings
from magnetar.testing.pulsar import PulsarDoor, running_door
from magnetar.wire.pulsar.PulsarApi_pb2 import AuthData, BaseCommand, CommandAuthResponse, CommandPing
from tests.unit.protocols.pulsar.test_pulsar_login import CHECK_S, FAILED, connect_command, logged_in, refusal

Scenario = Callable[[PulsarDoor], Coroutine[Any, Any, None]]


def with_door(tmp_path: Path, scenario: Scenario, *, asks: bool = True, check_s: float = CHECK_S) -> None:
    async def main() -> None:
        # To a client with a bad token there is the anonymous role, which it must not get.
        authentication = Authentication({}, "nemo", frozenset(["proxy"])) if asks else None
        settings = BrokerSettings(data_dir=str(tmp_path), entry_cache_bytes=1 << 20, functions_enabled=True)
        pulsar = {"refresh_check_s": check_s, "keep_alive_s": 0.0}
        async with running_door(
            tmp_path, settings, pulsar, authentication=authentication, with_logins=asks
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
        assert client.is_closed, "for the owner of what has been deleted it may do nothing more"

    with_door(tmp_path, scenario, asks=asks)


async def _stop(pipelines: Pipelines, epoch: int) -> None:
    """The user stops it, and later the worker has."""
    await pipelines.stop("p")
    await reported(pipelines, epoch, "RUNNING")
    assert pipelines.is_run_by(pipelines.get("p"), epoch), "it may end its work"
    await reported(pipelines, epoch, "STOPPED")


async def _lose_the_lease(pipelines: Pipelines, epoch: int) -> None:
    await pipelines.take_lease("v", "here", 2, "here:/w")


async def _end(pipelines: Pipelines, epoch: int) -> None:
    pipelines.end_lease("w", epoch)


async def reported(pipelines: Pipelines, epoch: int, state: str) -> None:
    one = pipelines.get("p")
    report = {"id": one.id, "run": one.run, "state": state}
    await pipelines.reported("w", epoch, {"p": report}, WorkerSays())


@pytest.mark.parametrize("withdraw", [_stop, _lose_the_lease, _end])
def test_a_silent_client_is_closed_when_nothing_runs_its_pipeline(
    tmp_path: Path, withdraw: Callable[[Pipelines, int], Coroutine[Any, Any, None]]
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        pipelines = door.broker.pipelines
        (token,) = await tokens_of(door, "p")
        client, other = await logged_in(door, token, refreshes=True), await door.connected()
        assert pipelines.lease.holder is not None
        await withdraw(pipelines, pipelines.lease.holder.epoch)
        assert client.is_closed
        assert not other.is_closed
        again = door.client()
        again.say(connect_command(auth_method_name="token", auth_data=token))
        assert refusal(again) == FAILED

    with_door(tmp_path, scenario, asks=False)


def test_a_silent_client_is_closed_when_the_lease_has_lapsed(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        (token,) = await tokens_of(door, "p")
        client = await logged_in(door, token, refreshes=True)
        door.clock.advance(LEASE_S)
        door.clock.advance(CHECK_S)
        assert client.is_closed

    with_door(tmp_path, scenario)


def test_a_command_is_the_last_one_when_the_lease_has_lapsed(tmp_path: Path) -> None:
    """Nothing reports that a lease lapses: the command comes before the timer looks."""

    async def scenario(door: PulsarDoor) -> None:
        (token,) = await tokens_of(door, "p")
        client = await logged_in(door, token)
        door.clock.advance(LEASE_S)
        assert not client.is_closed
        client.say(CommandPing())
        assert client.is_closed

    with_door(tmp_path, scenario, check_s=2 * LEASE_S)


def new_one(name: str) -> Function:
    config = {"className": "f.process", "inputs": ["in"]}
    return new_function("public", "default", name, config, "f.py", Principal("User", "alice"))


@pytest.mark.parametrize("asks", [True, False])
def test_a_functions_process_is_the_owner_until_it_has_ended(tmp_path: Path, asks: bool) -> None:
    async def scenario(door: PulsarDoor) -> None:
        functions = door.broker.functions
        made = await functions.create(new_one("f"), b"code")
        tokens = [functions.let_in(made) for _ in range(2)]
        clients = [await logged_in(door, token, refreshes=True) for token in tokens]
        caller = clients[0].session.caller
        assert (caller.principal, caller.pipeline, caller.by_token) == (Principal("User", "alice"), "", True)
        assert caller.origin.proxy == "function public/default/f"
        response = AuthData(auth_method_name="token", auth_data=tokens[0])
        clients[0].say(CommandAuthResponse(response=response))
        await clients[0].ask(CommandPing(), BaseCommand.PONG)
        functions.shut_out(tokens[0])
        assert [client.is_closed for client in clients] == [True, False]
        again = door.client()
        again.say(connect_command(auth_method_name="token", auth_data=tokens[0]))
        assert refusal(again) == FAILED

    with_door(tmp_path, scenario, asks=asks)


def test_the_token_of_another_job_renews_no_login(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(door: PulsarDoor) -> None:
        (pipeline,) = await tokens_of(door, "p")
        functions = door.broker.functions
        function, other = [
            functions.let_in(await functions.create(new_one(name), b"code")) for name in ("f", "g")
        ]
        for mine, shown in [(function, pipeline), (pipeline, function), (function, other), (function, b"x")]:
            client = await logged_in(door, mine, refreshes=True)
            response = AuthData(auth_method_name="token", auth_data=shown)
            client.say(CommandAuthResponse(response=response))
            assert client.is_closed
        assert caplog.text.count("cannot be let in") == 4

    with_door(tmp_path, scenario)


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda token: token + b"x",
        lambda token: b"magnetar-pipeline.\xff",
        lambda token: b"magnetar-function.0",
    ],
)
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
