"""Stores of PKCS #12: which can be used, what is taken out of them, and what is said of the others."""

import asyncio
import datetime
import logging
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PBES, serialize_key_and_certificates
from cryptography.x509.oid import NameOID

from magnetar.base.der import der_values
from magnetar.base.errors import ConfigError
from magnetar.base.settings_tls import ClientCertificates, Given, Material, TlsSettings
from magnetar.server.certificates import Certificates, make_context
from magnetar.server.pkcs12 import read_key_store, read_trust_store
from magnetar.testing.certificates import Authority, Issued
from tests.unit.server.handshakes import handshake, shown

PASSWORD: Final = "hunter2"
GIVEN: Final = Given(PASSWORD, "ssl.keystore.password")
BEST: Final = BestAvailableEncryption(PASSWORD.encode())
OTHER: Final = BestAvailableEncryption(b"hunter3")
NO_KIND: Final = Given("", "ssl.keystore.type")
PKCS12: Final = Given("PKCS12", "ssl.keystore.type")


def key_and_certificate(issued: Issued) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = load_pem_private_key(issued.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key, x509.load_pem_x509_certificate(issued.certificate.read_bytes())


def store(issued: Issued, *others: x509.Certificate, secrecy: KeySerializationEncryption = BEST) -> bytes:
    key, certificate = key_and_certificate(issued)
    return serialize_key_and_certificates(b"server", key, certificate, others or None, secrecy)


def trust_store(*certificates: x509.Certificate) -> bytes:
    return serialize_key_and_certificates(None, None, None, certificates, BEST)


def in_file(file: Path, password: Given = GIVEN, kind: Given = NO_KIND) -> TlsSettings:
    material = Material("ssl.keystore.location", file, "", kind, password)
    return TlsSettings(material, material, None, ClientCertificates.NONE, ("TLSv1.2", "TLSv1.3"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("kind", ["", "PKCS12", "JKS"])
def test_a_store_is_shown_whatever_java_calls_it(authority: Authority, file: Path, kind: str) -> None:
    file.write_bytes(store(authority.issue("server", hosts=["localhost"])))
    context = make_context(in_file(file, kind=Given(kind, "ssl.keystore.type")))
    assert shown(context, authority.certificate) == "server"


def test_stores_of_all_ages_and_of_other_tools(authority: Authority, file: Path) -> None:
    issued = authority.issue("server", hosts=["localhost"])
    form = PrivateFormat.PKCS12.encryption_builder().key_cert_algorithm(PBES.PBESv1SHA1And3KeyTripleDESCBC)
    old = form.hmac_hash(hashes.SHA1()).build(PASSWORD.encode())
    own = ["openssl", "pkcs12", "-export", "-in", str(issued.both), "-passout", f"pass:{PASSWORD}"]
    legacy = ["-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-RC2-40", "-macalg", "sha1", "-legacy"]
    stores = [store(issued), store(issued, secrecy=old)]
    stores += [subprocess.run([*own, *more], check=True, capture_output=True).stdout for more in ([], legacy)]
    for one in stores:
        file.write_bytes(one)
        assert shown(make_context(in_file(file, kind=PKCS12)), authority.certificate) == "server"
    file.write_bytes(store(issued, secrecy=NoEncryption()))
    without = in_file(file, Given("", "ssl.keystore.password"), PKCS12)
    assert shown(make_context(without), authority.certificate) == "server"


def test_the_chain_is_that_of_the_key_in_its_order() -> None:
    """Stores have certificates in any order, and may have others beside them."""
    root_key, middle_key, key, other_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(4))
    root = certificate("root", root_key, "root", root_key)
    middle = certificate("middle", middle_key, "root", root_key)
    own = certificate("server", key, "middle", middle_key)
    # Of the same name, as authorities are that were made anew.
    strangers = [certificate("middle", other_key, "root", root_key) for _ in range(2)]
    others = [strangers[0], root, middle, strangers[1]]
    data = serialize_key_and_certificates(b"server", key, own, others, BEST)
    ((found, chain),) = read_key_store(data, GIVEN)
    assert x509.load_pem_x509_certificates(chain.encode()) == [own, middle, root]
    assert load_pem_private_key(found.encode(), None).private_numbers() == key.private_numbers()  # type: ignore[union-attr]


def test_authorities_that_have_signed_each_other_end_the_chain() -> None:
    one_key, other_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    one = certificate("one", one_key, "other", other_key)
    other = certificate("other", other_key, "one", one_key)
    own = certificate("server", key, "one", one_key)
    data = serialize_key_and_certificates(b"server", key, own, [one, other], BEST)
    ((_, chain),) = read_key_store(data, GIVEN)
    assert chain.count("BEGIN") == 3


def certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=3650))
        .sign(issuer_key, hashes.SHA256())
    )


