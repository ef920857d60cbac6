"""Tokens of identity providers at Pulsar's door: whose are good, and as which role."""

from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from magnetar.base.settings_oauth import KeySetSettings
from magnetar.base.settings_openid import OpenIdSettings
from magnetar.broker.security.authentication import first_of
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.key_sets import KeySet, NamedKey
from magnetar.broker.security.model import Credentials, Identity
from magnetar.broker.security.openid import OpenIdTokens
from magnetar.broker.security.tokens import InvalidToken, TokenKey
from magnetar.testing.clock import FakeClock
from tests.unit.rsa_keys import OTHER_RSA as OTHER
from tests.unit.rsa_keys import RSA

NOW_S = 1_700_000_000
ISSUER, OTHER_ISSUER, AUDIENCE = "https://one.test", "https://other.test/", "magnetar-test"
P256 = ec.generate_private_key(ec.SECP256R1())
KEYS = {
    ISSUER: KeySet(
        [
            NamedKey("rs", TokenKey(RSA.public_key(), ("RS256", "RS384"))),
            NamedKey("es", TokenKey(P256.public_key(), ("ES256",))),
        ]
    ),
    OTHER_ISSUER: KeySet([NamedKey("rs", TokenKey(OTHER.public_key(), ("RS256",)))]),
}
SOURCE = KeySetSettings("openIDAllowedTokenIssuers", "https://one.test/x", 1.0, 1.0, 1.0)


def token(key: Any = RSA, algorithm: str = "RS256", kid: str = "rs", **changed: Any) -> str:
    usual = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S - 10, "exp": NOW_S + 600}
    claims = {name: value for name, value in (usual | changed).items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid})


def identify(shown: str | bytes, claim: str = "sub", leeway_s: int = 0) -> Identity:
    settings = OpenIdSettings(
        ((ISSUER, SOURCE), (OTHER_ISSUER, SOURCE)), (AUDIENCE, "x"), claim, leeway_s * 1000
    )
    data = shown.encode() if isinstance(shown, str) else shown
    return OpenIdTokens(settings, KEYS, FakeClock(NOW_S * 1000)).identify(Credentials("token", data))


@pytest.mark.parametrize(
    "shown",
    [
        token(),
        token(algorithm="RS384"),
        token(P256, "ES256", "es"),
        token(aud=["y", AUDIENCE]),
        token(OTHER, iss=OTHER_ISSUER),
        token(nbf=NOW_S),
    ],
)
def test_a_token_of_a_known_issuer_is_its_subjects(shown: str) -> None:
    found = identify(shown)
    assert (found.role, found.expires_at_ms) == ("alice", (NOW_S + 600) * 1000)


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (token(OTHER), "another key has signed it"),
        (token(OTHER, iss="https://elsewhere.test"), "of no issuer that is taken"),
        (token(iss=OTHER_ISSUER), "another key has signed it"),
        (token(iss=OTHER_ISSUER.rstrip("/")), "of no issuer that is taken"),
        (token(iss=None), "does not say who has issued it"),
        (token(kid="none"), "has no key of the id"),
        (token(kid="es"), "has no key of the id"),
        (token("secret " * 9, "HS256"), "has no key of the id"),
        (token(exp=NOW_S), "has expired"),
        (token(exp=None), "has no end"),
        (token(nbf=NOW_S + 1), "its time has not come"),
        (token(iat=None), "does not say when it was issued"),
        (token(iat=NOW_S + 1), "has not been issued yet"),
        (token(iat=[NOW_S]), "its iat is no time"),
        (token(aud="y"), "for another audience"),
        (token(aud=None), "for another audience"),
        (token(sub=None), "no name in 'sub'"),
        ("nonsense", "it is no token"),
        (b"\xff", "it is no token"),
    ],
)
def test_any_other_is_refused(shown: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        identify(shown)


def test_the_role_may_be_in_another_claim_and_is_the_first_of_several() -> None:
    assert identify(token(roles=["bob", "carol"]), claim="roles").role == "bob"
    with pytest.raises(InvalidToken, match="no name in 'roles'"):
        identify(token(), claim="roles")


def test_clocks_may_be_apart_as_far_as_the_settings_say() -> None:
    assert identify(token(exp=NOW_S - 4), leeway_s=5).expires_at_ms == (NOW_S + 1) * 1000
    assert identify(token(iat=NOW_S + 5), leeway_s=5).role == "alice"
    with pytest.raises(InvalidToken, match="expired"):
        identify(token(exp=NOW_S - 5), leeway_s=5)


def test_of_two_methods_for_the_same_thing_the_first_that_lets_in_does() -> None:
    def only(role: bytes) -> Any:
        def method(credentials: Credentials) -> Identity:
            if credentials.data != role:
                raise AuthenticationFailed(f"not {role.decode()}")
            return Identity(role.decode())

        return method

    both = first_of([only(b"a"), only(b"b")])
    assert [both(Credentials("token", one)).role for one in (b"a", b"b")] == ["a", "b"]
    with pytest.raises(AuthenticationFailed, match="not b"):
        both(Credentials("token", b"c"))
