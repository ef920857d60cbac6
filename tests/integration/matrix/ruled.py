"""A server whose clients log in at every door, and have what the rule book gives them."""

import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

import httpx
import jwt

from magnetar.testing.pulsar import framed
from magnetar.testing.server import MagnetarProcess, free_ports
from magnetar.wire.kafka.messages.create_acls import CreateAclsRequest
from magnetar.wire.pulsar.commands import read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect
from tests.integration.quiet_log import assert_quiet
from tests.integration.server.wire import Wire

from .book import BOSS, OTHER_TENANT, STRANGER, SUPER, TENANT, Book

PATIENCE_S: Final = 20.0
_KEY: Final = secrets.token_hex(32)


def token(role: str) -> str:
    return jwt.encode({"sub": role}, _KEY, "HS256")


class KafkaClient(Wire):
    """A connection that logs in, unless the client has no name."""

    def log_in_as(self, name: str) -> None:
        if name:
            self.log_in(name, f"token:{token(name)}")


class PulsarWire:
    """A connection to the Pulsar door, which sends what a test gives it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, body: Any, payload: bytes = b"", *more: Any) -> None:
        """Send a command, the entry behind it, and more commands with it."""
        self._socket.sendall(framed(body, payload) + b"".join(map(framed, more)))

    def hear(self) -> tuple[int, Any] | None:
        """The next command, and its type; None when the server closes the connection."""
        size = self._receive(4)
        if size is None:
            return None
        frame = self._receive(*struct.unpack(">I", size))
        assert frame is not None
        kind, body, _ = read_command(memoryview(frame))
        return kind, body

    def _receive(self, size: int) -> bytes | None:
        found = bytearray()
        while len(found) < size:
            try:
                some = self._socket.recv(size - len(found))
            except ConnectionResetError:
                some = b""
            if not some:
                assert not found
                return None
            found += some
        return bytes(found)

    def connect(self, shown: str | None) -> tuple[int, Any] | None:
        command = CommandConnect(client_version="test", protocol_version=21)
        if shown is not None:
            command.auth_method_name, command.auth_data = "token", shown.encode()
        self.say(command)
        return self.hear()

    def answer(self) -> tuple[int, Any]:
        """To the request 1 (or the session 1, of a layout), which all of these tests send."""
        while (found := self.hear()) is not None:
            if 1 in (getattr(found[1], "request_id", None), getattr(found[1], "session_id", None)):
                return found
        raise AssertionError("the server has closed the connection")


class Ruled:
    """The running server; `open_port` is where Kafka's clients need not log in."""

    def __init__(self, server: MagnetarProcess, open_port: int, login_port: int) -> None:
        self.server = server
        self.open_port = open_port
        self.login_port = login_port

    def kafka(self, name: str) -> KafkaClient:
        client = KafkaClient(self.login_port if name else self.open_port)
        client.log_in_as(name)
        return client

    def pulsar(self, name: str) -> PulsarWire:
        wire = PulsarWire(self.server.pulsar_port)
        found = wire.connect(token(name))
        assert found is not None
        assert found[0] == BaseCommand.CONNECTED
        return wire

    def http(self, name: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {token(name)}"} if name else {}
        return httpx.Client(base_url=self.server.http_url, headers=headers, timeout=20)

    def administer(self, http: httpx.Client) -> None:
        """The tenants, with the roles that administer them."""
        for tenant, role in ((TENANT, BOSS), (OTHER_TENANT, STRANGER)):
            path, body = (
                f"/admin/v2/tenants/{tenant}",
                {"adminRoles": [role], "allowedClusters": ["standalone"]},
            )
            made = http.put(path, json=body)
            if made.status_code == httpx.codes.CONFLICT:
                made = http.post(path, json=body)
            assert made.status_code == httpx.codes.NO_CONTENT, made.text


@contextmanager
def running(book: Book, **settings: str) -> Iterator[Ruled]:
    open_port, login_port = free_ports(2)
    wanted: dict[str, Any] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{open_port},SASL_PLAINTEXT://127.0.0.1:{login_port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:,{_KEY}",
        "authorizationEnabled": "true",
        "superUserRoles": SUPER,
        "pipelines.worker.enabled": "false",
        **settings,
    }
    with MagnetarProcess(settings=wanted) as server:
        ruled = Ruled(server, open_port, login_port)
        with ruled.http(SUPER) as http, ruled.kafka(SUPER) as kafka:
            ruled.administer(http)
            answer = kafka.ask("create_acls", 3, CreateAclsRequest(book.lists()))
            assert not any(one.error_code for one in answer.results)
        yield ruled
        assert_quiet(server.log, "eyJ")
