"""A login that fails takes the same steps for a user that there is as for one that there is not.

Steps are counted, and not timed: a time says more of what else the machine does.  The comparison of secrets is the one
step whose length lies in its arguments, so it has to be the one that takes as long for all (`hmac.compare_digest`).
"""

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import Callable

import pytest

from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Challenge
from magnetar.broker.security.plain import PlainUsers
from magnetar.broker.security.scram import ScramBook, ScramCredential, ScramExchange
from magnetar.broker.security.scram_credentials import ALGORITHMS, ScramCredentials
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.broker.security.steps import steps_of

USERS = 1000
NAMES = (
    "user500",
    "user501",
    "user999",
    "nobody1",
    "nobody2",
)  # of the same length: that is the client's own


def check(log_in: Callable[[str], object]) -> None:
    for name in NAMES:  # what is done once in a process
        log_in(name)
    known, *others = (steps_of(lambda name=name: log_in(name)) for name in NAMES)  # type: ignore[misc]
    assert any(step == "compare_digest" for _, step in known), "secrets are compared in one time"
    for other in others:
        assert other == known


def test_plain() -> None:
    users = PlainUsers({f"user{number}": f"secret{number}" for number in range(USERS)})

    def fails(name: str) -> None:
        with pytest.raises(AuthenticationFailed):
            users.respond(f"\0{name}\0wrong".encode())

    check(fails)


@pytest.mark.parametrize("mechanism", list(ALGORITHMS))
def test_scram(mechanism: str) -> None:
    async def book() -> ScramBook:
        credentials = ScramCredentials(MemoryMetadataStore())
        await credentials.load()
        put = {
            (mechanism, f"user{number}"): ScramCredential.of(
                ALGORITHMS[mechanism], b"a" * 25, 4096 + number % 2, b"%d" % number
            )
            for number in range(USERS)
        }
        await credentials.change([], put)
        return credentials.book(mechanism)

    found = asyncio.run(book())
    proof = b64encode(hashlib.new(ALGORITHMS[mechanism], b"wrong").digest()).decode()

    def fails(name: str) -> None:
        exchange = ScramExchange(ALGORITHMS[mechanism], found, found)
        challenge = exchange.respond(f"n,,n={name},r=abc".encode())
        assert isinstance(challenge, Challenge)
        nonce = challenge.data.decode().partition(",")[0]
        with pytest.raises(AuthenticationFailed):
            exchange.respond(f"c=biws,{nonce},p={proof}".encode())

    check(fails)
