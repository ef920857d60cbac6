"""PLAIN, as real Kafka answers it."""

import hmac

import pytest

from magnetar.broker.security.errors import AuthenticationFailed, InvalidRoles, LoginRefused
from magnetar.broker.security.model import Authenticated, Identity, Login, Principal
from magnetar.broker.security.plain import PlainUsers

USERS = {"alice": "alice-secret", "bÖb": "pä§"}


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0alice\0alice-secret", "alice"),
        (b"alice\0alice\0alice-secret", "alice"),
        ("\0bÖb\0pä§".encode(), "bÖb"),
    ],
)
def test_the_right_password(message: bytes, user: str) -> None:
    assert PlainUsers(USERS).begin().respond(message) == Authenticated(Principal("User", user))


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0alice-secre", "Authentication failed: Invalid username or password"),
        (b"\0Alice\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
        (b"\0\xff\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"bob\0alice\0wrong", "Authentication failed: Invalid username or password"),
    ],
)
def test_what_is_refused(message: bytes, sentence: str) -> None:
    with pytest.raises(LoginRefused) as said:
        PlainUsers(USERS).begin().respond(message)
    assert str(said.value) == sentence


def test_an_unknown_user_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    users = PlainUsers(USERS)
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for message in (b"\0alice\0x", b"\0mallory\0" + b"x" * 1000, b"\0alice\0alice-secret-and-more"):
        with pytest.raises(LoginRefused):
            users.respond(message)
    assert compared == [(32, 32)] * 3


def test_no_password_is_kept_as_it_is() -> None:
    assert "alice-secret" not in repr(vars(PlainUsers(USERS)))


def by_token(token: bytes) -> Login:
    if token == b"proxy":
        raise InvalidRoles("a proxy speaks for a client that is none")
    if token != b"bobs":
        raise AuthenticationFailed("it has expired")
    return Login(Principal("User", "bob"), Identity("bob", 5_000, 7.0), "token")


@pytest.mark.parametrize("user", [b"public/default", b"bob", b"alice", b"mallory"])
def test_a_token_says_who_the_client_is_whatever_its_user(user: bytes) -> None:
    users = PlainUsers({"alice": "alice-secret"}, by_token)
    assert users.respond(b"\0" + user + b"\0token:bobs") == Authenticated(
        Principal("User", "bob"), ends_s=7.0
    )


def test_passwords_hold_beside_tokens_also_those_that_look_like_one() -> None:
    users = PlainUsers({"alice": "alice-secret", "carol": "token:carols"}, by_token)
    assert users.respond(b"\0alice\0alice-secret").principal.name == "alice"
    assert users.respond(b"\0carol\0token:carols").principal.name == "carol"


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        (b"token:old", "its token is refused: it has expired"),
        (b"token:proxy", "its token is refused: a proxy speaks for a client that is none"),
        (b"token:", "its token is refused: it has expired"),
        (b"bobs", "Authentication failed: Invalid username or password"),
        (b"Token:bobs", "Authentication failed: Invalid username or password"),
    ],
)
def test_a_client_does_not_learn_why_its_token_is_refused(password: bytes, reason: str) -> None:
    with pytest.raises(LoginRefused) as said:
        PlainUsers({"alice": "alice-secret"}, by_token).respond(b"\0public/default\0" + password)
    assert str(said.value) == "Authentication failed: Invalid username or password"
    assert said.value.reason == reason


def test_a_token_is_a_wrong_password_where_none_is_taken() -> None:
    with pytest.raises(LoginRefused) as said:
        PlainUsers(USERS).respond(b"\0alice\0token:bobs")
    assert said.value.reason == "Authentication failed: Invalid username or password"


def test_no_client_acts_for_another_by_a_token() -> None:
    with pytest.raises(LoginRefused, match="authorization id"):
        PlainUsers({}, by_token).respond(b"admin\0public/default\0token:bobs")
