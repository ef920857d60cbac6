"""REST and metrics over TLS, beside the port without."""

import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulsar
import pytest

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess, ServerFailed, free_ports
from tests.integration import http_answers
from tests.integration.server.wire import eventually

from .secured import HOSTS, Secured


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def secured(authority: Authority, port: int) -> Iterator[Secured]:
    one = Secured(authority, webServicePortTls=str(port))
    with MagnetarProcess(settings=one.settings) as one.server:
        yield one


def ask(secured: Secured, url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    return http_answers.ask(url, headers, method=method, body=body, context=secured.context())


def test_what_is_done_over_tls_is_seen_without_and_the_other_way_round(secured: Secured, port: int) -> None:
    secure, plain = f"https://localhost:{port}", secured.server.http_url
    assert f"https://127.0.0.1:{port}" in secured.server.log
    names = [f"public/n{number}" for number in range(2)]
    for base, name in zip((secure, plain), names, strict=True):
        assert ask(secured, f"{base}/admin/v2/namespaces/{name}", "PUT", b"{}")[0] == 204
    for base in (secure, plain):
        status, body = ask(secured, f"{base}/admin/v2/namespaces/public")
        assert status == 200
        assert set(names) <= set(json.loads(body))
    status, body = ask(secured, f"{secure}/metrics")
    assert status == 200
    assert b"magnetar_tls_failures_total" in body


def test_each_answer_names_both_addresses(secured: Secured, port: int) -> None:
    plain = secured.server.http_port
    for base in (f"https://localhost:{port}", f"http://localhost:{plain}"):
        _, body = ask(secured, f"{base}/lookup/v2/topic/persistent/public/default/t")
        found = json.loads(body)
        assert found["httpUrl"] == f"http://localhost:{plain}"
        assert found["httpUrlTls"] == f"https://localhost:{port}"
        _, body = ask(secured, f"{base}/admin/v2/clusters/standalone")
        cluster = json.loads(body)
        assert (cluster["serviceUrl"], cluster["serviceUrlTls"]) == (found["httpUrl"], found["httpUrlTls"])


def test_pulsars_client_looks_topics_up_over_https(secured: Secured, port: int) -> None:
    trusted = str(secured.authority.certificate)
    client = pulsar.Client(
        f"https://localhost:{port}", tls_trust_certs_file_path=trusted, tls_validate_hostname=True
    )
    try:
        producer = client.create_producer("over-https")
        producer.send(b"1")
    finally:
        client.close()


def test_a_large_answer_and_a_large_body_come_whole(secured: Secured, port: int) -> None:
    base = f"https://localhost:{port}/admin/v2/persistent/public/default"
    for number in range(60):
        assert ask(secured, f"{base}/{'x' * 200}-{number}", "PUT", b"{}")[0] == 204
    context = secured.context()
    with context.wrap_socket(
        socket.create_connection(("127.0.0.1", port), timeout=20), server_hostname="localhost"
    ) as one:
        one.sendall(
            b"GET /admin/v2/persistent/public/default HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        answer = b""
        while part := one.recv(997):
            answer += part
    assert len(json.loads(answer.partition(b"\r\n\r\n")[2])) >= 60


def test_a_client_without_tls_or_without_trust_is_turned_away_and_others_go_on(
    secured: Secured, port: int
) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as bare:
        bare.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in bare.recv(1000)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as distrusting,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(distrusting, server_hostname="localhost")
    assert ask(secured, f"https://localhost:{port}/health")[0] == 200
    assert "Traceback" not in secured.server.log


def test_probes_get_in_when_clients_have_taken_every_place(authority: Authority, port: int) -> None:
    mine = free_ports(1)[0]
    one = Secured(authority, webServicePortTls=str(mine), **{"max.connections": "5"})
    with MagnetarProcess(settings=one.settings) as one.server:
        taken = [socket.create_connection(("127.0.0.1", one.plain), timeout=20) for _ in range(8)]
        try:
            assert ask(one, f"https://localhost:{mine}/health")[0] == 200
        finally:
            for each in taken:
                each.close()


def test_the_port_needs_a_certificate(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerFailed, match="webServicePortTls needs a certificate and its key"),
        MagnetarProcess(settings={"webServicePortTls": "0"}, data_dir=tmp_path),
    ):
        pass


def test_new_connections_get_a_new_certificate(authority: Authority, tmp_path: Path) -> None:
    mine = free_ports(1)[0]
    one = Secured(authority, webServicePortTls=str(mine))
    with MagnetarProcess(settings=one.settings) as one.server:

        def serial() -> str:
            with one.connect(mine) as connected:
                return str(connected.getpeercert()["serialNumber"])  # type: ignore[index]

        before = serial()
        other = authority.issue("renewed", hosts=HOSTS)
        one.issued.certificate.write_bytes(other.certificate.read_bytes())
        one.issued.key.write_bytes(other.key.read_bytes())
        eventually(lambda: serial() != before, "the new certificate is shown")


def test_two_hundred_that_come_at_once_are_all_answered(secured: Secured, port: int) -> None:
    # A quarter of them gave way to the others in the handshake.
    with ThreadPoolExecutor(200) as threads:
        answers = list(threads.map(lambda _: ask(secured, f"https://localhost:{port}/health")[0], range(200)))
    assert answers == [200] * 200
