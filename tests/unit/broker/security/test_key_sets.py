"""Which keys of a JWK Set are used, and for what."""

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from magnetar.base.errors import ConfigError
from magnetar.broker.security.key_sets import KEYS_MAX, parse_key_set
from tests.unit.rsa_keys import RSA

SHORT_RSA = rsa.generate_private_key(65537, 1024)
P256 = ec.generate_private_key(ec.SECP256R1())
K256 = ec.generate_private_key(ec.SECP256K1())


def rsa_key(key: Any = RSA, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    made.pop("key_ops")
    return {**made, **more}


def ec_key(key: Any = P256, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**made, **more}


def octets() -> dict[str, Any]:
    return {"kty": "oct", "k": "AAAA" * 16, "alg": "HS256", "kid": "secret"}


def ed_key() -> dict[str, Any]:
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    return dict(jwt.algorithms.OKPAlgorithm.to_jwk(key, as_dict=True), kid="ed")


def document(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_a_key_is_found_by_its_id_for_the_algorithms_of_its_kind() -> None:
    keys = parse_key_set(document(rsa_key(kid="rs", use="sig"), ec_key(kid="es", key_ops=["verify"])))
    assert len(keys) == 2
    for name in ("RS256", "RS384", "RS512", "PS256"):
        found = keys.find("rs", name)
        assert found is not None
        assert found.material == RSA.public_key()
        assert keys.find("es", name) is None
    assert keys.find("es", "ES256") is not None
    for key_id, name in (("es", "ES384"), ("rs", "HS256"), ("rs", "none"), ("other", "RS256"), ("", "RS256")):
        assert keys.find(key_id, name) is None


def test_without_an_id_the_only_key_for_the_algorithm_is_found() -> None:
    keys = parse_key_set(document(rsa_key(kid="rs"), ec_key(kid="es")))
    assert keys.find(None, "RS256") is not None
    two = parse_key_set(document(rsa_key(kid="1"), rsa_key(kid="2")))
    assert two.find(None, "RS256") is None


def test_a_key_for_one_algorithm_is_for_no_other() -> None:
    keys = parse_key_set(document(rsa_key(kid="rs", alg="RS512")))
    assert keys.find("rs", "RS512") is not None
    assert keys.find("rs", "RS256") is None


@pytest.mark.parametrize(
    "other",
    [
        None,
        "x",
        {},
        octets(),
        ed_key(),
        rsa_key(use="enc"),
        rsa_key(key_ops=["encrypt"]),
        rsa_key(key_ops=7),
        rsa_key(alg="HS256"),
        rsa_key(alg=7),
        rsa_key(kid=7),
        rsa_key(SHORT_RSA),
        rsa_key(n=7),
        rsa_key(n="!"),
        rsa_key(n=""),
        {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        ec_key(K256),
        ec_key(alg="ES384"),
    ],
)
def test_a_key_that_cannot_verify_tokens_is_left_out(other: Any) -> None:
    keys = parse_key_set(document(other, rsa_key(kid="rs")))
    assert len(keys) == 1
    with pytest.raises(ConfigError, match="none of its keys"):
        parse_key_set(document(other))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no list of keys"),
        (b"{}", "no list of keys"),
        (b'{"keys": {}}', "no list of keys"),
        (document(), "none of its keys"),
        (document(*[{}] * (KEYS_MAX + 1)), "more than 1000"),
    ],
)
def test_what_is_no_set(data: bytes, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_key_set(data)
