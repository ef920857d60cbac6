"""SCRAM's credentials, made by requests and used by logins; codes as in real Kafka."""

import hashlib
from collections.abc import Callable
from typing import Any

from magnetar.base.settings_sasl import SaslSettings
from magnetar.broker.security.model import Challenge, Principal
from magnetar.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from magnetar.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.unit.broker.security.test_scram import final
from tests.unit.protocols.kafka.test_login import Connection

Run = Callable[..., None]
SALT = b"0123456789abcdef"
SETTINGS = SaslSettings(("SCRAM-SHA-256", "SCRAM-SHA-512"), {}, 524_288, 0.0)
FIRST = b"n,,n=alice,r=abc"
REFUSAL = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
)


def put(
    user: str, mechanism: int = 2, iterations: int = 8192, password: bytes = b"pw"
) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac("sha512" if mechanism == 2 else "sha256", password, SALT, max(iterations, 1))
    return ScramCredentialUpsertion(user, mechanism, iterations, SALT, salted)


async def alter(
    client: Any, deletions: list[tuple[str, int]], upsertions: list[ScramCredentialUpsertion]
) -> Any:
    request = AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion(*one) for one in deletions], upsertions
    )
    answer = await client.ask("alter_user_scram_credentials", 0, request)
    return [(one.user, one.error_code) for one in answer.results]


async def log_in(client: Any, first: bytes = FIRST, password: bytes = b"pw") -> tuple[Any, Connection]:
    one = Connection(client, SETTINGS)
    assert (await one.shake_hands("SCRAM-SHA-512")).error_code == 0
    challenge = await one.authenticate(first)
    assert challenge.error_code == 0
    return await one.authenticate(final(Challenge(challenge.auth_bytes), first, password, "sha512")), one


def test_credentials_hold_for_the_next_login(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        assert await alter(client, [], [put("alice"), put("alice", 1)]) == [("alice", 0)]
        answer, one = await log_in(client)
        assert answer.error_code == 0
        assert answer.auth_bytes.startswith(b"v=")
        assert one.principal == Principal("User", "alice")
        assert await alter(client, [], [put("alice", password=b"new")]) == [("alice", 0)]
        assert not one.peer.closed
        assert (await log_in(client))[0].error_code == 58
        assert (await log_in(client, password=b"new"))[0].error_code == 0
        assert await alter(client, [("alice", 2)], []) == [("alice", 0)]
        assert (await log_in(client, password=b"new"))[0].error_code == 58

    with_broker(scenario)


def test_an_unknown_user_and_a_wrong_password_are_told_the_same_at_the_same_step(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await alter(client, [], [put("alice")])
        for first, password in ((FIRST, b"wrong"), (b"n,,n=mallory,r=abc", b"pw")):
            answer, one = await log_in(client, first, password)
            assert (answer.error_code, answer.error_message, answer.auth_bytes) == (58, REFUSAL, b"")
            assert one.peer.closed

    with_broker(scenario)


def test_what_is_refused(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        assert await alter(client, [], [put("a", iterations=4095)]) == [("a", 93)]
        assert await alter(client, [], [put("a", iterations=16385)]) == [("a", 93)]
        assert await alter(client, [], [put("")]) == [("", 93)]
        assert await alter(client, [], [put("a", 9)]) == [("a", 33)]
        assert await alter(client, [("a", 9)], []) == [("a", 33)]
        assert await alter(client, [("a", 1)], []) == [("a", 91)]
        assert await alter(client, [("a", 1)], [put("a", 1)]) == [("a", 91)]
        assert await alter(client, [], [put("a"), put("a"), put("b")]) == [("a", 92), ("b", 0)]
        assert (await described(client, None))[1] == [("b", 0, [(2, 8192)])]

    with_broker(scenario)


async def described(client: Any, users: list[str] | None) -> Any:
    named = None if users is None else [UserName(user) for user in users]
    answer = await client.ask(
        "describe_user_scram_credentials", 0, DescribeUserScramCredentialsRequest(named)
    )
    rows = [
        (one.user, one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
        for one in answer.results
    ]
    return answer.error_code, rows


def test_what_is_described(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await alter(client, [], [put("b"), put("a", 1, 4096), put("a", 2)])
        both = [("a", 0, [(1, 4096), (2, 8192)]), ("b", 0, [(2, 8192)])]
        assert await described(client, None) == (0, both)
        assert await described(client, ["b", "nobody"]) == (0, [both[1], ("nobody", 91, [])])
        assert await described(client, ["b", "b"]) == (0, [("b", 92, [])])

    with_broker(scenario)
