"""Stores with several certificates: which one a client is shown, by the name that it asks for."""

import datetime
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from magnetar.base.errors import ConfigError
from magnetar.base.settings_tls import ClientCertificates, Material, TlsSettings
from magnetar.server.certificates import make_context
from magnetar.server.server_names import grouped
from magnetar.testing.certificates import Authority, Issued
from tests.unit.server import test_jks, test_pkcs12
from tests.unit.server.handshakes import handshake

Made = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def as_jks(issued: Sequence[Issued]) -> bytes:
    return test_jks.store(
        *[
            test_jks.key_entry(
                test_jks.protected(test_jks.key_of(one), test_pkcs12.PASSWORD),
                [test_jks.as_der(one.certificate)],
            )
            for one in issued
        ],
        password=test_pkcs12.PASSWORD,
    )


def as_pkcs12(issued: Sequence[Issued]) -> bytes:
    return test_pkcs12.together(*map(test_pkcs12.store, issued))


@pytest.fixture(params=[as_jks, as_pkcs12])
def settings_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Sequence[Issued]], TlsSettings]:
    def make(issued: Sequence[Issued]) -> TlsSettings:
        file = tmp_path / "store"
        file.write_bytes(request.param(issued))
        return test_pkcs12.in_file(file)

    return make


def shown(context: ssl.SSLContext, authority: Authority, asked_for: str | None) -> str:
    """The name in the certificate that a client is shown, which trusts `authority` whatever the name."""
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    trusting.check_hostname = False
    certificate = handshake(context, trusting, asked_for).getpeercert()
    assert certificate is not None
    return str(certificate["subject"][0][0][1])


def test_a_client_is_shown_the_certificate_with_the_name_that_it_asks_for(
    authority: Authority, settings_of: Callable[[Sequence[Issued]], TlsSettings]
) -> None:
    stored = [
        authority.issue("first", hosts=["One.example.com", "127.0.0.1"]),
        authority.issue("wild", hosts=["*.example.com"]),
        authority.issue("whole", hosts=["a.example.com", "two.example.org"]),
        authority.issue("later", hosts=["two.example.org"]),
        authority.issue("by.common.name"),
    ]
    context = make_context(settings_of(stored))
    for asked_for, name in (
        ("one.example.com", "first"),
        ("TWO.Example.Org", "whole"),
        ("two.example.org.", "whole"),
        ("a.example.com", "whole"),
        ("b.example.com", "wild"),
        ("c.b.example.com", "first"),
        ("example.com", "first"),
        ("by.common.name", "by.common.name"),
        ("whole", "first"),  # the CN counts for a certificate without DNS names alone
        ("127.0.0.1", "first"),
        ("unknown.example.net", "first"),
        (None, "first"),
    ):
        assert shown(context, authority, asked_for) == name, asked_for


def test_each_of_them_wants_the_same_of_clients(
    authority: Authority, settings_of: Callable[[Sequence[Issued]], TlsSettings]
) -> None:
    stored = [authority.issue("one", hosts=["one.example.com"]), authority.issue("two", hosts=["localhost"])]
    settings = replace(
        settings_of(stored),
        trusted=Material("ssl.truststore.location", authority.certificate),
        client_certificates=ClientCertificates.REQUIRED,
        versions=("TLSv1.2",),  # whose client hears of a refusal in the handshake
    )
    context = make_context(settings)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with pytest.raises(ssl.SSLError):
        handshake(context, trusting)
    trusting.load_cert_chain(authority.issue("client").both)
    assert handshake(context, trusting).version() == "TLSv1.2"


def test_a_name_that_is_not_ascii_ends_the_handshake_and_prints_nothing(
    authority: Authority,
    settings_of: Callable[[Sequence[Issued]], TlsSettings],
    capfd: pytest.CaptureFixture[str],
) -> None:
    context = make_context(
        settings_of([authority.issue(name, hosts=[name]) for name in ("one", "localhost")])
    )
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    incoming.write(outgoing.read().replace(b"localhost", b"l\xffcalhost"))
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with pytest.raises(ssl.SSLError, match="CALLBACK_FAILED"):
        server.do_handshake()
    assert "".join(capfd.readouterr()) == ""


def self_signed(key: Made) -> bytes:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now)
    return (builder.not_valid_after(now + datetime.timedelta(10)).sign(key, hashes.SHA256())).public_bytes(
        Encoding.DER
    )


def test_keys_of_two_kinds_for_one_name_serve_clients_of_both(tmp_path: Path) -> None:
    keys: list[Made] = [
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),  # the first of a kind counts
    ]
    certificates = [self_signed(key) for key in keys]
    entries = [
        test_jks.key_entry(
            test_jks.protected(
                key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), test_pkcs12.PASSWORD
            ),
            [certificate],
        )
        for key, certificate in zip(keys, certificates, strict=True)
    ]
    file = tmp_path / "store"
    file.write_bytes(test_jks.store(*entries, password=test_pkcs12.PASSWORD))
    context = make_context(replace(test_pkcs12.in_file(file), versions=("TLSv1.2",)))
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    for kind, certificate in (("RSA", certificates[0]), ("ECDSA", certificates[1])):
        trusting.set_ciphers(f"ECDHE-{kind}-AES128-GCM-SHA256")
        assert handshake(context, trusting).getpeercert(binary_form=True) == certificate


def test_a_certificate_whose_names_cannot_be_read_is_one_sentence() -> None:
    nonsense = ssl.DER_cert_to_PEM_cert(b"nonsense")
    with pytest.raises(ConfigError, match=r"^has a certificate whose names cannot be read$"):
        grouped([("", nonsense), ("", nonsense)])
