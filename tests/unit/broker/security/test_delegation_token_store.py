"""Delegation tokens: what is stored of them, who logs in by them and until when, and what one that there is not looks
like.
"""

import asyncio
import hashlib
import hmac
import json
import re
from base64 import b64encode
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.settings_delegation import DelegationTokenSettings
from magnetar.base.upkeep import Upkeep
from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authorizer import AccessControl, AllowAll
from magnetar.broker.security.delegation_tokens import DelegationTokens
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Authenticated, Caller, Challenge, DelegationToken, Principal
from magnetar.broker.security.scram import ScramCredential, ScramExchange
from magnetar.broker.security.scram_credentials import ALGORITHMS, ScramCredentials
from magnetar.broker.usecases.delegation_tokens import DelegationTokenCases
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.broker.security.test_scram import final

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol ü/\n"))
ROOT = "/delegation-tokens/tokens/"
HOUR_MS = 3_600_000
SHA_256 = "SCRAM-SHA-256"


class Place:
    """A store of metadata and a clock, which outlive the tokens in memory."""

    def __init__(self) -> None:
        self.metadata = MemoryMetadataStore()
        self.clock = FakeClock()
        self.behind_ms = 0  # of the time by which things expire

    async def start(self, secret_key: str = "hunter2", check_interval_ms: int = HOUR_MS) -> DelegationTokens:
        settings = DelegationTokenSettings(secret_key, check_interval_ms=check_interval_ms)
        tokens = DelegationTokens(
            self.metadata, self.clock, settings, lambda: self.clock.now_ms() - self.behind_ms
        )
        await tokens.load()
        return tokens

    async def make(
        self, tokens: DelegationTokens, token_id: str = "", lasts_ms: int = HOUR_MS
    ) -> DelegationToken:
        now_ms = self.clock.now_ms()
        ends_ms = now_ms + lasts_ms, now_ms + 2 * lasts_ms
        return await tokens.add(token_id or tokens.new_id(), ALICE, BOB, [BOB, CAROL], now_ms, *ends_ms)

    async def stored(self) -> dict[str, bytes]:
        return {path.removeprefix(ROOT): one.value for path, one in await self.metadata.scan(ROOT)}


Scenario = Callable[[Place], Coroutine[Any, Any, None]]


def run(scenario: Scenario) -> None:
    asyncio.run(scenario(Place()))


def begin(tokens: DelegationTokens, mechanism: str = SHA_256) -> ScramExchange:
    return ScramExchange(
        ALGORITHMS[mechanism], ScramCredentials(MemoryMetadataStore()).book(mechanism), tokens.book(mechanism)
    )


def log_in(
    tokens: DelegationTokens,
    token_id: str,
    token_hmac: bytes,
    mechanism: str = SHA_256,
    meanwhile: Callable[[], object] = lambda: None,
) -> Authenticated:
    one = begin(tokens, mechanism)
    first = f"n,,n={token_id},r=abc,tokenauth=true".encode()
    challenge = one.respond(first)
    assert isinstance(challenge, Challenge)
    meanwhile()
    done = one.respond(final(challenge, first, b64encode(token_hmac), ALGORITHMS[mechanism]))
    assert isinstance(done, Authenticated)
    return done


def shown(tokens: DelegationTokens, token_id: str) -> str:
    """What a client hears first, but for the nonce."""
    challenge = begin(tokens).respond(f"n,,n={token_id},r=abc,tokenauth=true".encode())
    assert isinstance(challenge, Challenge)
    return challenge.data.decode().partition(",")[2]


