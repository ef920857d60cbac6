"""How TLS is set up: what ends a start, what is said, and certificates that change while the server runs."""

import shutil
import time
from pathlib import Path

import pytest

from magnetar.server.watched_files import LOOK_INTERVAL_S
from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess, ServerFailed

from .secured import HOSTS, Secured


def subject(one: Secured, port: int) -> str:
    with one.connect(port) as client:
        found = client.getpeercert()
    assert found
    return str(found["subject"][0][0][1])


def test_the_lines_at_the_start(secured: Secured) -> None:
    lines = [" ".join(line.split()) for line in secured.server.log.splitlines()]
    assert f"kafka SSL://127.0.0.1:{secured.ssl} (SSL, node 1)" in lines
    assert f"kafka SSL://127.0.0.1:{secured.mutual} (MUTUAL, node 1)" in lines
    assert f"kafka PLAINTEXT://127.0.0.1:{secured.plain} (PLAINTEXT, node 1)" in lines
    assert f"pulsar pulsar+ssl://127.0.0.1:{secured.pulsar}" in lines


def test_what_cannot_be_used_ends_the_start_with_one_sentence(authority: Authority, tmp_path: Path) -> None:
    one = Secured(authority)
    store = tmp_path / "keystore.p12"
    store.write_bytes(bytes(100))
    cases = [
        ({"ssl.keystore.location": str(tmp_path / "missing")}, "missing cannot be read"),
        ({"ssl.keystore.location": str(store)}, "keystore.p12 is neither PEM nor a store of PKCS12"),
        ({"ssl.keystore.type": "PKCS12"}, "both.pem is PEM, and ssl.keystore.type says PKCS12"),
        ({"ssl.truststore.type": "JKS"}, "authority.pem is PEM, and ssl.truststore.type says JKS"),
        ({"tlsKeyFilePath": str(authority.issue("other").key)}, "is not that of the first certificate"),
        ({"listener.security.protocol.map": "MUTUAL:SASL_SSL"}, "nothing says how clients may log in"),
    ]
    for changes, sentence in cases:
        server = MagnetarProcess(settings=one.settings | changes)
        with pytest.raises(ServerFailed, match="ended with 2"):
            server.start()
        server.kill()
        server.close()
        said = server.log.splitlines()[-1]
        assert sentence in said
        assert "Traceback" not in server.log


def test_a_certificate_is_replaced_while_connections_go_on(authority: Authority, tmp_path: Path) -> None:
    one = Secured(authority)
    both, certificate, key = tmp_path / "both.pem", tmp_path / "certificate.pem", tmp_path / "key.pem"
    one.settings |= {
        "ssl.keystore.location": str(both),
        "tlsCertificateFilePath": str(certificate),
        "tlsKeyFilePath": str(key),
    }

    def store(name: str) -> None:
        issued = authority.issue(name, hosts=HOSTS)
        for source, target in ((issued.both, both), (issued.certificate, certificate), (issued.key, key)):
            shutil.copy(source, target)

    store("first")
    with MagnetarProcess(settings=one.settings) as server:
        with one.connect(one.ssl) as old:
            assert subject(one, one.ssl) == subject(one, one.pulsar) == "first"
            store("second")
            until_s = time.monotonic() + 5 * LOOK_INTERVAL_S
            while (subject(one, one.ssl), subject(one, one.pulsar)) != ("second", "second"):
                assert time.monotonic() < until_s, "the new certificate is not shown"
                time.sleep(0.1)
            both.write_text("nonsense")
            while "WARNING" not in server.log.upper():
                assert time.monotonic() < until_s + 5 * LOOK_INTERVAL_S, "nothing is said"
                time.sleep(0.1)
            assert subject(one, one.ssl) == "second"
            # ApiVersions v0, on the connection that began under the first one.
            old.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff")
            assert old.recv(8)[4:] == b"\x00\x00\x00\x07"
        assert server.log.count("new connections get the certificate that was there before") == 1
        assert "Traceback" not in server.log


@pytest.mark.parametrize(("asked", "is_open"), [("required", False), ("requested", True), ("none", True)])
def test_a_listener_that_requires_certificates_is_not_open_to_strangers(
    authority: Authority, asked: str, is_open: bool
) -> None:
    one = Secured(authority)
    settings = one.settings | {"listeners": f"SSL://0.0.0.0:{one.ssl}", "ssl.client.auth": asked}
    del settings["listener.name.mutual.ssl.client.auth"]
    with MagnetarProcess(settings=settings) as server:
        assert ("listening outside of loopback" in server.log) is is_open
