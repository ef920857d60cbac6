"""Clients of Pulsar's port with TLS have the role that is in their certificates."""

import logging
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pulsar
import pytest

from magnetar.testing.certificates import Authority, Issued
from magnetar.testing.pulsar import framed
from magnetar.testing.server import MagnetarProcess, free_ports
from magnetar.wire.pulsar.commands import read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect
from tests.integration.http_answers import ask

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program"),
]
PACKAGE = "org.apache.pulsar.broker.authentication."
SECRET = bytes(range(1, 33))


class Guarded:
    """A server that takes certificates and tokens; `admin` may do everything, other roles nothing."""

    server: MagnetarProcess

    def __init__(self, folder: Path, **settings: str) -> None:
        self.authority = Authority(folder)
        self.other_authority = Authority(folder, "Another authority")
        server = self.authority.issue("server", hosts=["localhost", "127.0.0.1"])
        secret = folder / "secret.bin"
        secret.write_bytes(SECRET)
        self.port, self.https = free_ports(2)
        self.settings = {
            "authenticationEnabled": "true",
            "authenticationProviders": f"{PACKAGE}AuthenticationProviderToken,{PACKAGE}AuthenticationProviderTls",
            "tokenSecretKey": f"file://{secret}",
            "authorizationEnabled": "true",
            "superUserRoles": "admin",
            "brokerServicePortTls": str(self.port),
            "webServicePortTls": str(self.https),
            "tlsCertificateFilePath": str(server.certificate),
            "tlsKeyFilePath": str(server.key),
            "tlsTrustCertsFilePath": str(self.authority.certificate),
            "tlsRequireTrustedClientCertOnConnect": "false",
            **settings,
        }

    def client(
        self, authentication: Any, *, url: str = "", timeout_s: int = 10, **more: Any
    ) -> pulsar.Client:
        silent = logging.getLogger("pulsar-client")
        silent.setLevel(logging.CRITICAL)
        return pulsar.Client(
            url or f"pulsar+ssl://localhost:{self.port}",
            authentication,
            tls_trust_certs_file_path=str(self.authority.certificate),
            tls_validate_hostname=True,
            operation_timeout_seconds=timeout_s,
            logger=silent,
            **more,
        )

    def answer(self, command: CommandConnect, *, tls: bool) -> tuple[int, str]:
        """What a client of our own without a certificate hears: an error's code and text."""
        port = self.port if tls else self.server.pulsar_port
        connection: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        if tls:
            context = ssl.create_default_context(cafile=str(self.authority.certificate))
            connection = context.wrap_socket(connection, server_hostname="localhost")
        with connection:
            connection.sendall(framed(command))
            data = bytearray()
            while piece := connection.recv(4096):
                data += piece
        kind, body, _ = read_command(memoryview(data)[4:])
        assert kind == BaseCommand.ERROR
        return body.error, body.message


def by(issued: Issued) -> pulsar.Authentication:
    return pulsar.AuthenticationTLS(str(issued.certificate), str(issued.key))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(tmp_path_factory.mktemp("certificates"))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one
        assert "Traceback" not in server.log


def test_role_is_the_name_in_the_certificate(guarded: Guarded) -> None:
    admin = guarded.client(by(guarded.authority.issue("admin", subject="/O=Magnetar/OU=People/CN=admin")))
    consumer = admin.subscribe("shown", "s")
    admin.create_producer("shown").send(b"hello")
    assert consumer.receive(10_000).data() == b"hello"
    admin.close()
    alice = guarded.client(by(guarded.authority.issue("alice")))
    with pytest.raises(pulsar.AuthorizationError):
        alice.create_producer("shown")
    alice.close()


def test_method_that_the_client_names_decides(guarded: Guarded) -> None:
    shown = guarded.authority.issue("admin", subject="/O=Magnetar/OU=People/CN=admin")
    files: dict[str, Any] = {
        "tls_certificate_file_path": str(shown.certificate),
        "tls_private_key_file_path": str(shown.key),
    }
    for role, may in (("alice", False), ("admin", True)):
        token = pulsar.AuthenticationToken(jwt.encode({"sub": role}, SECRET, "HS256"))
        client = guarded.client(token, **files)
        if may:
            client.create_producer("decided").close()
        else:
            with pytest.raises(pulsar.AuthorizationError):
                client.create_producer("decided")
        client.close()


def test_certificate_gives_the_role_over_https_where_nothing_else_is_shown(guarded: Guarded) -> None:
    def status(name: str, path: str, **headers: str) -> int:
        context = ssl.create_default_context(cafile=str(guarded.authority.certificate))
        if name:
            context.load_cert_chain(guarded.authority.issue(name).both)
        return ask(f"https://localhost:{guarded.https}/admin/v2/{path}", headers, context=context)[0]

    method = "X-Pulsar-Auth-Method-Name"
    assert status("boss", "clusters") == 200
    assert status("admin", "tenants") == status("admin", "tenants", **{method: "tls"}) == 200
    assert status("boss", "tenants") == 401  # without the right
    assert status("", "clusters") == status("", "clusters", **{method: "tls"}) == 401
    assert status("admin", "tenants", **{method: "token"}) == 401
    assert status("admin", "tenants", authorization="Bearer nonsense") == 401
    boss = jwt.encode({"sub": "boss"}, SECRET, "HS256")
    assert status("admin", "tenants", authorization=f"Bearer {boss}") == 401


def test_client_with_a_certificate_looks_topics_up_over_https(guarded: Guarded) -> None:
    client = guarded.client(by(guarded.authority.issue("admin")), url=f"https://localhost:{guarded.https}")
    client.create_producer("looked-up").send(b"hello")
    client.close()


def test_certificate_of_another_authority_is_refused(guarded: Guarded) -> None:
    client = guarded.client(by(guarded.other_authority.issue("admin")), timeout_s=3)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("refused")
    client.close()


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("method", ["tls", ""])
def test_without_a_certificate_there_is_no_role(guarded: Guarded, tls: bool, method: str) -> None:
    command = CommandConnect(client_version="test", protocol_version=21, auth_method_name=method)
    assert guarded.answer(command, tls=tls) == (3, "Failed to authenticate")


def test_where_a_certificate_is_required_it_is_a_role_too(tmp_path: Path) -> None:
    strict = Guarded(
        tmp_path,
        authenticationProviders=f"{PACKAGE}AuthenticationProviderTls",
        tlsRequireTrustedClientCertOnConnect="true",
    )
    with MagnetarProcess(settings=strict.settings):
        client = strict.client(by(strict.authority.issue("admin")))
        client.create_producer("required").send(b"hello")
        client.close()
        without = strict.client(None, timeout_s=3)
        with pytest.raises(pulsar.PulsarException):
            without.create_producer("required")
        without.close()