def test_ids_and_hmacs_are_made_as_kafka_makes_them() -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        token = await place.make(tokens)
        assert token.hmac == hmac.digest(b"hunter2", token.token_id.encode(), "sha512")
        ids = {tokens.new_id() for _ in range(1000)}
        assert len(ids) == 1000
        assert all(re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{21}", one) for one in ids)

    run(scenario)


@pytest.mark.parametrize("mechanism", ALGORITHMS)
def test_a_token_lets_in_its_owner_until_it_expires_and_after_a_restart(mechanism: str) -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        token = await place.make(tokens)
        for each in (tokens, await place.start()):
            done = log_in(each, token.token_id, token.hmac, mechanism)
            assert (done.principal, done.by_token) == (ALICE, True)
            assert done.ends_s == place.clock.monotonic() + HOUR_MS / 1000
        place.clock.advance(HOUR_MS / 1000)
        assert log_in(tokens, token.token_id, token.hmac, mechanism).ends_s == place.clock.monotonic()
        place.clock.advance(0.001)
        for each in (tokens, await place.start()):
            with pytest.raises(AuthenticationFailed):
                log_in(each, token.token_id, token.hmac, mechanism)

    run(scenario)


def test_a_session_lasts_no_longer_than_its_token_lives_when_the_clock_is_behind() -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        token = await place.make(tokens)
        place.clock.step(-50 * 365 * 86_400)  # to 1973, as a machine without a battery for its clock starts
        done = log_in(tokens, token.token_id, token.hmac)
        assert done.ends_s == place.clock.monotonic() + 2 * HOUR_MS / 1000

    run(scenario)


def test_a_wrong_hmac_and_that_of_another_token_let_no_client_in() -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        one, other = await place.make(tokens), await place.make(tokens)
        for token_id, shown_hmac, user in (
            (one.token_id, other.hmac, "alice"),
            (one.token_id, b"", "alice"),
            ("alice", one.hmac, ""),
            ("x" * 22, one.hmac, ""),
        ):
            with pytest.raises(AuthenticationFailed) as said:
                log_in(tokens, token_id, shown_hmac)
            assert said.value.user == user

    run(scenario)


@pytest.mark.parametrize("end", ["expired", "removed"])
def test_a_token_that_ends_while_a_client_logs_in_lets_it_in_no_more(end: str) -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        token = await place.make(tokens)

        def meanwhile() -> None:
            if end == "expired":
                place.clock.advance(HOUR_MS / 1000 + 1)
            else:
                with pytest.raises(StopIteration):  # nothing in a dictionary makes it wait
                    tokens.remove([token.token_id]).send(None)

        with pytest.raises(AuthenticationFailed) as said:
            log_in(tokens, token.token_id, token.hmac, meanwhile=meanwhile)
        assert "not good any more" in said.value.reason

    run(scenario)


def test_what_is_stored() -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        token = await place.make(tokens)
        ((token_id, value),) = (await place.stored()).items()
        content = json.loads(value)
        keys = content.pop("keys")
        now_ms = place.clock.now_ms()
        assert token_id == token.token_id
        assert content == {
            "v": 1,
            "owner": "alice",
            "requester": "bob",
            "renewers": ["bob", CAROL.name],
            "issued_ms": now_ms,
            "expires_ms": now_ms + HOUR_MS,
            "max_ms": now_ms + 2 * HOUR_MS,
            "check": hashlib.sha256(token.hmac).hexdigest(),
        }
        for mechanism, algorithm in ALGORITHMS.items():
            kept = tokens.book(mechanism).find(token_id)
            salted = hashlib.pbkdf2_hmac(algorithm, b64encode(token.hmac), kept.salt, 4096)
            assert kept == ScramCredential.of(algorithm, kept.salt, 4096, salted)
            assert keys[mechanism] == [kept.stored_key.hex(), kept.server_key.hex()]
        for secret in (token.hmac.hex().encode(), b64encode(token.hmac), b"hunter2"):
            assert secret not in value
        assert repr(token.hmac) not in repr(token)

    run(scenario)


def test_it_is_all_there_after_a_restart() -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        token = await place.make(tokens)
        gone = await place.make(tokens)
        await tokens.change_expiry(token, token.max_ms)
        await tokens.remove([gone.token_id])
        for each in (tokens, await place.start()):
            (found,) = each.all()
            assert found == each.find(token.hmac)
            assert (found.expires_ms, found.renewers) == (token.max_ms, (BOB, CAROL))
            assert found.hmac == token.hmac
            assert each.find(gone.hmac) is None
            assert (len(each), each.count_of(ALICE), each.count_of(BOB)) == (1, 1, 0)

    run(scenario)


def test_under_another_secret_key_a_token_is_as_if_it_were_not_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(place: Place) -> None:
        token = await place.make(await place.start())
        other = await place.start("another")
        assert "1 delegation tokens were made with another secret key" in caplog.text
        assert (len(other), other.all(), other.find(token.hmac)) == (0, [], None)
        unknown = hmac.digest(b"another", token.token_id.encode(), "sha512")
        assert other.find(unknown) is None
        for shown_hmac in (token.hmac, unknown):
            with pytest.raises(AuthenticationFailed) as said:
                log_in(other, token.token_id, shown_hmac)
            assert said.value.user == ""
        await other.remove_expired()
        assert log_in(await place.start(), token.token_id, token.hmac).principal == ALICE
        place.clock.advance(HOUR_MS / 1000)
        await other.remove_expired()
        assert (await place.stored()).keys() == {token.token_id}
        place.clock.advance(0.001)
        await other.remove_expired()
        assert await place.stored() == {}
        before = place.metadata.commit_count
        await other.remove_expired()
        assert place.metadata.commit_count == before

    run(scenario)


def test_a_token_that_there_is_not_looks_like_one_before_it_is_made_and_when_it_is_gone() -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        before = shown(tokens, "one")
        token = await place.make(tokens, "one")
        assert shown(tokens, "one") == before
        assert shown(await place.start(), "one") == before
        await tokens.remove([token.token_id])
        assert shown(tokens, "one") == before
        assert before.endswith(",i=4096")
        other = shown(tokens, "other")
        assert (len(other), other != before) == (len(before), True)
        elsewhere = await Place().start()
        assert shown(elsewhere, "one") != before

    run(scenario)


def test_those_that_have_expired_are_removed_by_upkeep() -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start(check_interval_ms=1000)
        upkeep = Upkeep(place.clock)
        tokens.start(upkeep)
        short = await place.make(tokens, lasts_ms=1500)
        long = await place.make(tokens)

        async def second() -> list[str]:
            place.clock.advance(1)
            await upkeep.idle()
            assert {one.token_id for one in tokens.all()} == (await place.stored()).keys()
            return [one.token_id for one in tokens.all()]

        assert await second() == [short.token_id, long.token_id]
        assert await second() == [long.token_id]
        assert tokens.find(short.hmac) is None
        place.behind_ms = 2 * HOUR_MS  # the wall clock has jumped ahead
        place.clock.advance(HOUR_MS / 1000)
        assert await second() == [long.token_id]
        with pytest.raises(AuthenticationFailed):
            log_in(tokens, long.token_id, long.hmac)
        await upkeep.stop()

    run(scenario)


def test_many_are_removed_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.broker.security.delegation_tokens._REMOVED_AT_ONCE", 2)

    async def scenario(place: Place) -> None:
        tokens = await place.start()
        for _ in range(5):
            await place.make(tokens)
        before = place.metadata.commit_count
        place.clock.advance(HOUR_MS / 1000 + 1)
        await tokens.remove_expired()
        assert place.metadata.commit_count == before + 3
        assert (len(tokens), await place.stored()) == (0, {})

    run(scenario)


def test_a_listing_gives_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.broker.usecases.delegation_tokens._AT_ONCE", 2)

    async def scenario(place: Place) -> None:
        tokens = await place.start()
        for _ in range(5):
            await place.make(tokens)
        cases = DelegationTokenCases(AccessControl(AllowAll(), Audit(place.clock)), tokens, place.clock)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        running = asyncio.ensure_future(other())
        assert len(await cases.describe(Caller(ALICE), None)) == 5
        assert turns == 2
        running.cancel()

    run(scenario)


def test_what_cannot_be_stored_does_not_hold() -> None:
    async def scenario(place: Place) -> None:
        tokens = await place.start()
        token = await place.make(tokens)

        async def fails(change: Coroutine[Any, Any, object]) -> None:
            place.metadata.fail_next = 1
            with pytest.raises(MetadataError):
                await change
            assert tokens.all() == [token]
            assert tokens.find(token.hmac) == token

        await fails(place.make(tokens))
        await fails(tokens.change_expiry(token, token.max_ms))
        await fails(tokens.remove([token.token_id]))
        assert log_in(tokens, token.token_id, token.hmac).principal == ALICE

    run(scenario)


def test_without_a_secret_key_nothing_is_stored_and_no_client_let_in() -> None:
    async def scenario(place: Place) -> None:
        token = await place.make(await place.start())
        before = await place.metadata.scan("/")
        tokens = await place.start("")
        assert not tokens.are_enabled
        assert tokens.all() == []
        assert shown(tokens, token.token_id).endswith(",i=4096")
        with pytest.raises(AuthenticationFailed):
            log_in(tokens, token.token_id, token.hmac)
        upkeep = Upkeep(place.clock)
        tokens.start(upkeep)
        assert upkeep.jobs == []
        assert await place.metadata.scan("/") == before
        empty = Place()
        await empty.start("")
        assert await empty.metadata.scan("/") == []

    run(scenario)
