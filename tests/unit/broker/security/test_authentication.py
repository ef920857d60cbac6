"""Who a client is, by what it shows."""

import pytest

from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.errors import AuthenticationFailed, InvalidRoles
from magnetar.broker.security.model import Credentials, Identity, Principal


def method(credentials: Credentials) -> Identity:
    """Good is what begins with an exclamation mark."""
    if not credentials.data.startswith(b"!"):
        raise AuthenticationFailed("no")
    return Identity(credentials.data[1:].decode())


def shown(role: str, name: str = "token") -> Credentials:
    return Credentials(name, f"!{role}".encode())


def authentication(anonymous_role: str = "") -> Authentication:
    return Authentication({"token": method}, anonymous_role, frozenset(["proxy", "proxy2"]))


def test_role_is_the_principal_that_kafka_has_for_it() -> None:
    login = authentication().log_in(shown("alice"))
    assert str(login.principal) == "User:alice"


@pytest.mark.parametrize("anonymous_role", ["", "nemo"])
@pytest.mark.parametrize(
    "credentials",
    [
        Credentials("token"),
        Credentials("token", b"bad"),
        Credentials("tls", b"!alice", "alice"),
        Credentials("TOKEN", b"!alice"),
        Credentials("", b"!alice"),
        Credentials("none", b"!alice"),
    ],
)
def test_what_is_not_good_is_refused_also_where_there_is_an_anonymous_role(
    credentials: Credentials, anonymous_role: str
) -> None:
    with pytest.raises(AuthenticationFailed):
        authentication(anonymous_role).log_in(credentials)


@pytest.mark.parametrize("name", ["", "none"])
def test_client_that_shows_nothing_has_the_anonymous_role(name: str) -> None:
    assert authentication("nemo").log_in(Credentials(name)).principal == Principal("User", "nemo")
    with pytest.raises(AuthenticationFailed):
        authentication().log_in(Credentials(name))


def test_proxy_speaks_for_its_client() -> None:
    login = authentication().log_in(shown("proxy"), "alice")
    assert (login.principal.name, login.identity.role) == ("alice", "proxy")
    renewed = authentication().renew(login, shown("proxy"))
    assert renewed.principal.name == "alice"


@pytest.mark.parametrize(
    ("role", "original"),
    [("alice", "bob"), ("alice", "alice"), ("proxy", ""), ("proxy", " "), ("proxy", "proxy2")],
)
def test_roles_that_do_not_fit_are_refused(role: str, original: str) -> None:
    with pytest.raises(InvalidRoles):
        authentication().log_in(shown(role), original)


def test_login_is_renewed_by_the_same_role_and_method_only() -> None:
    known = authentication("nemo")
    login = known.log_in(shown("alice"))
    assert known.renew(login, shown("alice")).principal.name == "alice"
    for other in (shown("bob"), Credentials("token", b"bad"), Credentials(), shown("alice", "tls")):
        with pytest.raises(AuthenticationFailed):
            known.renew(login, other)
