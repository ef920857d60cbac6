"""The passwords of SCRAM's users: stored, found after a start, and what users that there are not look like."""

import asyncio

import pytest

from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Challenge
from magnetar.broker.security.scram import ScramCredential, ScramExchange
from magnetar.broker.security.scram_credentials import ScramCredentials
from magnetar.testing.metadata import MemoryMetadataStore

NAME = "SCRAM-SHA-256"


def made(salt: bytes, iterations: int) -> ScramCredential:
    return ScramCredential.of("sha256", salt, iterations, b"salted")


def begin(credentials: ScramCredentials) -> ScramExchange:
    users = credentials.book(NAME)
    return ScramExchange("sha256", users, users)


def shown(credentials: ScramCredentials, user: str) -> str:
    challenge = begin(credentials).respond(f"n,,n={user},r=abc".encode())
    assert isinstance(challenge, Challenge)
    return challenge.data.decode().partition(",")[2]


def test_they_are_there_after_a_start_and_gone_when_deleted() -> None:
    async def scenario() -> None:
        metadata = MemoryMetadataStore()
        first = ScramCredentials(metadata)
        await first.load()
        await first.change([], {(NAME, "a/b ü"): made(b"salt", 4096)})
        second = ScramCredentials(metadata)
        await second.load()
        assert second.find(NAME, "a/b ü") == made(b"salt", 4096)
        assert second.users() == ["a/b ü"]
        assert second.find("SCRAM-SHA-512", "a/b ü") is None
        await second.change([(NAME, "a/b ü")], {})
        third = ScramCredentials(metadata)
        await third.load()
        assert third.users() == []

    asyncio.run(scenario())


def test_an_unknown_user_has_one_salt_over_starts_and_looks_like_others() -> None:
    async def scenario() -> None:
        metadata = MemoryMetadataStore()
        first = ScramCredentials(metadata)
        await first.load()
        before = shown(first, "mallory")
        assert before.endswith("i=4096")
        second = ScramCredentials(metadata)
        await second.load()
        assert shown(second, "mallory") == before
        assert shown(second, "trent") != before
        other = ScramCredentials(MemoryMetadataStore())
        await other.load()
        assert shown(other, "mallory") != before
        await second.change([], {(NAME, "alice"): made(bytes(range(192, 256)), 8192)})
        salt, iterations = shown(second, "mallory").split(",")
        assert iterations == "i=8192"
        assert len(salt) == len(shown(second, "alice").split(",")[0])

    asyncio.run(scenario())


def test_an_unknown_user_fails_at_the_last_step() -> None:
    async def scenario() -> None:
        credentials = ScramCredentials(MemoryMetadataStore())
        await credentials.load()
        await credentials.change([], {(NAME, "alice"): ScramCredential(b"salt", 4096, bytes(32), bytes(32))})
        for user, known in ("mallory", ""), ("alice", "alice"):
            one = begin(credentials)
            challenge = one.respond(f"n,,n={user},r=abc".encode())
            assert isinstance(challenge, Challenge)
            nonce = challenge.data.decode().split(",")[0]
            with pytest.raises(AuthenticationFailed) as said:
                one.respond(f"c=biws,{nonce},p={'A' * 43}=".encode())
            assert said.value.user == known

    asyncio.run(scenario())
