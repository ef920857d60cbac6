"""What clients do that log in by a delegation token."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.settings_sasl import SaslSettings
from magnetar.broker.security.model import Challenge, Principal
from magnetar.wire.kafka.messages import create_delegation_token, metadata
from magnetar.wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
)
from magnetar.wire.kafka.messages.metadata import MetadataRequest
from tests.unit.broker.security.test_scram import final
from tests.unit.protocols.kafka.test_delegation_token_apis import (
    DAY_MS,
    ENABLED,
    NOT_ALLOWED,
    become,
    create,
    expire,
)
from tests.unit.protocols.kafka.test_login import Connection
from tests.unit.protocols.kafka.test_scram_admin import alter, put

Run = Callable[..., None]
SETTINGS = SaslSettings(("SCRAM-SHA-256", "SCRAM-SHA-512"), {}, 524_288, 0.0)
REFUSAL = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
)


async def log_in(
    client: Any,
    name: str,
    password: bytes,
    extension: bytes = b",tokenauth=true",
    settings: SaslSettings = SETTINGS,
    one: Connection | None = None,
) -> tuple[Any, Connection]:
    one = one or Connection(client, settings)
    first = f"n,,n={name},r=abc".encode() + extension
    assert (await one.shake_hands("SCRAM-SHA-512")).error_code == 0
    challenge = await one.authenticate(first)
    assert challenge.error_code == 0
    return await one.authenticate(final(Challenge(challenge.auth_bytes), first, password, "sha512")), one


def test_a_client_logs_in_by_a_token_and_gets_none(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client)
        answer, one = await log_in(client, made.token_id, b64encode(made.hmac))
        assert answer.error_code == 0
        assert DAY_MS - 60_000 < answer.session_lifetime_ms <= DAY_MS
        assert one.principal == Principal("User", "alice")
        assert (await one.ask(metadata, 12, MetadataRequest([]))).cluster_id
        refused = await one.ask(create_delegation_token, 3, CreateDelegationTokenRequest())
        assert (refused.error_code, refused.principal_name) == (NOT_ALLOWED, "alice")
        become(client, "alice")
        other = await create(client)
        _, by_other = await log_in(client, other.token_id, b64encode(other.hmac))
        await expire(client, made.hmac)
        assert one.peer.closed, "with Apache Kafka it would stay until the token's own end"
        assert (await by_other.ask(metadata, 12, MetadataRequest([]))).cluster_id
        by_other.session.closed()
        assert (await log_in(client, made.token_id, b64encode(made.hmac)))[0].error_code == 58

    with_broker(scenario, delegation_tokens=ENABLED)


def test_an_unknown_token_and_a_wrong_password_are_told_the_same(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client)
        for name, password in ((made.token_id, b"wrong"), ("x" * 22, b64encode(made.hmac))):
            answer, one = await log_in(client, name, password)
            assert (answer.error_code, answer.error_message, answer.auth_bytes) == (58, REFUSAL, b"")
            assert one.peer.closed

    with_broker(scenario, delegation_tokens=ENABLED)


def test_users_and_tokens_are_not_taken_for_each_other(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client)
        await alter(client, [], [put("alice")])
        assert (await log_in(client, "alice", b"pw", b""))[0].error_code == 0
        assert (await log_in(client, "alice", b"pw"))[0].error_code == 58
        assert (await log_in(client, made.token_id, b64encode(made.hmac), b""))[0].error_code == 58
        assert (await log_in(client, made.token_id, b64encode(made.hmac), b",x=y"))[0].error_code == 58

    with_broker(scenario, delegation_tokens=ENABLED)


@pytest.mark.parametrize(("lives_ms", "session_s", "told_ms"), [(60_000, 5.0, 5000), (5000, 60.0, 5000)])
def test_a_session_ends_with_the_token_or_sooner(
    with_broker: Run, lives_ms: int, session_s: float, told_ms: int
) -> None:
    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client, lifetime_ms=lives_ms)
        settings = SaslSettings(
            SETTINGS.mechanisms, {}, 524_288, 0.0, session_s_max={"SCRAM-SHA-512": session_s}
        )
        answer, one = await log_in(client, made.token_id, b64encode(made.hmac), settings=settings)
        assert told_ms - 3000 < answer.session_lifetime_ms <= told_ms
        one.session.closed()

    with_broker(scenario, delegation_tokens=ENABLED)


def test_a_client_that_logs_in_anew_by_its_password_may_ask_for_tokens(with_broker: Run) -> None:
    """And the other way round: what it has shown last counts."""

    async def scenario(client: Any) -> None:
        become(client, "alice")
        made = await create(client)
        await alter(client, [], [put("alice")])
        settings = SaslSettings(SETTINGS.mechanisms, {}, 524_288, 0.0, session_s_max={"SCRAM-SHA-512": 60.0})
        _, one = await log_in(client, made.token_id, b64encode(made.hmac), settings=settings)
        assert one.session.caller.by_token
        assert (await log_in(client, "alice", b"pw", b"", one=one))[0].error_code == 0
        assert one.principal == Principal("User", "alice")
        assert not one.session.caller.by_token
        await expire(client, made.hmac)
        assert not one.peer.closed
        one.session.closed()

    with_broker(scenario, delegation_tokens=ENABLED)
