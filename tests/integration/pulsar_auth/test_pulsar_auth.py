"""A server whose Pulsar clients and HTTP clients have to show a token."""

import json
import logging
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.http_answers import ask

pytestmark = pytest.mark.clients
TOKEN_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


class Guarded:
    """A server, and the secret that its tokens are signed with."""

    server: MagnetarProcess

    def __init__(self, folder: Path) -> None:
        self.secret = secrets.token_bytes(32)
        file = folder / "secret.bin"
        file.write_bytes(self.secret)
        self.settings = {
            "authenticationEnabled": "true",
            "authenticationProviders": TOKEN_PROVIDER,
            "authenticationRefreshCheckSeconds": "1",
            "tokenSecretKey": f"file://{file}",
        }

    def token(self, role: str, life_s: float | None = None) -> str:
        claims: dict[str, Any] = {"sub": role}
        if life_s is not None:
            claims["exp"] = time.time() + life_s
        return jwt.encode(claims, self.secret, "HS256")

    def client(self, authentication: Any = None, timeout_s: int = 10, url: str = "") -> pulsar.Client:
        silent = logging.getLogger("pulsar-client")
        silent.setLevel(logging.CRITICAL)
        return pulsar.Client(
            url or self.server.pulsar_url,
            authentication,
            operation_timeout_seconds=timeout_s,
            logger=silent,
        )

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        status, body = ask(self.server.http_url + path, headers)
        return status, body.decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(tmp_path_factory.mktemp("keys"))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one
        assert "Traceback" not in server.log


def test_client_with_a_token_produces_and_consumes(guarded: Guarded) -> None:
    client = guarded.client(pulsar.AuthenticationToken(guarded.token("alice")))
    try:
        consumer = client.subscribe("produced", "s")
        client.create_producer("produced").send(b"hello")
        assert consumer.receive(10_000).data() == b"hello"
    finally:
        client.close()


@pytest.mark.parametrize("kind", ["none", "nonsense", "expired", "other secret"])
def test_others_are_refused(guarded: Guarded, kind: str) -> None:
    token = {
        "none": None,
        "nonsense": "nonsense",
        "expired": guarded.token("alice", -1),
        "other secret": jwt.encode({"sub": "alice"}, secrets.token_bytes(32), "HS256"),
    }[kind]
    authentication = None if token is None else pulsar.AuthenticationToken(token)
    client = guarded.client(authentication, timeout_s=3)
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("refused")
    finally:
        client.close()
    status, topics = guarded.get("/admin/v2/persistent/public/default", guarded.token("alice"))
    assert (status, "refused" in topics) == (200, False)


def test_client_that_renews_its_token_keeps_its_connection(guarded: Guarded) -> None:
    given = []

    def supplier() -> str:
        given.append(guarded.token("alice", 3))
        return given[-1]

    client = guarded.client(pulsar.AuthenticationToken(supplier))
    try:
        producer = client.create_producer("renewed")
        before = guarded.server.log.count("closing connection")
        until = time.monotonic() + 9
        while time.monotonic() < until:
            producer.send(b"x")
            time.sleep(0.2)  # the pace of a producer, over three lives of a token
        assert len(given) >= 3
        assert guarded.server.log.count("closing connection") == before
    finally:
        client.close()


def test_http_asks_for_the_same_token(guarded: Guarded) -> None:
    good = guarded.token("alice")
    assert guarded.get("/admin/v2/clusters", good)[0] == 200
    for token in (None, "nonsense", good + "x", guarded.token("alice", -1)):
        status, text = guarded.get("/admin/v2/clusters", token)
        assert status == 401
        assert "Authentication required" in text
    assert guarded.get("/metrics")[0] == 200
    assert guarded.get("/ready")[0] == 200
    assert json.loads(guarded.get("/magnetar/v1/pipelines")[1])["error"] == "AUTHENTICATION_REQUIRED"
    worker = (guarded.server.data_dir / "worker-token").read_text().strip()
    assert guarded.get("/magnetar/v1/pipelines", worker)[0] == 401  # it is for the worker's own paths


def test_no_token_and_no_key_is_in_the_log(guarded: Guarded) -> None:
    token = guarded.token("eve", -1)
    guarded.get("/admin/v2/clusters", token)
    assert "eyJ" not in guarded.server.log
    assert guarded.secret.hex() not in guarded.server.log


def test_lookup_over_http_takes_a_token(guarded: Guarded) -> None:
    silent = logging.getLogger("pulsar-client")
    client = pulsar.Client(
        guarded.server.http_url,
        pulsar.AuthenticationToken(guarded.token("alice")),
        operation_timeout_seconds=10,
        logger=silent,
    )
    try:
        client.create_producer("by-http").send(b"hello")
    finally:
        client.close()
