"""Authorization by Kafka's keys, by Pulsar's, and by both at once."""

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.settings import load_settings
from magnetar.base.settings_authorization import AUTHORIZERS, AuthorizationSettings

KAFKA = f"authorizer.class.name={AUTHORIZERS[0]}"
PULSAR = "authorizationEnabled=true"


def of(*assignments: str) -> AuthorizationSettings | None:
    return load_settings(assignments=assignments).authorization


def test_off_by_default_and_other_keys_say_that_they_do_nothing() -> None:
    assert of() is None
    found = load_settings(assignments=["super.users=User:admin"])
    assert found.authorization is None
    assert any("super.users has no effect: authorization is off" in one for one in found.notices)


def test_either_servers_keys_turn_it_on() -> None:
    users = frozenset({"User:admin", "User:CN=ops,OU=x"})
    assert of(KAFKA, "super.users=User:admin;User:CN=ops,OU=x") == AuthorizationSettings(users)
    assert of(f"authorizer.class.name={AUTHORIZERS[1]}", "allow.everyone.if.no.acl.found=true") == (
        AuthorizationSettings(frozenset(), open_without_rules=True)
    )
    assert of(PULSAR, "superUserRoles=admin", "authorizationAllowWildcardsMatching=true") == (
        AuthorizationSettings(frozenset({"User:admin"}), with_wildcards=True)
    )
    both = of(KAFKA, PULSAR, "super.users=User:admin", "superUserRoles=admin")
    assert both == AuthorizationSettings(frozenset({"User:admin"}))


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        ((KAFKA, "authorizationEnabled=false"), "keep one of them"),
        (("authorizer.class.name=", PULSAR), "keep one of them"),
        ((PULSAR, "allow.everyone.if.no.acl.found=true"), "keep one of them"),
        ((KAFKA, "super.users=User:a", "superUserRoles=b"), "name different users"),
        (("authorizer.class.name=org.x.Other",), "org.x.Other"),
        (("authorizationProvider=org.x.Other",), "org.x.Other"),
        ((KAFKA, "super.users=admin"), "User:alice"),
    ],
)
def test_what_contradicts_itself_is_refused(assignments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        of(*assignments)
