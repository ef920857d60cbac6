"""Reads stores of keys and certificates in the form of PKCS #12 (RFC 7292), which Java's tools write, as PEM.

A store's content stays in memory: its keys are written to no file.  This module imports cryptography, which takes a
tenth of a second, so only a server with such a store imports it.

cryptography returns only the first key of a store.  If a store has several, this module decrypts the part of each key,
which is a whole EncryptedPrivateKeyInfo (PKCS #8), and finds the key's certificate by its public key.

Java marks trusted certificates, unlike those of a key, with its own attribute.  OpenSSL, and therefore cryptography,
does not return that attribute.  So a store of trusted certificates that also has a private key is refused: all
certificates of the key's chain would be trusted, but Java trusts only the first.
"""

from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12
from cryptography.x509 import Certificate

from magnetar.base.der import INTEGER, OBJECT_ID, OCTETS, SEQUENCE, DerValue, der_content, der_values
from magnetar.base.errors import ConfigError
from magnetar.base.settings_tls import Given

_EXPLICIT: Final = 0xA0
_VERSION: Final = bytes((INTEGER, 1, 3))
_DATA: Final = bytes.fromhex("2a864886f70d010701")
_UNENCRYPTED_KEY, _ENCRYPTED_KEY = _KEYS = tuple(
    bytes.fromhex(f"2a864886f70d010c0a01{kind}") for kind in ("01", "02")
)
_LONG_LENGTH: Final = 0x80
_LENGTH_BYTES_MAX: Final = 4


def read_key_store(data: bytes, password: Given) -> list[tuple[str, str]]:
    """The keys in a store, each with its chain of certificates, its own first; as PEM.

    Raises:
        ConfigError: the store cannot be opened, or has other content.  The text continues a sentence that begins with
            the file's name.
    """
    found = _open(data, password)
    if found.key is None:
        raise ConfigError("has no private key")
    certificates = [one.certificate for one in (found.cert, *found.additional_certs) if one is not None]
    bags = _key_bags(data)
    keys = [_decrypted(bag, password) for bag in bags] if len(bags) > 1 else [found.key]
    return [(_key_as_pem(key), _as_pem(_chain(_own(key, certificates), certificates))) for key in keys]


def read_trust_store(data: bytes, password: Given) -> str:
    """The certificates in a store, as PEM.

    Raises:
        ConfigError: as `read_key_store`.
    """
    found = _open(data, password)
    if found.key is not None:
        raise ConfigError("has a private key, and certificates that are trusted stand in a store without one")
    certificates = [one.certificate for one in (found.cert, *found.additional_certs) if one is not None]
    if not certificates:
        raise ConfigError("has no certificate")
    return _as_pem(certificates)


def _open(data: bytes, password: Given) -> PKCS12KeyAndCertificates:
    _check_outside(data)
    try:
        if "\0" not in password.text:  # C would end the password there
            return load_pkcs12(data, password.text.encode() or None)
    except (ValueError, UnsupportedAlgorithm):
        pass
    if not password.text:
        raise ConfigError(f"cannot be opened without a password: set {password.name}")
    raise ConfigError(f"cannot be opened with {password.name}: its password is another one, or it is damaged")


def _check_outside(data: bytes) -> None:
    """Check without a password whether the data are a whole store of PKCS #12.  Raises ConfigError."""
    begin = 2
    count = data[1] - _LONG_LENGTH if len(data) > 1 else 0  # the bytes of a long length
    if 0 < count <= _LENGTH_BYTES_MAX:
        begin += count
        length = begin + int.from_bytes(data[2:begin])
        if len(data) < length:
            raise ConfigError(f"is cut off: it has {len(data)} of {length} bytes")
    if not data[begin:].startswith(_VERSION):
        raise ConfigError("is neither PEM nor a store of PKCS12 or JKS")


class _KeyBag(NamedTuple):
    content: bytes  # PKCS #8
    is_encrypted: bool


def _key_bags(data: bytes) -> list[_KeyBag]:
    """The private keys in the data; none if they are not DER."""
    try:
        (outer,) = der_values(data)
        _, safe, *_ = der_values(der_content(outer, SEQUENCE))
        bags = [bag for part in _inside(safe) for bag in _inside(part)]
        return [found for bag in bags if (found := _key_bag(bag)) is not None]
    except ValueError:
        return []


def _key_bag(bag: DerValue) -> _KeyBag | None:
    kind, explicit, *_ = der_values(der_content(bag, SEQUENCE))
    found = der_content(kind, OBJECT_ID)
    return _KeyBag(der_content(explicit, _EXPLICIT), found == _ENCRYPTED_KEY) if found in _KEYS else None


def _decrypted(bag: _KeyBag, password: Given) -> PrivateKeyTypes:
    try:
        return load_der_private_key(bag.content, password.text.encode() if bag.is_encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"has a private key that {password.name} does not decrypt") from None


def _own(key: PrivateKeyTypes, certificates: list[Certificate]) -> Certificate:
    """The certificate of a key."""
    public = _public(key.public_key())
    for one in certificates:
        if _public(one.public_key()) == public:
            return one
    raise ConfigError("has no certificate of its private key")


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _inside(info: DerValue) -> list[DerValue]:
    """The values in a ContentInfo; none if they are encrypted.  Keys are not in encrypted ones, because each is
    encrypted itself.
    """
    kind, explicit = der_values(der_content(info, SEQUENCE))
    if der_content(kind, OBJECT_ID) != _DATA:
        return []
    (octets,) = der_values(der_content(explicit, _EXPLICIT))
    (sequence,) = der_values(der_content(octets, OCTETS))
    return list(der_values(der_content(sequence, SEQUENCE)))


def _chain(certificate: Certificate, others: list[Certificate]) -> list[Certificate]:
    """A certificate, its signer, the signer's signer, and so on, as far as `others` have them.

    A store has them in any order, and may have certificates that do not belong to the key.
    """
    chain, left = [certificate], [one for one in others if one != certificate]
    while (signer := next((one for one in left if _has_signed(one, chain[-1])), None)) is not None:
        left.remove(signer)
        chain.append(signer)
    return chain


def _has_signed(signer: Certificate, certificate: Certificate) -> bool:
    if certificate.issuer == certificate.subject:
        return False
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _key_as_pem(key: PrivateKeyTypes) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _as_pem(certificates: list[Certificate]) -> str:
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in certificates)
