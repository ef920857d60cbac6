"""A store of keytool's with several certificates: each client is shown the one with the name that it asks for."""

import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pulsar
import pytest

from magnetar.testing.certificates import Authority, Issued
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.http_answers import ask
from tests.integration.quiet_log import assert_quiet
from tests.integration.server.wire import eventually

from .java_stores import KEYTOOL, PASSWORD, Call, keytools

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(300),
    pytest.mark.skipif(KEYTOOL is None, reason="needs Java's keytool"),
]


class Named:
    """A server with one store at all doors: its first certificate is for 127.0.0.1, the others for names."""

    server: MagnetarProcess

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.kafka, self.pulsar, self.https = free_ports(3)
        store = folder / "several.jks"
        calls: list[Call] = []
        for name, hosts in (
            ("first", ["127.0.0.1"]),
            ("second", ["localhost"]),
            ("third", ["*.example.com"]),
        ):
            single = _single(store, self.authority.issue(name, hosts=hosts), name)
            source = ("-srckeystore", str(single), "-srcstorepass", PASSWORD)
            calls.append((store, "-importkeystore", *source, "-noprompt"))
        keytools(*calls)
        self.settings = {
            "listeners": f"SSL://127.0.0.1:{self.kafka}",
            # Librdkafka goes on at the advertised address.
            "advertised.listeners": f"SSL://localhost:{self.kafka}",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": PASSWORD,
            "brokerServicePortTls": str(self.pulsar),
            "webServicePortTls": str(self.https),
            "tlsEnabledWithKeyStore": "true",
            "tlsKeyStore": str(store),
            "tlsKeyStorePassword": PASSWORD,
        }


def _single(store: Path, issued: Issued, name: str) -> Path:
    """A key and its certificate, beside a store, as an entry of that name."""
    single = store.with_name(f"{name}.p12")
    subprocess.run(
        [
            *("openssl", "pkcs12", "-export", "-in", str(issued.both), "-out", str(single)),
            *("-name", name, "-passout", f"pass:{PASSWORD}"),
        ],
        check=True,
        capture_output=True,
    )
    return single


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Named]:
    one = Named(tmp_path_factory.mktemp("named"))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one
        assert_quiet(server.log, PASSWORD)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_clients_that_check_the_name_get_through_by_each(named: Named, host: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"{host}:{named.kafka}",
            "security.protocol": "ssl",
            "ssl.ca.location": str(named.authority.certificate),
            "ssl.endpoint.identification.algorithm": "https",
            "log_level": 0,
        }
    )
    producer.produce("named", b"value")
    assert producer.flush(30) == 0
    client = pulsar.Client(
        f"pulsar+ssl://{host}:{named.pulsar}",
        tls_trust_certs_file_path=str(named.authority.certificate),
        tls_validate_hostname=True,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    client.get_topic_partitions("named")
    client.close()
    context = ssl.create_default_context(cafile=str(named.authority.certificate))
    assert ask(f"https://{host}:{named.https}/admin/v2/clusters", {}, context=context)[0] == 200


@pytest.mark.parametrize(
    ("asked_for", "name"),
    [("a.example.com", "third"), ("localhost", "second"), ("unknown", "first"), ("", "first")],
)
def test_openssl_is_shown_the_certificate_with_the_name(named: Named, asked_for: str, name: str) -> None:
    for port in (named.kafka, named.pulsar, named.https):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}"]
        command += ["-servername", asked_for] if asked_for else ["-noservername"]
        said = subprocess.run(command, input=b"", capture_output=True, timeout=60, check=False).stdout
        assert f"subject=CN = {name}\n".encode() in said.replace(b"CN=", b"CN = "), said[:2000]


def test_a_name_that_is_not_ascii_is_one_line_of_the_log(named: Named) -> None:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read().replace(b"localhost", b"l\xffcalhost")
    with socket.create_connection(("127.0.0.1", named.kafka), timeout=30) as bare:
        bare.sendall(hello)
        level_and_reason = bare.recv(7)[5:]
    assert struct.unpack(">BB", level_and_reason) == (2, 80), "a fatal alert: internal_error"
    eventually(lambda: "failed: callback failed" in named.server.log, named.server.log)
