"""Stores in Java's old form; those that keytool makes are in `tests/integration/tls/test_java_stores.py`."""

import hashlib
import os
import random
import re
import ssl
import struct
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from magnetar.base.errors import ConfigError
from magnetar.base.settings_tls import ClientCertificates, Given, Material, TlsSettings
from magnetar.server import jks
from magnetar.server.certificates import make_context
from magnetar.testing.certificates import Authority, Issued

PASSWORD = "a störe's secret"
GIVEN = Given(PASSWORD, "ssl.keystore.password")
KEY_GIVEN = Given("", "ssl.key.password")


def sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts)).digest()


def counted(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def protected(key: bytes, password: str, kind: str = "2b060104012a02110101") -> bytes:
    secret, salt = password.encode("utf-16-be"), os.urandom(20)
    block, stream = salt, b""
    while len(stream) < len(key):
        block = sha1(secret, block)
        stream += block
    hidden = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    algorithm = der(0x30, der(0x06, bytes.fromhex(kind)) + der(0x05, b""))
    return der(0x30, algorithm + der(0x04, salt + hidden + sha1(secret, key)))


def text(word: str) -> bytes:
    return struct.pack(">H", len(word)) + word.encode()


def certificate(content: bytes, version: int, kind: str = "X.509") -> bytes:
    return (text(kind) if version > 1 else b"") + counted(content)


def key_entry(key: bytes, chain: Sequence[bytes], version: int = 2) -> bytes:
    head = struct.pack(">I", 1) + text("alias") + struct.pack(">Q", 0)
    return (
        head
        + counted(key)
        + struct.pack(">I", len(chain))
        + b"".join(certificate(one, version) for one in chain)
    )


def trusted_entry(content: bytes, version: int = 2, kind: str = "X.509") -> bytes:
    return struct.pack(">I", 2) + text("trusted") + struct.pack(">Q", 0) + certificate(content, version, kind)


def store(*entries: bytes, version: int = 2, password: str = PASSWORD, count: int | None = None) -> bytes:
    head = jks.MAGIC + struct.pack(">II", version, len(entries) if count is None else count)
    body = head + b"".join(entries)
    return body + sha1(password.encode("utf-16-be"), b"Mighty Aphrodite", body)


def key_of(issued: Issued) -> bytes:
    key = load_pem_private_key(issued.key.read_bytes(), None)
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def as_der(file: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(
        re.findall("-----BEGIN CERT.*?-----END CERTIFICATE-----", file.read_text(), re.S)[0]
    )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("server", hosts=["localhost"])


@pytest.fixture(scope="module")
def good(authority: Authority, issued: Issued) -> bytes:
    chain = [as_der(issued.certificate), as_der(authority.certificate)]
    return store(key_entry(protected(key_of(issued), PASSWORD), chain), trusted_entry(chain[1]))


def used(
    data: bytes, folder: Path, *, trusted: bool = False, password: Given = GIVEN, key: str = ""
) -> ssl.SSLContext:
    """What a listener makes of a store."""
    file = folder / "store"
    file.write_bytes(data)
    one = Material("ssl.keystore.location", file, "", Given("JKS", "ssl.keystore.type"), password)
    settings = TlsSettings(one, one, None, ClientCertificates.NONE, ("TLSv1.3",), key, "ssl.key.password")
    if not trusted:
        return make_context(settings)
    keys = folder / "keys.pem"
    return make_context(
        replace(
            settings,
            trusted=one,
            chain=(pem := Material("k", keys, "", Given("", ""), Given("", ""))),
            key=pem,
        )
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_key_with_its_chain_and_trusted_certificates(
    authority: Authority, issued: Issued, version: int, tmp_path: Path
) -> None:
    chain = [as_der(issued.certificate), as_der(authority.certificate)]
    data = store(
        key_entry(protected(key_of(issued), "of the key"), chain, version),
        trusted_entry(chain[1], version),
        version=version,
    )
    ((key, certificates),) = jks.read_key_store(data, GIVEN, Given("of the key", "ssl.key.password"))
    assert load_pem_private_key(key.encode(), None)
    assert certificates == "".join(map(ssl.DER_cert_to_PEM_cert, chain))
    used(data, tmp_path, key="of the key")
    assert jks.read_trust_store(data, GIVEN) == "".join(map(ssl.DER_cert_to_PEM_cert, (chain[1], chain[0])))
    (tmp_path / "keys.pem").write_bytes(issued.both.read_bytes())
    assert len(used(data, tmp_path, trusted=True).get_ca_certs()) == 1
    used(data, tmp_path, trusted=True, password=Given("", "ssl.truststore.password"))


def test_what_cannot_be_used_is_one_sentence_without_a_secret(
    authority: Authority, issued: Issued, good: bytes, tmp_path: Path
) -> None:
    own = as_der(issued.certificate)
    key = key_entry(protected(key_of(issued), PASSWORD), [own])
    other, none = Given("hunter3", "ssl.keystore.password"), Given("", "ssl.keystore.password")
    cases = [
        (good, other, "cannot be opened with ssl.keystore.password: its password is another one, or it is damaged"),
        (good, none, "cannot be opened without a password: set ssl.keystore.password"),
        (good[:-1], GIVEN, f"is cut off: it has {len(good) - 1} bytes"),
        (good + b"x", GIVEN, "is damaged: there is something behind its end"),
        (good[:4], GIVEN, "is cut off"),
        (store(version=3), GIVEN, "is a store of JKS of version 3"),
        (store(), GIVEN, "has no private key"),
        (store(count=1 << 31), GIVEN, "is cut off|is damaged"),
        (store(trusted_entry(own)), GIVEN, "has no private key"),
        (store(*[key] * 101), GIVEN, "has 101 private keys, and at most 100 can be used"),
        (store(key_entry(protected(key_of(issued), PASSWORD), [])), GIVEN, "no certificate of its private key"),
        (store(key_entry(protected(key_of(issued), "x"), [own])), GIVEN, "whose password is not ssl.keystore.password"),
        (store(key_entry(protected(b"", PASSWORD), [own])), GIVEN, "in another way than Java's own"),
        (store(key_entry(protected(b"x", PASSWORD, "2b06"), [own])), GIVEN, "in another way than Java's own"),
        (store(key_entry(b"", [own])), GIVEN, "that cannot be read"),
        (store(key_entry(b"0\x80", [own])), GIVEN, "that cannot be read"),
        (store(key_entry(protected(b"x" * 100, PASSWORD), [own])), GIVEN, "no certificate and key that can be used"),
        (store(key_entry(protected(key_of(issued), PASSWORD), [b"x"])), GIVEN, "no certificate and key that can"),
        (store(struct.pack(">I", 3) + text("a") + bytes(8)), GIVEN, "something else than keys and certificates"),
        (store(trusted_entry(own, kind="X.500")), GIVEN, "none of X.509"),
        (b"\xce\xce\xce\xce" + bytes(100), GIVEN, "JCEKS, which is not served: convert it with keytool"),
    ]  # fmt: skip
    for data, password, sentence in cases:
        with pytest.raises(ConfigError, match=sentence) as said:
            used(data, tmp_path, password=password)
        assert str(said.value).startswith("ssl.keystore.location ")
        assert "\n" not in str(said.value)
        assert "hunter" not in str(said.value)
        assert PASSWORD not in str(said.value)
    with pytest.raises(ConfigError, match=r"whose password is not ssl\.key\.password"):
        used(good, tmp_path, key="hunter3")
    (tmp_path / "keys.pem").write_bytes(issued.both.read_bytes())
    for data, sentence in ((store(), "has no certificate"), (store(trusted_entry(b"x")), "cannot be read")):
        with pytest.raises(ConfigError, match=sentence):
            used(data, tmp_path, trusted=True)
    (tmp_path / "store").write_bytes(good)
    one = Material("k", tmp_path / "store", "", Given("PEM", "t"), Given("", ""))
    with pytest.raises(ConfigError, match=r"is a store of JKS, and t says PEM$"):
        make_context(TlsSettings(one, one, None, ClientCertificates.NONE, ("TLSv1.3",)))


def test_a_store_that_is_cut_anywhere_is_refused(good: bytes) -> None:
    for size in range(len(jks.MAGIC), len(good)):
        with pytest.raises(ConfigError):
            jks.read_key_store(good[:size], GIVEN, KEY_GIVEN)
        with pytest.raises(ConfigError):
            jks.read_trust_store(good[:size], Given("", "p"))


def test_nothing_but_a_sentence_comes_of_damage(good: bytes) -> None:
    """Bits and numbers changed; where the digest is not looked at, or is made anew, what is inside is read."""
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    began = time.monotonic()
    for number in range(4000):
        data = bytearray(good[:-20])
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(jks.MAGIC), len(data) - 4)
            if dice.random() < 0.5:
                data[place] ^= 1 << dice.randrange(8)
            else:
                data[place : place + 4] = struct.pack(
                    ">I", dice.choice([0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF, len(data)])
                )
        whole = bytes(data) + sha1(PASSWORD.encode("utf-16-be"), b"Mighty Aphrodite", bytes(data))
        for read in (
            lambda data=whole: jks.read_key_store(data, GIVEN, KEY_GIVEN),
            lambda data=whole: jks.read_trust_store(data, Given("", "p")),
        ):
            try:
                read()
            except ConfigError:
                continue
            except Exception as error:
                raise AssertionError(f"seed {seed}, round {number}") from error
    assert time.monotonic() - began < 60


def test_a_store_as_large_as_a_file_may_be_is_read_in_time(issued: Issued) -> None:
    own = as_der(issued.certificate)
    large = store(key_entry(protected(bytes(1 << 20), PASSWORD), [own]), *[trusted_entry(b"")] * 40_000)
    began = time.thread_time()
    jks.read_key_store(large, GIVEN, KEY_GIVEN)
    assert time.thread_time() - began < 5
