"""Sessions with an end, from bytes to bytes: when it comes, what a client may then do, and how it logs in anew."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.settings_sasl import SaslSettings
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Authenticated, Principal
from magnetar.broker.usecases.sasl import SaslLogins
from magnetar.wire.kafka.messages import api_versions, metadata
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest
from tests.unit.protocols.kafka.test_login import RIGHT, Connection

Run = Callable[..., None]
USERS = {"alice": "alice-secret", "carol": "carol-secret"}
SETTINGS = SaslSettings(
    ("PLAIN", "SCRAM-SHA-256"), USERS, 524_288, 0.0, session_s_max={"PLAIN": 4.0, "SCRAM-SHA-256": 4.0}
)


class Ahead(SystemClock):
    """The machine's clock, which a test sets ahead."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.fixture
def ahead() -> Ahead:
    return Ahead()


@pytest.fixture
def run(with_broker: Run, ahead: Ahead) -> Run:
    def run(scenario: Callable[[Any], Any]) -> None:
        async def checked(client: Any) -> None:
            client.service.logins.clock = ahead
            await scenario(client)
            assert client.service.memory.used == 0

        with_broker(checked)

    return run


async def asks(one: Connection) -> bool:
    """Whether the client is answered."""
    return await one.ask(metadata, 12, MetadataRequest([])) is not None


async def log_in(one: Connection, message: bytes = RIGHT, version: int = 2) -> Any:
    shaken = await one.shake_hands()
    assert shaken.error_code == 0
    return await one.authenticate(message, version)


def test_a_client_goes_on_over_several_sessions(run: Run, ahead: Ahead) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, SETTINGS)
        for _ in range(3):
            answer = await log_in(one)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 4000)
            assert await asks(one)
            ahead.ahead_s += 3
            assert await asks(one)
        assert one.principal == Principal("User", "alice")
        one.session.closed()

    run(scenario)


def test_after_its_end_any_request_but_a_handshake_closes(
    run: Run, ahead: Ahead, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: Any) -> None:
        one, other, late = (Connection(client, SETTINGS) for _ in range(3))
        for each in (one, other, late):
            await log_in(each)
        ahead.ahead_s += 4
        assert not await asks(one)
        assert one.peer.closed
        assert await other.ask(api_versions, 3, ApiVersionsRequest("test", "1")) is None
        assert other.peer.closed
        assert (await log_in(late)).error_code == 0
        assert await asks(late)
        late.session.closed()

    run(scenario)
    assert "its session has ended" in caplog.text


def test_a_client_that_cannot_hear_of_the_end_has_it_all_the_same(run: Run, ahead: Ahead) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, SETTINGS)
        assert (await log_in(one, version=0)).session_lifetime_ms == 0
        assert await asks(one)
        ahead.ahead_s += 4
        assert not await asks(one)
        assert one.peer.closed

    run(scenario)


def test_the_principal_stays(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, SETTINGS)
        await log_in(one)
        answer = await log_in(one, b"\0carol\0carol-secret")
        assert answer.error_code == 58
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.carol"
        )
        assert one.peer.closed
        assert one.principal == Principal("User", "alice")

    run(scenario)
    assert "as another user than before" in caplog.text
    assert "carol" not in caplog.text


def test_the_mechanism_stays(run: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, SETTINGS)
        await log_in(one)
        assert (await one.shake_hands("SCRAM-SHA-256")).error_code == 0
        assert await one.authenticate(b"n,,n=alice,r=abc") is None
        assert one.peer.closed

    run(scenario)


def test_a_wrong_password_ends_the_connection(run: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, SETTINGS)
        await log_in(one)
        answer = await log_in(one, b"\0alice\0wrong")
        assert answer.error_code == 58
        assert one.peer.closed

    run(scenario)


def test_between_handshake_and_login_nothing_else_may_come(run: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, SETTINGS)
        await log_in(one)
        await one.shake_hands()
        answer = await one.ask(api_versions, 3, ApiVersionsRequest("test", "1"), answered=3)
        assert answer.error_code == 34
        assert one.peer.closed

    run(scenario)


def test_a_client_logs_in_anew_once_in_a_second_at_most_and_not_by_bare_messages(
    run: Run, ahead: Ahead
) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, SETTINGS)
        await log_in(one)
        assert (await one.shake_hands(version=0)).error_code == 34
        await log_in(one)
        assert (await one.shake_hands()).error_code == 34
        assert await asks(one)
        ahead.ahead_s += 1
        assert (await log_in(one)).error_code == 0
        one.session.closed()

    run(scenario)


@dataclass
class Shown:
    """Lets in with what ends in `left_s`."""

    clock: Ahead
    left_s: float

    def respond(self, message: bytes) -> Authenticated:
        if message == b"bad":
            raise AuthenticationFailed("it has expired")
        return Authenticated(Principal("User", "alice"), ends_s=self.clock.monotonic() + self.left_s)


@pytest.mark.parametrize(
    ("settings_s", "left_s", "ends_s"), [(None, 3, 3), (10, 3, 3), (2, 3, 2), (10, 0, 0)]
)
def test_a_session_ends_with_what_was_shown_or_sooner(
    run: Run, ahead: Ahead, settings_s: float | None, left_s: float, ends_s: float
) -> None:
    async def scenario(client: Any) -> None:
        maxima = {} if settings_s is None else {"OAUTHBEARER": settings_s}
        settings = SaslSettings(("OAUTHBEARER",), {}, 524_288, 0.0, session_s_max=maxima)
        one = Connection(client, SaslLogins({"OAUTHBEARER": lambda: Shown(ahead, left_s)}, settings))
        await one.shake_hands("OAUTHBEARER")
        told_ms = (await one.authenticate(b"good")).session_lifetime_ms
        assert max(ends_s * 1000 - 500, 1) <= told_ms <= max(ends_s * 1000, 1)
        ahead.ahead_s += ends_s
        assert not await asks(one)
        assert one.peer.closed

    run(scenario)


def test_what_a_mechanism_says_nothing_about_is_told_as_kafka_does(run: Run, ahead: Ahead) -> None:
    async def scenario(client: Any) -> None:
        settings = SaslSettings(("OAUTHBEARER",), {}, 524_288, 0.0)
        one = Connection(client, SaslLogins({"OAUTHBEARER": lambda: Shown(ahead, 60)}, settings))
        await one.shake_hands("OAUTHBEARER")
        await one.authenticate(b"good")
        await one.shake_hands("OAUTHBEARER")
        answer = await one.authenticate(b"bad")
        assert answer.error_message == (
            "Authentication failed during re-authentication due to invalid credentials with SASL mechanism"
            " OAUTHBEARER"
        )
        assert one.peer.closed

    run(scenario)
