"""OAUTHBEARER, as real Kafka answers it: which messages, which tokens, and as whom."""

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from magnetar.base.names import PRINCIPAL_BYTES_MAX
from magnetar.base.settings_oauth import KeySetSettings, OAuthSettings
from magnetar.broker.security.errors import AuthenticationFailed, LoginRefused
from magnetar.broker.security.key_sets import KeySet, NamedKey
from magnetar.broker.security.model import Authenticated, Principal, Refused
from magnetar.broker.security.oauth import MESSAGE_BYTES_MAX, REFUSAL, BearerTokens
from magnetar.broker.security.tokens import TokenKey
from magnetar.testing.clock import FakeClock
from tests.unit.rsa_keys import OTHER_RSA as OTHER
from tests.unit.rsa_keys import RSA

NOW_S = 1_700_000_000
P256 = ec.generate_private_key(ec.SECP256R1())
KEYS = KeySet(
    [
        NamedKey("rs", TokenKey(RSA.public_key(), ("RS256", "RS384", "RS512"))),
        NamedKey("es", TokenKey(P256.public_key(), ("ES256",))),
    ]
)
SOURCE = KeySetSettings("x", "https://idp.test/keys", 1.0, 1.0, 1.0)
ISSUER, AUDIENCE = "https://issuer.test", "magnetar-test"
SETTINGS = OAuthSettings("IN", SOURCE, (AUDIENCE, "other"), ISSUER, "sub", 0)
ALICE = Authenticated(Principal("User", "alice"), ends_s=600.0)


def claims(**changed: Any) -> dict[str, Any]:
    usual = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S - 10, "exp": NOW_S + 600}
    return {name: value for name, value in (usual | changed).items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: Any = "rs", **changed: Any) -> str:
    return jwt.encode(claims(**changed), key, algorithm, headers=None if kid is None else {"kid": kid})


def b64(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(algorithm: str = "none", signature: str = "", **changed: Any) -> str:
    return f"{b64({'alg': algorithm})}.{b64(claims(**changed))}.{signature}"


def message(shown: str, header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {shown}\x01{more}\x01".encode()


def respond(
    said: bytes, settings: OAuthSettings = SETTINGS, clock: FakeClock | None = None
) -> Authenticated | Refused:
    keys = None if settings.keys is None else KEYS
    return BearerTokens(settings, keys, clock or FakeClock(NOW_S * 1000)).begin().respond(said)


@pytest.mark.parametrize(
    "said",
    [
        message(token()),
        message(token(kid=None)),
        message(token(P256, "ES256", "es")),
        message(token(algorithm="RS512")),
        message(token(aud=["x", AUDIENCE])),
        message(token(aud="other")),
        message(token(), "y,,"),
        message(token(), "n,a=alice,"),
        message(token(), more="logicalCluster=lkc-1\x01unknown=a b\x01"),
        b"n,,\x01host=x\x01auth=bEARER  " + token().encode() + b"\x01\x01",
    ],
)
def test_a_good_token(said: bytes) -> None:
    assert respond(said) == ALICE


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ("nonsense", "it is no token"),
        ("a.b.c", "it is no token"),
        (unsigned(), "there is no key"),
        (unsigned("None"), "there is no key"),
        (token(kid="unknown"), "there is no key"),
        (token(kid="es"), "there is no key"),
        (token(OTHER), "another key has signed it"),
        (token()[:-6] + "AAAAAA", "another key has signed it"),
        (token(exp=NOW_S), "it has expired"),
        (token(exp=None), "it has no end"),
        (token(exp="soon"), "its exp is no time"),
        (token(iat=None), "it does not say when it was issued"),
        (token(nbf=NOW_S + 1), "its time has not come yet"),
        (token(iss="https://other.test"), "it is of another issuer"),
        (token(iss=None), "it is of another issuer"),
        (token(aud="elsewhere"), "it is for another audience"),
        (token(aud=[]), "it is for another audience"),
        (token(aud=None), "it is for another audience"),
        (token(sub=None), "it has no name in 'sub'"),
        (token(sub=" "), "it has no name in 'sub'"),
        (token(sub="a\ud800"), "the name in it is no text"),
        (token(sub="a" * (PRINCIPAL_BYTES_MAX + 1)), "the name in it is longer than"),
        ("x" * 70_000, "it is longer than 65536 bytes"),
    ],
)
def test_a_token_that_is_not_good_is_refused_in_two_steps(shown: str, reason: str) -> None:
    refused = respond(message(shown))
    assert isinstance(refused, Refused)
    assert refused.data == REFUSAL
    assert refused.reason.startswith(f"its token is refused: {reason}")


def test_the_public_key_is_no_secret() -> None:
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, body = b64({"alg": "HS256", "kid": "rs"}), b64(claims())
    signature = hmac.new(public, f"{header}.{body}".encode(), hashlib.sha256).digest()
    shown = f"{header}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert isinstance(respond(message(shown)), Refused)


def test_clocks_may_be_apart() -> None:
    settings = OAuthSettings("IN", SOURCE, (), "", "sub", 30_000)
    assert respond(message(token(aud=None, nbf=NOW_S + 29)), settings) == ALICE
    # Its end is its own, or that of what is borne with.
    for end_s, ends_s in ((1, 1.0), (-29, 1.0), (-1, 29.0)):
        good = message(token(aud=None, exp=NOW_S + end_s))
        assert respond(good, settings) == Authenticated(ALICE.principal, ends_s=ends_s)
    for bad in (token(aud=None, exp=NOW_S - 30), token(aud=None, nbf=NOW_S + 31)):
        assert isinstance(respond(message(bad), settings), Refused)


def test_a_token_for_others_is_not_good_where_no_audience_is_expected() -> None:
    settings = OAuthSettings("IN", SOURCE, (), "", "sub", 0)
    assert respond(message(token(aud=None, iss="any")), settings) == ALICE
    assert isinstance(respond(message(token()), settings), Refused)


def test_the_user_may_be_in_another_claim() -> None:
    settings = OAuthSettings("IN", SOURCE, (AUDIENCE,), ISSUER, "client_id", 0)
    assert respond(message(token(client_id="carol")), settings) == Authenticated(
        Principal("User", "carol"), ends_s=600.0
    )
    assert isinstance(respond(message(token()), settings), Refused)


def test_unsigned_tokens_where_they_are_asked_for() -> None:
    settings = OAuthSettings("IN", None, (), "", "sub", 0)
    assert respond(message(unsigned(iat=None, iss=None)), settings) == ALICE
    for shown in (
        unsigned(exp=NOW_S),
        unsigned(exp=None),
        unsigned(sub=None),
        unsigned("none", "AAAA"),
        token(),
    ):
        assert isinstance(respond(message(shown), settings), Refused)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"n,a=\xff,\x01auth=Bearer x\x01\x01",
        b"n,a=a=b,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01more",
        message(token(), more="a=b\x01" * MESSAGE_BYTES_MAX),
    ],
)
def test_what_is_no_message_of_the_mechanism(said: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        respond(said)


def test_no_client_acts_for_another() -> None:
    with pytest.raises(LoginRefused, match="different from the token's principal name"):
        respond(message(token(), "n,a=bob,"))
    assert respond(message(token(sub="a,b=c"), "n,a=a=2Cb=3Dc,")) == Authenticated(
        Principal("User", "a,b=c"), ends_s=600.0
    )
