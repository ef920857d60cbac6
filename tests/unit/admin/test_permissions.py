"""Permissions over HTTP: granted, shown, revoked, and what they come to."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.security import rules
from magnetar.broker.security.model import (
    ANONYMOUS,
    Caller,
    Operation,
    Principal,
    group_resource,
    subscription_resource,
    topic_resource,
)
from magnetar.broker.settings import BrokerSettings
from magnetar.testing.metadata import MemoryMetadataStore

from .conversation import ANY, Step, play

N: Final = "/namespaces/public/default"
P: Final = f"{N}/permissions"
FULL: Final = "persistent://public/default/"


class Maker:
    """Makes a broker whose rules `ANONYMOUS` writes, and keeps it."""

    def __init__(self, *, with_wildcards: bool = False) -> None:
        self._settings = AuthorizationSettings(frozenset({str(ANONYMOUS)}), with_wildcards=with_wildcards)
        self.broker: Any = None

    def __call__(self) -> Broker:
        no_ledgers: Any = None
        settings = BrokerSettings(authorization=self._settings)
        nodes = Nodes([Node(1)])
        made = self.broker = Broker(settings, no_ledgers, MemoryMetadataStore(), SystemClock(), nodes)
        return made

    def may(self, name: str, operation: Operation, resource: Any) -> bool:
        caller = Caller(Principal("User", name), "10.0.0.1")
        return bool(self.broker.rules.decisions.allows(caller, operation, resource))


def played(steps: list[Step], *, with_wildcards: bool = False) -> Callable[..., bool]:
    maker = Maker(with_wildcards=with_wildcards)
    play(maker, steps)
    return maker.may


def test_a_grant_in_a_namespace_replaces_what_the_role_had() -> None:
    may = played(
        [
            ("GET", P, None, 200, {}),
            ("POST", f"{P}/ann", ["produce", "consume"], 204, None),
            ("POST", f"{P}/bob", ["consume"], 204, None),
            ("GET", P, None, 200, {"ann": ["produce", "consume"], "bob": ["consume"]}),
            ("POST", f"{P}/ann", ["produce", "functions"], 204, None),
            ("GET", P, None, 200, {"ann": ["produce", "functions"], "bob": ["consume"]}),
            ("DELETE", f"{P}/carl", None, 204, None),
        ]
    )
    t, s = topic_resource(FULL + "t"), subscription_resource(FULL + "t", "s")
    assert may("ann", Operation.WRITE, t)
    assert not may("ann", Operation.READ, t)
    assert not may("ann", Operation.READ, s)
    assert may("bob", Operation.READ, s)
    assert may("bob", Operation.READ, subscription_resource("non-" + FULL + "t", "s"))
    assert may("bob", Operation.READ, group_resource("g"))  # groups are at home there
    assert not may("bob", Operation.CREATE, t)
    assert not may("bob", Operation.READ, topic_resource("persistent://public/default2/t"))


def test_a_right_that_is_revoked_is_gone() -> None:
    may = played(
        [
            ("POST", f"{P}/ann", ["consume"], 204, None),
            ("DELETE", f"{P}/ann", None, 204, None),
            ("GET", P, None, 200, {}),
        ]
    )
    assert not may("ann", Operation.READ, topic_resource(FULL + "t"))
    assert not may("ann", Operation.READ, group_resource("g"))


def test_what_can_be_no_grant_is_refused() -> None:
    played(
        [
            ("POST", f"{P}/ann", ["destroy"], 412, ANY),
            ("POST", f"{P}/ann", {"produce": True}, 400, ANY),
            ("POST", f"{P}/ann", [None], 400, ANY),
            (
                "POST",
                f"{P}/*",
                ["produce"],
                412,
                "a role with a star needs authorizationAllowWildcardsMatching=true",
            ),
            ("POST", f"{P}/{'a' * 1025}", ["produce"], 412, ANY),
            ("POST", "/namespaces/public/none/permissions/ann", ["produce"], 404, ANY),
            ("POST", "/persistent/public/default/none/permissions/ann", ["produce"], 404, ANY),
            ("GET", P, None, 200, {}),
        ]
    )


def test_a_star_in_a_role_stands_for_more_where_the_server_says_so() -> None:
    may = played([("POST", f"{P}/app-*", ["produce"], 204, None)], with_wildcards=True)
    assert may("app-1", Operation.WRITE, topic_resource(FULL + "t"))
    assert not may("ap", Operation.WRITE, topic_resource(FULL + "t"))


def test_a_subscription_is_kept_for_roles() -> None:
    may = played(
        [
            ("POST", f"{P}/ann", ["consume"], 204, None),
            ("POST", f"{P}/bob", ["consume"], 204, None),
            ("POST", f"{P}/subscription/s", ["ann", "carl"], 204, None),
            ("GET", f"{P}/subscription", None, 200, {"s": ["ann", "carl"]}),
            ("POST", f"{P}/subscription/s", ["ann"], 204, None),
            ("GET", f"{P}/subscription", None, 200, {"s": ["ann"]}),
            ("POST", f"{P}/subscription/u", ["ann"], 204, None),
            ("DELETE", f"{P}/u/ann", None, 204, None),
        ]
    )
    for resource in (subscription_resource(FULL + "t", "s"), group_resource("s")):
        assert may("ann", Operation.READ, resource)
        assert not may("bob", Operation.READ, resource)
    assert not may("carl", Operation.READ, subscription_resource(FULL + "t", "s"))
    assert may("bob", Operation.READ, subscription_resource(FULL + "t", "u"))


def test_grants_in_one_tenant_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its administrators make as many as they like, and all tenants' rules are in one book."""
    monkeypatch.setattr(rules, "TENANT_RULES_MAX", 3)
    played(
        [
            ("PUT", "/persistent/public/default/t", {}, 204, None),
            ("POST", f"{P}/subscription/s", ["ann", "bob"], 204, None),
            ("POST", f"{P}/ann", ["produce"], 204, None),
            ("POST", f"{P}/subscription/u", ["ann"], 412, ANY),
            ("POST", f"{P}/bob", ["produce"], 412, ANY),
            ("POST", "/persistent/public/default/t/permissions/bob", ["produce"], 412, ANY),
            ("DELETE", f"{P}/ann", None, 204, None),
            ("POST", "/persistent/public/default/t/permissions/bob", ["produce"], 204, None),
        ]
    )
