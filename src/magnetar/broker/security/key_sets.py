"""JWK Sets (RFC 7517): the public keys of an identity provider, by their ids.

A key that cannot be used is left out: providers have keys for other things in their sets.  So is a secret, which would
not be secret any more.  A set without a usable key is an error.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from magnetar.base.errors import ConfigError
from magnetar.broker.security.tokens import CURVES, RSA_BITS_MIN, RSA_FAMILIES, TokenKey

KEYS_MAX: Final = 1000


class NamedKey(NamedTuple):
    """`key_id` is None for a key without one."""

    key_id: str | None
    key: TokenKey


class TokenKeys(Protocol):
    """Where keys are looked for."""

    def find(self, key_id: str | None, algorithm: str) -> TokenKey | None:
        """The key of this id, or, without one, the only key for the algorithm."""
        ...


class KeySet:
    """See the module's text."""

    def __init__(self, keys: Iterable[NamedKey] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key_id: str | None, algorithm: str) -> TokenKey | None:
        """See `TokenKeys`."""
        found = [
            one.key for one in self._keys if key_id in (None, one.key_id) and algorithm in one.key.algorithms
        ]
        return found[0] if len(found) == 1 else None


def parse_key_set(data: bytes) -> KeySet:
    """The keys of a set that can verify tokens.

    Raises:
        ConfigError: this is none, or none of its keys can.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ConfigError("it is not JSON") from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise ConfigError("it is no JWK Set: it has no list of keys")
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"it has more than {KEYS_MAX} keys")
    found = KeySet(one for one in map(_key, keys) if one is not None)
    if not len(found):
        raise ConfigError("none of its keys can verify tokens")
    return found


def _key(given: Any) -> NamedKey | None:
    if not isinstance(given, dict) or given.get("kty") not in ("RSA", "EC"):
        return None
    key_id, algorithm = given.get("kid"), given.get("alg")
    operations = given.get("key_ops", ["verify"])
    if given.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
        return None
    public = {name: value for name, value in given.items() if name not in ("d", "alg")}
    try:
        key = jwt.PyJWK(public).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        return None
    algorithms: tuple[str, ...] = ()
    if isinstance(key, RSAPublicKey) and key.key_size >= RSA_BITS_MIN:
        algorithms = tuple(name for family in RSA_FAMILIES for name in family)
    elif isinstance(key, EllipticCurvePublicKey):
        algorithms = tuple(name for name, curve in CURVES.items() if isinstance(key.curve, curve))
    if algorithm is not None:
        algorithms = tuple(name for name in algorithms if name == algorithm)
    return NamedKey(key_id, TokenKey(key, algorithms)) if algorithms else None