def test_clients_are_taken_whose_authority_is_in_the_trust_store(
    authority: Authority, tmp_path: Path
) -> None:
    server, client = authority.issue("server", hosts=["localhost"]), authority.issue("client")
    keys, trust = tmp_path / "keys", tmp_path / "trust"
    keys.write_bytes(store(server))
    trust.write_bytes(trust_store(x509.load_pem_x509_certificate(authority.certificate.read_bytes())))
    settings = replace(
        in_file(keys),
        trusted=Material("ssl.truststore.location", trust, "", PKCS12, GIVEN),
        client_certificates=ClientCertificates.REQUIRED,
        versions=("TLSv1.2",),  # whose client hears of a refusal in the handshake
    )
    context = make_context(settings)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with pytest.raises(ssl.SSLError):
        handshake(context, trusting)
    trusting.load_cert_chain(client.both)
    assert handshake(context, trusting).version() == "TLSv1.2"


def test_what_cannot_be_used_is_one_sentence_without_a_secret(authority: Authority, file: Path) -> None:
    issued = authority.issue("server", hosts=["localhost"])
    data = store(issued)
    key, own = key_and_certificate(issued)
    foreign = serialize_key_and_certificates(b"other", key, None, None, OTHER)
    none, other = Given("", "ssl.keystore.password"), Given("hunter3", "ssl.keystore.password")
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0xFF
    cases = [
        (data, other, r"cannot be opened with ssl\.keystore\.password: its password is another one"),
        (data, Given(PASSWORD + "\0", GIVEN.name), r"cannot be opened with ssl\.keystore\.password"),
        (data, none, r"cannot be opened without a password: set ssl\.keystore\.password$"),
        (bytes(damaged), GIVEN, r"cannot be opened with ssl\.keystore\.password: .* or it is damaged$"),
        (data[:-1], GIVEN, rf"is cut off: it has {len(data) - 1} of {len(data)} bytes$"),
        (data[:2], GIVEN, "is cut off|is neither"),
        (data[:4], GIVEN, "is cut off"),
        (own.public_bytes(Encoding.DER), GIVEN, "store is neither PEM nor a store of PKCS12 or JKS$"),
        (bytes(1000), GIVEN, "store is neither PEM nor a store of PKCS12 or JKS$"),
        (b"", GIVEN, "store is neither PEM nor a store of PKCS12 or JKS$"),
        (b"0", GIVEN, "store is neither PEM nor a store of PKCS12 or JKS$"),
        (b"0\xff" + bytes(200), GIVEN, "store is neither PEM nor a store of PKCS12 or JKS$"),
        (trust_store(own), GIVEN, "store has no private key$"),
        (two_keys(), GIVEN, "store has no certificate of its private key$"),
        (together(data, two_keys()), GIVEN, "store has no certificate of its private key$"),
        (together(data, foreign), GIVEN, r"that ssl\.keystore\.password does not decrypt$"),
        (b"\xce\xce\xce\xce" + bytes(100), GIVEN, "keytool -importkeystore .* -deststoretype PKCS12$"),
        (
            issued.both.read_bytes(),
            GIVEN,
            r"ssl\.keystore\.password is for a store, and .* is PEM: leave it out$",
        ),
    ]
    for content, password, sentence in cases:
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=sentence) as said:
            make_context(in_file(file, password))
        assert "\n" not in str(said.value)
        assert "hunter" not in str(said.value)
    assert "hunter" not in repr(in_file(file))


