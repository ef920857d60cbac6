"""JWK Sets are read beside the loop, kept while they cannot be read, and read again when it is time."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.settings_oauth import KeySetSettings
from magnetar.base.settings_tls import Material
from magnetar.server import key_sets
from magnetar.server.key_sets import SOONER_EVERY_S, KeptKeySet, read_key_set, shown
from magnetar.testing.clock import FakeClock
from tests.unit.circles import error_stays
from tests.unit.rsa_keys import RSA

SETTINGS = KeySetSettings("jwks.url", "https://idp.test/keys?secret=hunter2", 60.0, 1.0, 4.0)


def key_set(*key_ids: str) -> bytes:
    key: Any = jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True)
    return json.dumps({"keys": [{**key, "kid": one} for one in key_ids]}).encode()


class Endpoint:
    """What is read, which a test changes; and how often it has been."""

    def __init__(self) -> None:
        self.answer: bytes | None = key_set("old")
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()

    def read(self, settings: KeySetSettings) -> bytes:
        assert threading.current_thread().name == "magnetar-jwks"
        assert self.gate.wait(10)
        self.count += 1
        if self.answer is None:
            raise ConfigError("jwks.url: cannot be read")
        return self.answer


def run(scenario: Callable[[KeptKeySet, Endpoint, FakeClock], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        endpoint, clock = Endpoint(), FakeClock()
        kept = KeptKeySet(SETTINGS, clock, endpoint.read)
        try:
            await scenario(kept, endpoint, clock)
        finally:
            endpoint.gate.set()
            kept.close()

    asyncio.run(whole())


async def read_again(kept: KeptKeySet, endpoint: Endpoint, count: int) -> None:
    """Until what is being read has been taken in; it has then been read so often."""
    await asyncio.wait(list(kept._tasks), timeout=10)
    assert not len(kept._tasks)
    assert endpoint.count == count


def test_a_new_key_is_there_after_the_next_reading() -> None:
    async def scenario(kept: KeptKeySet, endpoint: Endpoint, clock: FakeClock) -> None:
        await kept.start()
        assert kept.find("old", "RS256") is not None
        endpoint.answer = key_set("new")
        clock.advance(59)
        assert endpoint.count == 1
        clock.advance(1)
        await read_again(kept, endpoint, 2)
        assert kept.find("new", "RS256") is not None
        assert kept.find("old", "RS256") is None

    run(scenario)


def test_an_unknown_key_has_it_read_sooner_but_not_as_often_as_clients_like() -> None:
    async def scenario(kept: KeptKeySet, endpoint: Endpoint, clock: FakeClock) -> None:
        await kept.start()
        endpoint.answer = key_set("old", "new")
        assert kept.find("new", "RS256") is None
        await read_again(kept, endpoint, 2)
        assert kept.find("new", "RS256") is not None
        for name in ("forged", "nonsense"):
            assert kept.find(name, "RS256") is None
        clock.advance(SOONER_EVERY_S - 1)
        assert kept.find("forged", "RS256") is None
        assert endpoint.count == 2
        clock.advance(1)
        assert kept.find("forged", "RS256") is None
        await read_again(kept, endpoint, 3)

    run(scenario)


def test_what_was_read_holds_while_the_endpoint_fails_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(kept: KeptKeySet, endpoint: Endpoint, clock: FakeClock) -> None:
        await kept.start()
        for answer in (None, b"<html>"):
            endpoint.answer = answer
            clock.advance(60)
            await read_again(kept, endpoint, 2)
            for count, delay_s in ((3, 1), (4, 2), (5, 4), (6, 4)):
                clock.advance(delay_s)
                await read_again(kept, endpoint, count)
            assert kept.find("old", "RS256") is not None
            endpoint.answer = key_set("old")
            clock.advance(4)
            await read_again(kept, endpoint, 7)
            endpoint.count = 1

    with caplog.at_level(logging.INFO):
        run(scenario)
    said = [record.levelname for record in caplog.records if "jwks.url" in record.getMessage()]
    assert said == ["WARNING", "INFO"] * 2
    assert "hunter2" not in caplog.text
    assert "go on to hold" in caplog.text


def test_a_start_without_the_endpoint_is_a_start(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(kept: KeptKeySet, endpoint: Endpoint, clock: FakeClock) -> None:
        endpoint.answer = None
        await kept.start()
        assert kept.find("old", "RS256") is None
        endpoint.answer = key_set("old")
        clock.advance(1)
        await read_again(kept, endpoint, 2)
        assert kept.find("old", "RS256") is not None

    run(scenario)
    assert "no token is good" in caplog.text


def test_a_login_does_not_wait_for_the_endpoint_and_asks_it_once() -> None:
    async def scenario(kept: KeptKeySet, endpoint: Endpoint, clock: FakeClock) -> None:
        await kept.start()
        endpoint.gate.clear()
        for _ in range(5):
            assert kept.find("new", "RS256") is None
            assert kept.find("old", "RS256") is not None
            clock.advance(SOONER_EVERY_S)
        endpoint.gate.set()
        await read_again(kept, endpoint, 2)

    run(scenario)


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"

    async def read(url: str) -> KeptKeySet:
        kept = KeptKeySet(KeySetSettings("jwks.url", url, 60.0, 1.0, 4.0), FakeClock())
        await kept.start()
        kept.close()
        return kept

    with pytest.raises(ConfigError, match=r"jwks.url: .* cannot be read"):
        asyncio.run(read(f"file://{file}"))
    file.write_bytes(b"{}")
    with pytest.raises(ConfigError, match=r"jwks.url: .*jwks.json: it is no JWK Set"):
        asyncio.run(read(f"file://{file}"))
    file.write_bytes(key_set("mine"))
    assert asyncio.run(read(f"file://{file}")).find("mine", "RS256") is not None


def test_authorities_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    """The endpoint itself may be up later."""
    trusted = Material("ssl.truststore.location", tmp_path / "none")

    async def scenario() -> None:
        endpoint = Endpoint()
        kept = KeptKeySet(replace(SETTINGS, trusted=trusted), FakeClock(), endpoint.read)
        with pytest.raises(ConfigError, match=r"^ssl\.truststore\.location .*none cannot be read"):
            await kept.start()
        assert endpoint.count == 0
        kept.close()

    asyncio.run(scenario())


def test_a_url_is_shown_without_what_may_be_a_secret() -> None:
    assert shown("https://idp.test:8443/keys?secret=hunter2#x") == "https://idp.test:8443/keys"


def test_a_failure_does_not_stay() -> None:
    """It had what the thread had: the connection, and what was read."""

    async def scenario(kept: KeptKeySet, endpoint: Endpoint, clock: FakeClock) -> None:
        await kept.start()
        endpoint.answer = None
        assert not await error_stays(ConfigError, kept._answer)

    run(scenario)


def test_an_endpoint_that_never_ends_its_answer_is_a_failure_and_is_asked_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # One that sent its head a byte a second was waited for without an end, and without a word.
    async def scenario() -> None:
        endpoint, clock = Endpoint(), FakeClock()
        kept = KeptKeySet(SETTINGS, clock, endpoint.read, patience_s=0.05)
        try:
            await kept.start()
            endpoint.gate.clear()
            endpoint.answer = key_set("new")
            for _ in range(3):
                clock.advance(60.0)
                await read_again(kept, endpoint, 1)
            assert kept.find("old", "RS256") is not None
            assert [one for one in caplog.messages if "it takes longer than" in one] == caplog.messages
            assert len(caplog.messages) == 1
            endpoint.gate.set()
            while kept.find("new", "RS256") is None:
                clock.advance(60.0)
                if len(kept._tasks):
                    await asyncio.wait(list(kept._tasks), timeout=10)
            assert endpoint.count == 2, "the answer that was waited for is the one that is taken"
        finally:
            endpoint.gate.set()
            kept.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"issuer": "https://a.test", "jwks_uri": "https://keys.test/x"}, ""),
        ({"issuer": "https://b.test", "jwks_uri": "https://keys.test/x"}, "of another issuer"),
        ({"jwks_uri": "https://keys.test/x"}, "of another issuer"),
        ({"issuer": "https://a.test"}, "jwks_uri is no URL: https"),
        ({"issuer": "https://a.test", "jwks_uri": "http://keys.test/x"}, "jwks_uri is no URL: https"),
        ({"issuer": "https://a.test", "jwks_uri": "file:///etc/passwd"}, "jwks_uri is no URL: https"),
        ([], "of another issuer"),
        (None, "Expecting value"),
    ],
)
def test_a_discovery_document_says_where_the_keys_are(
    monkeypatch: pytest.MonkeyPatch, document: object, reason: str
) -> None:
    answers = {
        "https://a.test/known": b"<html>" if document is None else json.dumps(document).encode(),
        "https://keys.test/x": key_set("mine"),
    }
    monkeypatch.setattr(key_sets, "_fetch", lambda url, _: answers[url])
    settings = replace(SETTINGS, url="https://a.test/known", issuer="https://a.test")
    if not reason:
        assert read_key_set(settings) == answers["https://keys.test/x"]
        return
    with pytest.raises(ConfigError, match=f"https://a.test/known cannot be read: .*{reason}"):
        read_key_set(settings)
