"""Clients of the Pulsar door that have to show who they are: CONNECT, AUTH_CHALLENGE, AUTH_RESPONSE."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import jwt
import pytest

from magnetar.broker.security.authentication import Authentication, Method, by_certificate
from magnetar.broker.security.model import Principal
from magnetar.broker.security.tokens import TokenValidator, secret_key, token_method
from magnetar.protocols.door import LOGIN_S_MAX
from magnetar.protocols.pulsar.session import LOGIN_FRAME_BYTES_MAX
from magnetar.testing.pulsar import PulsarClient, PulsarDoor, running_door
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
    CommandProducer,
    FeatureFlags,
    ServerError,
)

SECRET = bytes(range(1, 33))
NOW_S = 1_700_000_000
CHECK_S = 2.0


def token(
    role: str | None = "alice", life_s: int | None = None, secret: bytes = SECRET, **claims: Any
) -> bytes:
    if role is not None:
        claims["sub"] = role
    if life_s is not None:
        claims["exp"] = NOW_S + life_s
    return jwt.encode(claims, secret, "HS256").encode()


def with_logins(
    tmp_path: Path, scenario: Callable[[PulsarDoor], Coroutine[Any, Any, None]], anonymous_role: str = ""
) -> None:
    async def main() -> None:
        methods: dict[str, Method] = {"tls": by_certificate}
        authentication = Authentication(methods, anonymous_role, frozenset(["proxy"]))
        pulsar = {"refresh_check_s": CHECK_S, "keep_alive_s": 0.0}
        async with running_door(
            tmp_path, None, pulsar, authentication=authentication, with_logins=True
        ) as door:
            methods["token"] = token_method(TokenValidator(secret_key(SECRET), door.clock))
            await scenario(door)

    asyncio.run(main())


def connect_command(refreshes: bool = False, **fields: Any) -> CommandConnect:
    flags = FeatureFlags(supports_auth_refresh=refreshes)
    return CommandConnect(client_version="test", protocol_version=21, feature_flags=flags, **fields)


async def logged_in(door: PulsarDoor, shown: bytes, refreshes: bool = False) -> PulsarClient:
    client = door.client()
    command = connect_command(refreshes, auth_method_name="token", auth_data=shown)
    await client.ask(command, BaseCommand.CONNECTED)
    return client


def refusal(client: PulsarClient) -> tuple[int, int, str]:
    """What a client that is not let in hears, and nothing else."""
    assert client.is_closed
    [(kind, error, _)] = client.received
    assert kind == BaseCommand.ERROR
    return error.request_id, error.error, error.message


FAILED = ((1 << 64) - 1, ServerError.AuthenticationError, "Failed to authenticate")


def test_role_of_the_token_is_the_caller(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await logged_in(door, token())
        assert client.session.caller.principal == Principal("User", "alice")
        await client.ask(CommandPing(), BaseCommand.PONG)

    with_logins(tmp_path, scenario)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"auth_method_name": "none"},
        {"auth_method_name": "token"},
        {"auth_method_name": "token", "auth_data": b"\xff\0nonsense"},
        {"auth_method_name": "token", "auth_data": token(secret=bytes(32) + b"1")},
        {"auth_method_name": "token", "auth_data": token(life_s=0)},
        {"auth_method_name": "token", "auth_data": token(None)},
        {"auth_method_name": "basic", "auth_data": b"alice:secret"},
        {"auth_method_name": "tls"},
        {"auth_data": token()},
    ],
)
def test_others_are_told_nothing_but_that(
    tmp_path: Path, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = door.client()
        client.say(connect_command(**fields))
        assert refusal(client) == FAILED
        assert client.session not in door.service.sessions

    with_logins(tmp_path, scenario)
    assert token().decode()[:60] not in caplog.text


def test_name_in_the_certificate_is_the_caller_where_the_client_says_so(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        certificate = "CN=Dave,OU=People,O=Magnetar"
        client = door.client(certificate)
        await client.ask(connect_command(auth_method_name="tls"), BaseCommand.CONNECTED)
        assert client.session.caller.principal == Principal("User", "Dave")
        other = door.client(certificate)
        await other.ask(connect_command(auth_method_name="token", auth_data=token()), BaseCommand.CONNECTED)
        assert other.session.caller.principal == Principal("User", "alice")
        for method in ("", "token", "none"):
            without = door.client(certificate)
            without.say(connect_command(auth_method_name=method))
            assert refusal(without) == FAILED
        nameless = door.client("OU=Robots")
        nameless.say(connect_command(auth_method_name="tls"))
        assert refusal(nameless) == FAILED

    with_logins(tmp_path, scenario)


@pytest.mark.parametrize(
    "first", [CommandPing(), CommandAuthResponse(), CommandProducer(topic="t", producer_id=1, request_id=1)]
)
def test_nothing_is_served_before_connect(tmp_path: Path, first: Any) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = door.client()
        client.say(first)
        assert client.is_closed
        assert not client.received

    with_logins(tmp_path, scenario)


def test_second_connect_closes(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await logged_in(door, token())
        client.say(connect_command(auth_method_name="token", auth_data=token("bob")))
        assert client.is_closed
        assert client.session.caller.principal.name == "alice"

    with_logins(tmp_path, scenario)


def test_client_that_shows_nothing_has_the_anonymous_role(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        assert client.session.caller.principal.name == "nemo"
        other = door.client()
        other.say(connect_command(auth_method_name="token", auth_data=b"bad"))
        assert refusal(other) == FAILED

    with_logins(tmp_path, scenario, "nemo")


@pytest.mark.parametrize("role", ["nemo", ""])
def test_client_that_shows_what_none_looks_at_shows_nothing(tmp_path: Path, role: str) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = door.client()
        client.say(connect_command(auth_method_name="unknown", auth_data=token("alice")))
        if role:
            assert client.session.caller.principal.name == role
            await client.ask(CommandPing(), BaseCommand.PONG)
        else:
            assert refusal(client) == FAILED

    with_logins(tmp_path, scenario, role)


def test_proxy_speaks_for_its_client_and_no_other_role_does(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        proxy = door.client()
        fields: dict[str, Any] = {"auth_method_name": "token", "original_principal": "alice"}
        await proxy.ask(connect_command(auth_data=token("proxy"), **fields), BaseCommand.CONNECTED)
        assert proxy.session.caller.principal.name == "alice"
        other = door.client()
        other.say(connect_command(auth_data=token("bob"), **fields))
        assert refusal(other) == (FAILED[0], ServerError.AuthorizationError, "Invalid roles.")

    with_logins(tmp_path, scenario)


def test_frames_are_small_before_the_login(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = door.client()
        client.give((LOGIN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        assert client.is_closed
        other = await logged_in(door, token())
        other.give((LOGIN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        assert not other.is_closed

    with_logins(tmp_path, scenario)


def test_login_has_to_come_in_time(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, other = door.client(), await logged_in(door, token())
        door.clock.advance(LOGIN_S_MAX)
        assert client.is_closed
        assert not other.is_closed

    with_logins(tmp_path, scenario)


# --- what has expired ------------------------------------------------------------------------------------------------


def test_client_is_asked_anew_and_goes_on(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await logged_in(door, token(life_s=3), refreshes=True)
        door.clock.advance(2.5)
        assert not client.received
        door.clock.advance(2)
        challenge = await client.hear(BaseCommand.AUTH_CHALLENGE)
        asked = challenge.challenge
        assert (asked.auth_method_name, asked.auth_data) == ("token", b"PulsarAuthRefresh")
        client.say(
            CommandAuthResponse(response=AuthData(auth_method_name="token", auth_data=token(life_s=60)))
        )
        door.clock.advance(40)
        assert not client.is_closed
        await client.ask(CommandPing(), BaseCommand.PONG)
        door.clock.advance(18)
        await client.hear(BaseCommand.AUTH_CHALLENGE)

    with_logins(tmp_path, scenario)


def test_client_that_cannot_refresh_is_closed(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client, other = await logged_in(door, token(life_s=3)), await logged_in(door, token())
        door.clock.advance(4)
        assert client.is_closed
        assert not other.is_closed

    with_logins(tmp_path, scenario)


def test_client_that_does_not_answer_is_closed_at_the_next_look(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await logged_in(door, token(life_s=3), refreshes=True)
        door.clock.advance(5)
        assert not client.is_closed
        door.clock.advance(1)
        assert client.is_closed

    with_logins(tmp_path, scenario)


@pytest.mark.parametrize(
    "response",
    [
        AuthData(auth_method_name="token", auth_data=token("bob")),
        AuthData(auth_method_name="token", auth_data=token(life_s=1)),
        AuthData(auth_method_name="token", auth_data=b"nonsense"),
        AuthData(auth_method_name="basic", auth_data=token()),
        AuthData(),
    ],
)
def test_answer_that_is_not_good_closes(tmp_path: Path, response: AuthData) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await logged_in(door, token(life_s=3), refreshes=True)
        door.clock.advance(4)
        await client.hear(BaseCommand.AUTH_CHALLENGE)
        door.audit.take()
        client.say(CommandAuthResponse(response=response))
        assert refusal(client) == FAILED
        (line,) = door.audit.take()
        assert (line["event"], line["result"], line["principal"]) == ("login", "refused", "User:alice")

    with_logins(tmp_path, scenario)


def test_clock_that_is_set_back_does_not_keep_a_client(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await logged_in(door, token(life_s=3))
        door.clock.step(-3600)
        door.clock.advance(4)
        assert client.is_closed

    with_logins(tmp_path, scenario)


def test_no_timer_runs_where_no_login_ends(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await logged_in(door, token(life_s=60))
        client.leave()
        assert door.service.login_watch._timer is None

    with_logins(tmp_path, scenario)


def test_logins_are_in_the_audit_log(tmp_path: Path) -> None:
    async def scenario(door: PulsarDoor) -> None:
        door.client().say(connect_command(auth_method_name="token", auth_data=b"stolen"))
        door.client().say(
            connect_command(auth_method_name="token", auth_data=token("proxy"), original_principal="stranger")
        )
        door.client().say(connect_command(auth_method_name="token", auth_data=token("proxy")))
        door.client().say(connect_command(auth_method_name="stolen", auth_data=b"stolen"))
        assert b"stolen" not in b"".join(door.audit.raw)
        refused, accepted, nobody, unknown = door.audit.take()
        del refused["time"], refused["reason"]
        assert refused == {
            "event": "login",
            "result": "refused",
            "error": "INVALID_TOKEN",
            "host": "127.0.0.1",
            "door": "pulsar",
            "listener": "pulsar",
            "client": "test",
            "method": "token",
        }
        assert (accepted["result"], accepted["principal"]) == ("accepted", "User:stranger")
        assert (accepted["proxy"], accepted["method"]) == ("proxy", "token")
        assert (nobody["result"], nobody["error"]) == ("refused", "INVALID_ROLES")
        assert "method" not in unknown

    with_logins(tmp_path, scenario)


def test_what_a_proxy_is_refused_names_both(tmp_path: Path) -> None:
    class DenyAll:
        tells_hosts_apart = False

        def allows(self, *asked: Any) -> bool:
            return False

        def allows_any(self, *asked: Any) -> bool:
            return False

    async def main() -> None:
        methods: dict[str, Method] = {}
        authentication = Authentication(methods, "", frozenset(["proxy"]))
        async with running_door(tmp_path, authorizer=DenyAll(), authentication=authentication) as door:
            methods["token"] = token_method(TokenValidator(secret_key(SECRET), door.clock))
            client = door.client()
            command = connect_command(
                auth_method_name="token", auth_data=token("proxy"), original_principal="alice"
            )
            await client.ask(command, BaseCommand.CONNECTED)
            await client.ask(CommandProducer(topic="t", producer_id=1, request_id=1), BaseCommand.ERROR)
            (line,) = door.audit.take()
            assert (line["principal"], line["proxy"], line["operation"]) == ("User:alice", "proxy", "WRITE")
            assert line["resource"] == "persistent://public/default/t"

    asyncio.run(main())
