"""PLAIN, as real Kafka answers it."""

import hmac

import pytest

from magnetar.broker.security.errors import LoginRefused
from magnetar.broker.security.model import Authenticated, Principal
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
