"""A login that fails takes as long for a user that there is as for one that there is not."""

import asyncio
import hashlib
import time
from base64 import b64encode
from collections.abc import Callable
from statistics import median

import pytest

from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Challenge
from magnetar.broker.security.plain import PlainUsers
from magnetar.broker.security.scram import ScramBook, ScramCredential, ScramExchange
from magnetar.broker.security.scram_credentials import ALGORITHMS, ScramCredentials
from magnetar.testing.metadata import MemoryMetadataStore

USERS = 1000
ROUNDS = 400
NAMES = ("user500", "user501", "nobody1", "nobody2")  # of the same length: that is the client's own


def check(log_in: Callable[[str], object]) -> None:
    """By each name's share of a round, which is short: what the machine does meanwhile is the same for all in it."""
    shares: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(ROUNDS):
        taken = {}
        for place in range(len(NAMES)):
            name = NAMES[(number + place) % len(NAMES)]
            began = time.thread_time_ns()
            log_in(name)
            taken[name] = time.thread_time_ns() - began
        for name, time_ns in taken.items():
            shares[name].append(time_ns / sum(taken.values()))
    usual = {name: median(found) for name, found in shares.items()}
    assert max(usual.values()) < 1.15 * min(usual.values()), usual


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
