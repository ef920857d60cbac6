"""Which tokens are good: signatures, algorithms, claims, time."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import ConfigError
from magnetar.broker.security.model import Identity
from magnetar.broker.security.tokens import (
    InvalidToken,
    TokenKey,
    TokenValidator,
    public_key,
    secret_key,
)
from magnetar.testing.clock import FakeClock
from tests.unit.rsa_keys import OTHER_RSA, RSA

SECRET = bytes(range(1, 65))
P256 = ec.generate_private_key(ec.SECP256R1())
NOW_S = 1_700_000_000


def spki(key: Any, encoding: Encoding = Encoding.DER) -> bytes:
    data: bytes = key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    return data


def validator(
    key: TokenKey | None = None, clock: FakeClock | None = None, *claims: str
) -> Callable[[str], Identity]:
    return TokenValidator(key or secret_key(SECRET), clock or FakeClock(NOW_S * 1000), *claims).validate


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(header: dict[str, Any], claims: Any, secret: bytes | None = None) -> str:
    """A token put together by hand, as no library would."""
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}"
    signature = b"" if secret is None else hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{b64(signature)}"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_secret_verifies_each_of_its_algorithms(algorithm: str) -> None:
    assert validator()(jwt.encode({"sub": "alice"}, SECRET, algorithm)) == Identity("alice")


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512"])
@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
def test_rsa_key_verifies_its_family(algorithm: str, encoding: Encoding) -> None:
    key = public_key(spki(RSA, encoding), "RS256")
    assert validator(key)(jwt.encode({"sub": "alice"}, RSA, algorithm)).role == "alice"


def test_es256_key_verifies_es256() -> None:
    key = public_key(spki(P256), "ES256")
    assert validator(key)(jwt.encode({"sub": "alice"}, P256, "ES256")).role == "alice"


@pytest.mark.parametrize(
    "name", ["none", "None", "NONE", "", "HS1", "hs256", None, 7, ["HS256"], {"HS256": 1}]
)
@pytest.mark.parametrize("secret", [None, SECRET])
def test_token_without_an_algorithm_of_the_key_is_refused(name: Any, secret: bytes | None) -> None:
    with pytest.raises(InvalidToken):
        validator()(forged({"alg": name, "typ": "JWT"}, {"sub": "alice"}, secret))


@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
def test_token_that_is_signed_with_the_public_key_as_a_secret_is_refused(encoding: Encoding) -> None:
    public = spki(RSA, encoding)
    with pytest.raises(InvalidToken):
        validator(public_key(public, "RS256"))(forged({"alg": "HS256"}, {"sub": "alice"}, public))


def test_tokens_of_another_family_are_refused() -> None:
    with pytest.raises(InvalidToken):
        validator(public_key(spki(RSA), "RS256"))(jwt.encode({"sub": "alice"}, RSA, "PS256"))
    with pytest.raises(InvalidToken):
        validator(public_key(spki(RSA), "RS256"))(jwt.encode({"sub": "alice"}, P256, "ES256"))


def test_header_chooses_no_key() -> None:
    mine = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(OTHER_RSA.public_key()))
    headers = {
        "jwk": mine,
        "jku": "http://127.0.0.1:1/jwks",
        "kid": "../../dev/null",
        "x5u": "http://127.0.0.1:1",
    }
    with pytest.raises(InvalidToken):
        validator(public_key(spki(RSA), "RS256"))(
            jwt.encode({"sub": "alice"}, OTHER_RSA, "RS256", headers=headers)
        )


def test_header_that_demands_what_is_not_understood_is_refused() -> None:
    with pytest.raises(InvalidToken):
        validator()(forged({"alg": "HS256", "crit": ["b65"], "b65": 1}, {"sub": "alice"}, SECRET))


def test_wrong_key_and_any_change_are_refused() -> None:
    token = jwt.encode({"sub": "alice"}, SECRET, "HS256")
    with pytest.raises(InvalidToken):
        validator(secret_key(SECRET[::-1]))(token)
    header, claims, signature = token.split(".")
    for changed in (
        f"{header}.{b64(json.dumps({'sub': 'admin'}).encode())}.{signature}",
        f"{header}.{claims}.",
        f"{header}.{claims}",
        f"{header}.{claims}.{signature}.",
        f"{header}.{claims}.{signature[:-4]}AAAA",
        f" {token}",
        f"{token}\n",
        "",
        "..",
        "alice",
        f"{header}.{claims}.{signature}é",
        f"{header}.{claims}.\ud800",
    ):
        with pytest.raises(InvalidToken):
            validator()(changed)


@given(st.text(max_size=200))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        validator()(text)


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5)
)
def test_any_claims_are_taken_or_refused(value: Any) -> None:
    for claims in (value, {"sub": value}, {"sub": "a", "exp": value}, {"sub": "a", "nbf": value}):
        try:
            assert validator()(forged({"alg": "HS256"}, claims, SECRET)).role
        except InvalidToken:
            continue


def test_depth_is_refused() -> None:
    signed = f"{b64(json.dumps({'alg': 'HS256'}).encode())}.{b64(b'[' * 20_000)}"
    signature = hmac.new(SECRET, signed.encode(), hashlib.sha256).digest()
    with pytest.raises(InvalidToken):
        validator()(f"{signed}.{b64(signature)}")


def test_length_is_bounded() -> None:
    with pytest.raises(InvalidToken, match="longer"):
        validator()(jwt.encode({"sub": "a" * 64 * 1024}, SECRET, "HS256"))


@pytest.mark.parametrize(
    "claims", [{}, {"sub": ""}, {"sub": " "}, {"sub": None}, {"sub": 7}, {"sub": []}, {"sub": [7]}]
)
def test_token_without_a_role_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken, match="no name"):
        validator()(forged({"alg": "HS256"}, claims, SECRET))


def test_role_stands_in_the_claim_that_is_configured() -> None:
    token = jwt.encode({"sub": "alice", "role": ["bob", "carol"]}, SECRET, "HS256")
    assert validator(None, None, "role")(token).role == "bob"
    with pytest.raises(InvalidToken, match="no name in 'group'"):
        validator(None, None, "group")(token)


@pytest.mark.parametrize(
    ("audience", "is_good"), [("here", True), (["there", "here"], True), ("there", False)]
)
def test_audience_is_held(audience: Any, is_good: bool) -> None:
    validate = validator(None, None, "sub", "aud", "here")
    token = forged({"alg": "HS256"}, {"sub": "alice", "aud": audience}, SECRET)
    if is_good:
        assert validate(token).role == "alice"
    else:
        with pytest.raises(InvalidToken, match="audience"):
            validate(token)


@pytest.mark.parametrize("audience", [None, [], {"here": 1}, "", ["", None], 1])
def test_missing_audience_is_refused(audience: Any) -> None:
    validate = validator(None, None, "sub", "aud", "here")
    with pytest.raises(InvalidToken, match="audience"):
        validate(forged({"alg": "HS256"}, {"sub": "alice", "aud": audience}, SECRET))


def test_audience_does_not_matter_when_none_is_configured() -> None:
    assert validator()(jwt.encode({"sub": "alice", "aud": "there"}, SECRET, "HS256")).role == "alice"


# --- time ------------------------------------------------------------------------------------------------------------


def test_token_ends_at_its_time() -> None:
    clock = FakeClock(NOW_S * 1000)
    text = jwt.encode({"sub": "alice", "exp": NOW_S + 10}, SECRET, "HS256")
    token = validator(None, clock)(text)
    assert (token.expires_at_ms, token.ends_s) == ((NOW_S + 10) * 1000, 10.0)
    clock.advance(9.999)
    assert not token.has_expired(clock)
    assert validator(None, clock)(text).role == "alice"
    clock.advance(0.001)
    assert token.has_expired(clock)
    with pytest.raises(InvalidToken, match="expired"):
        validator(None, clock)(text)


def test_wall_clock_that_is_set_back_lengthens_no_life() -> None:
    clock = FakeClock(NOW_S * 1000)
    token = validator(None, clock)(jwt.encode({"sub": "alice", "exp": NOW_S + 10}, SECRET, "HS256"))
    clock.step(-3600)
    clock.advance(10)
    assert token.has_expired(clock)


def test_wall_clock_that_is_set_forward_ends_a_life() -> None:
    clock = FakeClock(NOW_S * 1000)
    token = validator(None, clock)(jwt.encode({"sub": "alice", "exp": NOW_S + 10}, SECRET, "HS256"))
    clock.step(3600)
    assert token.has_expired(clock)


def test_token_without_an_end_does_not_end() -> None:
    clock = FakeClock(NOW_S * 1000)
    token = validator(None, clock)(jwt.encode({"sub": "alice"}, SECRET, "HS256"))
    clock.advance(1e9)
    assert not token.has_expired(clock)


def test_token_begins_at_its_time() -> None:
    clock = FakeClock(NOW_S * 1000)
    text = jwt.encode({"sub": "alice", "nbf": NOW_S + 10, "iat": NOW_S + 99}, SECRET, "HS256")
    with pytest.raises(InvalidToken, match="not come"):
        validator(None, clock)(text)
    clock.advance(10)
    assert validator(None, clock)(text).role == "alice"


@pytest.mark.parametrize(
    "exp", ["1800000000", True, [], {}, float("inf"), float("nan"), 10**30, 1e300, -(10**30)]
)
def test_end_that_is_no_time_is_refused(exp: Any) -> None:
    with pytest.raises(InvalidToken, match="exp is no time"):
        validator()(forged({"alg": "HS256"}, {"sub": "alice", "exp": exp}, SECRET))


# --- keys ------------------------------------------------------------------------------------------------------------


def test_secret_has_as_many_bits_as_the_digest() -> None:
    assert secret_key(SECRET[:32]).algorithms == ("HS256",)
    assert secret_key(SECRET[:48]).algorithms == ("HS256", "HS384")
    with pytest.raises(ConfigError, match="256 bits at least, and this one has 248"):
        secret_key(SECRET[:31])
    with pytest.raises(InvalidToken):
        validator(secret_key(SECRET[:32]))(jwt.encode({"sub": "a"}, SECRET[:32] * 2, "HS512"))


@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
def test_public_key_is_no_secret(encoding: Encoding) -> None:
    with pytest.raises(ConfigError, match="no secret"):
        secret_key(spki(RSA, encoding))


def test_public_keys_fit_their_algorithm() -> None:
    private = RSA.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    weak = rsa.generate_private_key(65537, 1024)
    edwards = ed25519.Ed25519PrivateKey.generate()
    for data, algorithm, reason in (
        (spki(RSA), "ES256", "secp256r1"),
        (spki(P256), "RS256", "needs a public key of RSA"),
        (spki(P256), "ES384", "secp384r1"),
        (spki(weak), "RS256", "2048 bits at least, and this one has 1024"),
        (spki(edwards), "RS256", "needs a public key of RSA"),
        (private, "RS256", "no public key"),
        (b"nonsense", "RS256", "no public key"),
        (b"-----BEGIN nonsense", "RS256", "no public key"),
        (spki(RSA), "none", "is one of RS256"),
        (spki(RSA), "HS256", "is one of RS256"),
    ):
        with pytest.raises(ConfigError, match=reason):
            public_key(data, algorithm)


def test_nothing_shows_a_key_or_a_token() -> None:
    key = secret_key(b"a very secret key of more than 32 bytes")
    assert "secret key" not in repr(key)
    token = jwt.encode({"sub": "alice", "mark": "XYZ"}, b"another secret of more than 32 bytes", "HS256")
    with pytest.raises(InvalidToken) as caught:
        validator(key)(token)
    assert caught.value.__cause__ is None
    assert token.split(".")[1] not in repr(caught.value)
