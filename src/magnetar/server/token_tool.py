"""The work of `magnetar tokens`: it creates keys and tokens, and validates tokens as the server would."""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
)

from magnetar.base.clock import SystemClock
from magnetar.base.errors import ConfigError
from magnetar.base.key_source import read_key
from magnetar.broker.security.tokens import (
    PUBLIC_ALGORITHMS,
    InvalidToken,
    TokenValidator,
    public_key,
    secret_key,
    signed_claims,
)

SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_RSA_BITS: Final = {"256": 2048, "384": 3072, "512": 4096}
_CURVES: Final[dict[str, ec.EllipticCurve]] = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
}
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_TIME: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhdwy]?)")


def write_private(file: Path, data: bytes) -> None:
    """Write a new file that only its owner can read.  Raises ConfigError if the file exists."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{file} is there already: a key that is lost cannot be had again") from None
    with open(descriptor, "wb") as stream:
        stream.write(data)


def make_secret(algorithm: str) -> bytes:
    if algorithm not in SECRET_BYTES:
        raise ConfigError(f"a secret key is for one of {', '.join(SECRET_BYTES)}")
    return os.urandom(SECRET_BYTES[algorithm])


def make_pair(algorithm: str) -> tuple[bytes, bytes]:
    """A private key (PKCS #8) and its public key (SubjectPublicKeyInfo), as DER."""
    if algorithm not in PUBLIC_ALGORITHMS:
        raise ConfigError(f"a pair of keys is for one of {', '.join(PUBLIC_ALGORITHMS)}")
    curve = _CURVES.get(algorithm)
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    key = (
        rsa.generate_private_key(65537, _RSA_BITS[algorithm[2:]])
        if curve is None
        else ec.generate_private_key(curve)
    )
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def make_token(
    subject: str,
    algorithm: str,
    secret: str | None,
    private: str | None,
    expiry: str | None,
    headers: list[str],
) -> str:
    """A token of `subject`, signed with one of the keys, which are given in the form of the settings."""
    if (secret is None) == (private is None):
        raise ConfigError("a token is signed with --secret-key or --private-key: give one of them")
    if not subject.strip():
        raise ConfigError("--subject is empty: a token has a role")
    claims: dict[str, Any] = {"sub": subject}
    if expiry is not None:
        claims["exp"] = SystemClock().now_ms() // 1000 + _seconds(expiry)
    more = dict(_header(one) for one in headers)
    if secret is not None:
        data = read_key("--secret-key", secret, os.environ)
        chosen = algorithm or "HS256"
        if chosen not in secret_key(data).algorithms:
            raise ConfigError(f"the secret key is not one for {chosen}")
        return jwt.encode(claims, data, chosen, more)
    assert private is not None
    chosen = algorithm or "RS256"
    if chosen not in PUBLIC_ALGORITHMS:
        raise ConfigError(f"a private key signs with one of {', '.join(PUBLIC_ALGORITHMS)}")
    signing: Any = _private_key(read_key("--private-key", private, os.environ))
    try:
        return jwt.encode(claims, signing, chosen, more)
    except (jwt.PyJWTError, TypeError, ValueError):
        raise ConfigError(f"the private key is not one for {chosen}") from None


def validate(token: str, algorithm: str, secret: str | None, public: str | None) -> str:
    """Validate a token.  Returns its claims as JSON.

    Raises:
        ConfigError: the token is invalid; the text says why.
    """
    if (secret is None) == (public is None):
        raise ConfigError("a token is looked at with --secret-key or --public-key: give one of them")
    if secret is not None:
        key = secret_key(read_key("--secret-key", secret, os.environ))
    else:
        assert public is not None
        key = public_key(read_key("--public-key", public, os.environ), algorithm or "RS256")
    try:
        TokenValidator(key, SystemClock()).validate(token)
        return json.dumps(signed_claims(token, key))
    except InvalidToken as error:
        raise ConfigError(f"the token is not good: {error}") from None


def show(token: str) -> str:
    """A token's header and claims; the signature is not verified."""
    try:
        parts = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError):
        raise ConfigError("this is no token") from None
    return f"{json.dumps(parts['header'])}\n---\n{json.dumps(parts['payload'])}"


def _private_key(data: bytes) -> PrivateKeyTypes:
    try:
        if data.startswith(b"-----BEGIN"):
            return load_pem_private_key(data, None)
        return load_der_private_key(data, None)
    except (ValueError, TypeError):
        raise ConfigError("--private-key is no private key (PKCS #8, as DER or PEM)") from None


def _seconds(text: str) -> int:
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(
            f"--expiry-time {text[:50]!r} is no time: it looks like 30s, 10m, 12h, 7d, 2w or 1y"
        )
    return int(found["count"]) * _UNITS_S[found["unit"] or "s"]


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name in ("alg", "crit", "b64"):
        raise ConfigError(f"--headers {text[:50]!r} must be name=value, such as kid=first")
    return name, value
