"""JSON Web Tokens: whether a token is valid, and whose it is.

What must stay true:

* Only algorithms of the configured key count: a secret verifies HS256, HS384 and HS512, a public key those of its own
  family.  A token's header chooses among these, and never the key; `none` is not among them.
* A secret has at least as many bits as the algorithm's digest (RFC 7518, section 3.2), an RSA key 2048.
* A token without a role is refused: Pulsar's broker would let it in as a client without a name.
* Errors have no part of a token or a key in them, also not as their cause.

Time is the clock's.  A token is valid until one of the two clocks says that it has ended.  So an accepted token does
not live longer because the wall clock was set back.

Imports the libraries of cryptography, which takes a tenth of a second: only a server with tokens imports this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP384R1,
    SECP521R1,
    EllipticCurve,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key
from jwt.algorithms import HMACAlgorithm

from magnetar.base.clock import Clock
from magnetar.base.errors import ConfigError
from magnetar.base.names import PRINCIPAL_BYTES_MAX
from magnetar.broker.security.authentication import Method
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Credentials, Identity

TOKEN_BYTES_MAX: Final = 64 << 10
RSA_BITS_MIN: Final = 2048
SECONDS_MAX: Final = 10**12  # 30,000 years: what is further away is no time
SUBJECT: Final = "sub"

# The bytes that a secret must have.
_SECRETS: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
CURVES: Final[Mapping[str, type[EllipticCurve]]] = {
    "ES256": SECP256R1,
    "ES384": SECP384R1,
    "ES512": SECP521R1,
}
RSA_FAMILIES: Final = (("RS256", "RS384", "RS512"), ("PS256", "PS384", "PS512"))
PUBLIC_ALGORITHMS: Final = (*RSA_FAMILIES[0], *RSA_FAMILIES[1], *CURVES)

# PyJWT verifies signatures.  Its own checks of claims read the machine's clock.
_NOTHING: Final[Any] = {
    "verify_signature": False,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
_ONLY_SIGNATURE: Final[Any] = {**_NOTHING, "verify_signature": True}
# What PyJWT raises for what is no token, and lets through from the libraries that it uses.
_UNREADABLE: Final = (jwt.PyJWTError, ValueError, TypeError, RecursionError)


class InvalidToken(AuthenticationFailed):
    """A token is not good; the text says why, in words for a log."""

    code: ClassVar[str] = "INVALID_TOKEN"


@dataclass(frozen=True, slots=True)
class TokenKey:
    """What signatures are verified with, and the algorithms that it is for."""

    material: RSAPublicKey | EllipticCurvePublicKey | bytes = field(repr=False)
    algorithms: tuple[str, ...]


def secret_key(data: bytes) -> TokenKey:
    """Raises ConfigError: it is too short, or no secret at all."""
    algorithms = tuple(name for name, size in _SECRETS.items() if len(data) >= size)
    if not algorithms:
        raise ConfigError(f"a secret key has 256 bits at least, and this one has {8 * len(data)}")
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(data)
    except jwt.InvalidKeyError:
        # Every client that has the public key could sign with it.
        raise ConfigError("this is a public key or a certificate, and no secret") from None
    return TokenKey(data, algorithms)


def public_key(data: bytes, algorithm: str) -> TokenKey:
    """A SubjectPublicKeyInfo as DER or PEM, for tokens of the family of `algorithm`.

    Raises:
        ConfigError: it is none, or not one for this algorithm.
    """
    if algorithm not in PUBLIC_ALGORITHMS:
        raise ConfigError(f"the algorithm of a public key is one of {', '.join(PUBLIC_ALGORITHMS)}")
    try:
        key = load_pem_public_key(data) if data.startswith(b"-----BEGIN") else load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError("this is no public key (SubjectPublicKeyInfo, as DER or PEM)") from None
    curve = CURVES.get(algorithm)
    if curve is not None:
        if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, curve):
            raise ConfigError(f"{algorithm} needs a public key of the curve {curve.name}")
        return TokenKey(key, (algorithm,))
    if not isinstance(key, RSAPublicKey):
        raise ConfigError(f"{algorithm} needs a public key of RSA")
    if key.key_size < RSA_BITS_MIN:
        raise ConfigError(f"a key of RSA has {RSA_BITS_MIN} bits at least, and this one has {key.key_size}")
    return TokenKey(key, next(family for family in RSA_FAMILIES if algorithm in family))


class TokenValidator:
    """Tokens that one key has signed.

    The role stands in `role_claim`.  With an `audience_claim` a token has to name `audience` there.
    """

    def __init__(
        self,
        key: TokenKey,
        clock: Clock,
        role_claim: str = SUBJECT,
        audience_claim: str = "",
        audience: str = "",
    ) -> None:
        self._key = key
        self._clock = clock
        self._role_claim = role_claim
        self._audience_claim = audience_claim
        self._audience = audience

    def validate(self, token: str) -> Identity:
        """Raises InvalidToken."""
        claims = signed_claims(token, self._key)
        lifetime = lifetime_of(claims, self._clock)
        if self._audience_claim:
            require_audience(claims, self._audience_claim, self._audience)
        return Identity(role_in(claims, self._role_claim), *lifetime)


def token_method(validator: TokenValidator) -> Method:
    """Clients show a token as it is, in ASCII."""

    def identify(credentials: Credentials) -> Identity:
        return validator.validate(shown_token(credentials))

    return identify


def shown_token(credentials: Credentials) -> str:
    """What a client shows, as text.  Raises InvalidToken."""
    try:
        return credentials.data.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidToken("it is no token") from None


def role_in(claims: Mapping[str, Any], claim: str) -> str:
    """The role that a token has in `claim`, the first one of several.  Raises InvalidToken: it has none."""
    role = claims.get(claim)
    if isinstance(role, list) and role:
        role = role[0]
    return require_name(role, claim)


def signed_claims(token: str, key: TokenKey) -> Mapping[str, Any]:
    """What a token says, once it is known that `key` has signed it; nothing of it has been looked at.

    Raises:
        InvalidToken: it has not, or this is no token.
    """
    _check_form(token)
    try:
        claims: Mapping[str, Any] = jwt.decode(token, key.material, key.algorithms, _ONLY_SIGNATURE)
    except jwt.InvalidAlgorithmError:
        raise InvalidToken("it is signed in another way than the key is for") from None
    except jwt.InvalidSignatureError:
        raise InvalidToken("another key has signed it, or it was changed since") from None
    except _UNREADABLE:
        raise InvalidToken("it is no token") from None
    return claims


def unsigned_claims(token: str) -> Mapping[str, Any]:
    """What a token says that nothing signs: the client that shows it may have written it.

    Raises:
        InvalidToken: it is signed, or is no token.
    """
    header = _header(token)
    if header.get("alg") != "none" or not token.endswith("."):
        raise InvalidToken("it is signed, and only unsigned ones are taken here")
    try:
        claims: Mapping[str, Any] = jwt.decode(token, options=_NOTHING)
    except _UNREADABLE:
        raise InvalidToken("it is no token") from None
    return claims


def claimed_issuer(token: str) -> str:
    """The issuer that a token names: the client that shows it may have written that.

    Raises:
        InvalidToken: it is no token, or does not say so.
    """
    _check_form(token)
    try:
        issuer = jwt.decode(token, options=_NOTHING).get("iss")
    except _UNREADABLE:
        raise InvalidToken("it is no token") from None
    if not isinstance(issuer, str):
        raise InvalidToken("it does not say who has issued it")
    return issuer


def named_key(token: str) -> tuple[str | None, str]:
    """The id of the key that a token says it is signed with, if it says so, and the algorithm.

    Raises:
        InvalidToken: it is no token.
    """
    header = _header(token)
    key_id, algorithm = header.get("kid"), header.get("alg")
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str):
        raise InvalidToken("it is no token")
    return key_id, algorithm


def _header(token: str) -> Mapping[str, Any]:
    _check_form(token)
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
    except _UNREADABLE:
        raise InvalidToken("it is no token") from None
    return header


def _check_form(token: str) -> None:
    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidToken(f"it is longer than {TOKEN_BYTES_MAX} bytes")
    if not token.isascii():
        raise InvalidToken("it is no token")


def lifetime_of(claims: Mapping[str, Any], clock: Clock, skew_ms: int = 0) -> tuple[int | None, float | None]:
    """When a token that may be used now ends, by both clocks; None for one that does not end.

    Its times may be `skew_ms` off: one that is in its last such moments ends when they do.

    Raises:
        InvalidToken: it has ended, or has not begun.
    """
    now_ms = clock.now_ms()
    begins_ms, ends_ms = instant_ms(claims, "nbf"), instant_ms(claims, "exp")
    if begins_ms is not None and now_ms < begins_ms - skew_ms:
        raise InvalidToken("its time has not come yet")
    if ends_ms is None:
        return None, None
    if now_ms >= ends_ms:
        ends_ms += skew_ms
    if now_ms >= ends_ms:
        raise InvalidToken("it has expired")
    return ends_ms, clock.monotonic() + (ends_ms - now_ms) / 1000


def require_name(name: object, claim: str) -> str:
    """The name that a token has in `claim`.

    Raises:
        InvalidToken: it is none, or no protocol could carry it.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidToken(f"it has no name in {claim!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidToken("the name in it is no text") from None
    if size > PRINCIPAL_BYTES_MAX:
        raise InvalidToken(f"the name in it is longer than {PRINCIPAL_BYTES_MAX} bytes")
    return name


def require_audience(claims: Mapping[str, Any], claim: str, *audiences: str) -> None:
    """Raises InvalidToken: the token is for none of `audiences`."""
    named = claims.get(claim)
    if not any(one in audiences for one in (named if isinstance(named, list) else [named])):
        raise InvalidToken("it is for another audience")


def instant_ms(claims: Mapping[str, Any], claim: str) -> int | None:
    """A time of a token in milliseconds; it has seconds since the epoch, also fractions (RFC 7519, section 2).

    None where it does not say it.  Raises InvalidToken: it is no time.
    """
    seconds = claims.get(claim)
    if seconds is None:
        return None
    is_time = (
        isinstance(seconds, int | float) and not isinstance(seconds, bool) and abs(seconds) < SECONDS_MAX
    )
    if not is_time:
        raise InvalidToken(f"its {claim} is no time")
    return int(seconds * 1000)