def test_a_form_that_is_not_the_one_that_was_said(authority: Authority, file: Path) -> None:
    issued = authority.issue("server", hosts=["localhost"])
    cases = [
        (
            store(issued),
            Given("PEM", "ssl.keystore.type"),
            "is binary, like a store of PKCS12, and ssl.keystore.type says PEM$",
        ),
        (store(issued), Given("PEM", ""), "is binary, like a store of PKCS12, and has to be PEM$"),
        (issued.both.read_bytes(), PKCS12, "is PEM, and ssl.keystore.type says PKCS12$"),
        (issued.both.read_bytes(), Given("JKS", "t"), "is PEM, and t says JKS$"),
    ]
    for content, kind, sentence in cases:
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=sentence):
            make_context(in_file(file, kind=kind))
    text = Material("ssl.keystore.key", None, issued.both.read_text(), PKCS12)
    with pytest.raises(ConfigError, match=r"^ssl.keystore.key is PEM, and ssl.keystore.type says PKCS12$"):
        make_context(replace(in_file(file), chain=text, key=text))


def test_a_store_has_one_password(authority: Authority, file: Path) -> None:
    file.write_bytes(store(authority.issue("server", hosts=["localhost"])))
    settings = replace(in_file(file), password_setting="ssl.key.password")
    assert shown(make_context(replace(settings, password=PASSWORD)), authority.certificate) == "server"
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is not ssl\.keystore\.password") as said:
        make_context(replace(settings, password="hunter3"))
    assert "hunter" not in str(said.value)


def test_a_key_is_not_trusted(authority: Authority) -> None:
    """Its chain would be, of which Java takes the first certificate alone."""
    with pytest.raises(ConfigError, match=r"^has a private key, and certificates that are trusted"):
        read_trust_store(store(authority.issue("server")), GIVEN)


def test_a_store_without_a_certificate_trusts_nothing() -> None:
    empty = der(0x30, bytes((2, 1, 3)), content_info(der(0x30)))
    with pytest.raises(ConfigError, match=r"^has no certificate$"):
        read_trust_store(empty, GIVEN)


def together(*stores: bytes) -> bytes:
    """A store with the keys and certificates of several, which Python's libraries do not make, without their MAC."""
    parts = []
    for one in stores:
        (outer,) = der_values(one)
        _, safe, *_ = der_values(outer.content)
        _, explicit = der_values(safe.content)
        (octets,) = der_values(explicit.content)
        (sequence,) = der_values(octets.content)
        parts.append(sequence.content)
    return der(0x30, bytes((2, 1, 3)), content_info(der(0x30, *parts)))


def two_keys() -> bytes:
    """A store with two keys that are not encrypted, and no certificate."""
    keys = [
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
        )
        for _ in range(2)
    ]
    bags = [der(0x30, object_id("2a864886f70d010c0a0101"), der(0xA0, key)) for key in keys]
    parts = der(0x30, content_info(der(0x30, *bags)))
    return der(0x30, bytes((2, 1, 3)), content_info(parts))


def content_info(content: bytes) -> bytes:
    return der(0x30, object_id("2a864886f70d010701"), der(0xA0, der(0x04, content)))


def object_id(digits: str) -> bytes:
    return der(0x06, bytes.fromhex(digits))


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content).to_bytes(2)
    return bytes((tag, len(content))) + content if len(content) < 128 else bytes((tag, 0x82)) + size + content


def test_a_store_that_changes_is_used_and_a_broken_one_is_not(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        file = tmp_path / "store"
        file.write_bytes(store(authority.issue("one", hosts=["localhost"])))
        certificates = Certificates()
        one = certificates.of(in_file(file))
        file.write_bytes(store(authority.issue("two", hosts=["localhost"])))
        for _ in range(2):
            await certificates.refresh()
        assert shown(one.context, authority.certificate) == "two"
        file.write_bytes(file.read_bytes()[:-1])
        for _ in range(5):
            await certificates.refresh()
        assert shown(one.context, authority.certificate) == "two"

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "is cut off" in caplog.text
