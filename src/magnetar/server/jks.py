"""Reads stores of keys and certificates in Java's old form, JKS, as PEM.

    store        magic FEEDFEED, version (1 or 2), count of entries, entries, digest (20 bytes)
    entry        tag (1 a key, 2 a trusted certificate), alias, when it was made (ms, 8 bytes)
      of a key          size, protected key; count of certificates, its chain
      of a certificate  one certificate
    certificate  in version 2 a type (X.509), then size, DER
    text         size in two bytes, then Java's modified UTF-8

All other numbers have four bytes, big-endian.

The digest is SHA-1 over the password (UTF-16), a constant text, and all bytes before the digest.  A protected key is
DER (EncryptedPrivateKeyInfo) around 20 bytes of salt, the key (PKCS #8) under an xor, and SHA-1 of password and key.
The first 20 bytes of the xor's stream are SHA-1 of password and salt; each further 20 are SHA-1 of password and the
20 bytes before.  This is weak by today's measure, but keytool wrote it up to Java 8, and still reads it.

With a password, nothing of a store is used before its digest has been verified.  The file's size bounds all sizes and
counts, and so the work.  Of the libraries that read JKS, pyjks is no longer maintained and its fork is hardly known;
both bring ciphers that we do not need.
"""

import hashlib
import ssl
import textwrap
from base64 import b64encode
from hmac import compare_digest
from typing import Final, NamedTuple

from magnetar.base.der import OBJECT_ID, OCTETS, SEQUENCE, der_content, der_values
from magnetar.base.errors import ConfigError
from magnetar.base.settings_tls import Given

MAGIC: Final = b"\xfe\xed\xfe\xed"
_WORDS: Final = b"Mighty Aphrodite"
_KEY: Final = 1
_TRUSTED: Final = 2
_X509: Final = b"X.509"
_DIGEST_BYTES: Final = 20
_SALT_BYTES: Final = 20
_BY_JAVA: Final = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1


class _Key(NamedTuple):
    protected: bytes
    chain: list[bytes]  # its own certificate first


class _Store(NamedTuple):
    keys: list[_Key]
    trusted: list[bytes]


def read_key_store(data: bytes, password: Given, key_password: Given) -> list[tuple[str, str]]:
    """The keys in a store, each with its chain of certificates, as PEM.  An empty `key_password` means that of the
    store.

    Raises:
        ConfigError: the store cannot be opened, or has other content.  The text continues a sentence that begins with
            the file's name.
    """
    if not password.text:
        raise ConfigError(f"cannot be opened without a password: set {password.name}")
    keys = _opened(data, password).keys
    if not keys:
        raise ConfigError("has no private key")
    if not all(key.chain for key in keys):
        raise ConfigError("has no certificate of its private key")
    given = key_password if key_password.text else password
    return [
        (_pem("PRIVATE KEY", _unprotected(key.protected, given)), _certificates(key.chain)) for key in keys
    ]


def read_trust_store(data: bytes, password: Given) -> str:
    """The certificates that a store vouches for, as in Java: the trusted ones, and those of its keys; as PEM.

    Without a password, its digest is not verified, as in Kafka.  Raises ConfigError as `read_key_store` does.
    """
    found = _opened(data, password)
    certificates = [*found.trusted, *(key.chain[0] for key in found.keys if key.chain)]
    if not certificates:
        raise ConfigError("has no certificate")
    return _certificates(certificates)


class _Reader:
    """Reads the parts of a store in order.  Raises ConfigError if the store ends too early."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def number(self) -> int:
        return int.from_bytes(self.take(4))

    def take(self, size: int) -> bytes:
        begin, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise ConfigError(
                f"is cut off: it has {len(self._data)} bytes, and ends in the middle of an entry"
            )
        return self._data[begin : self.position]

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(2)))

    def certificate(self, version: int) -> bytes:
        if version > 1 and self.text() != _X509:
            raise ConfigError("has a certificate that is none of X.509")
        return self.take(self.number())


def _opened(data: bytes, password: Given) -> _Store:
    reader = _Reader(data, len(MAGIC))
    version = reader.number()
    if version not in (1, 2):
        raise ConfigError(f"is a store of JKS of version {version}, and 1 and 2 are known")
    found = _Store([], [])
    for _ in range(reader.number()):
        tag = reader.number()
        reader.text()
        reader.take(8)
        if tag == _KEY:
            protected = reader.take(reader.number())
            found.keys.append(_Key(protected, [reader.certificate(version) for _ in range(reader.number())]))
        elif tag == _TRUSTED:
            found.trusted.append(reader.certificate(version))
        else:
            raise ConfigError(f"is damaged, or has something else than keys and certificates ({tag})")
    end = reader.position
    digest = reader.take(_DIGEST_BYTES)
    if reader.position != len(data):
        raise ConfigError("is damaged: there is something behind its end")
    if password.text and not compare_digest(_sha1(_bytes_of(password) + _WORDS + data[:end]), digest):
        raise ConfigError(
            f"cannot be opened with {password.name}: its password is another one, or it is damaged"
        )
    return found


def _unprotected(protected: bytes, password: Given) -> bytes:
    try:
        (outer,) = der_values(protected)
        algorithm, octets = der_values(der_content(outer, SEQUENCE))
        kind = next(der_values(der_content(algorithm, SEQUENCE)))
        content = der_content(octets, OCTETS)
        is_known = der_content(kind, OBJECT_ID) == _BY_JAVA
    except (ValueError, StopIteration):
        raise ConfigError("has a private key that cannot be read") from None
    if not is_known or len(content) <= _SALT_BYTES + _DIGEST_BYTES:
        raise ConfigError("has a private key that is protected in another way than Java's own")
    secret = _bytes_of(password)
    hidden, check = content[_SALT_BYTES:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    stream, block = bytearray(), content[:_SALT_BYTES]
    while len(stream) < len(hidden):
        block = _sha1(secret + block)
        stream += block
    size = len(hidden)
    key = (int.from_bytes(hidden) ^ int.from_bytes(stream[:size])).to_bytes(size)
    if not compare_digest(_sha1(secret + key), check):
        raise ConfigError(f"has a private key whose password is not {password.name}")
    return key


def _bytes_of(password: Given) -> bytes:
    return password.text.encode("utf-16-be", "surrogatepass")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _certificates(found: list[bytes]) -> str:
    return "".join(map(ssl.DER_cert_to_PEM_cert, found))


def _pem(what: str, content: bytes) -> str:
    lines = textwrap.wrap(b64encode(content).decode(), 64)
    return "\n".join([f"-----BEGIN {what}-----", *lines, f"-----END {what}-----", ""])
