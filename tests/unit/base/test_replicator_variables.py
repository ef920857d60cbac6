"""Which variables of the environment a namespace's replicators may use."""

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.replicator_variables import ReplicatorVariables


@pytest.mark.parametrize(
    ("rule", "namespace", "variable", "allowed"),
    [
        ("acme/orders:KEY", "acme/orders", "KEY", True),
        ("acme/orders:KEY", "acme/orders", "KEYS", False),
        ("acme/orders:KEY", "acme/other", "KEY", False),
        ("acme/orders:KEY", "other/orders", "KEY", False),
        ("acme/*:KEY", "acme/other", "KEY", True),
        ("acme/*:KEY", "acme2/other", "KEY", False),
        ("*/*:KEY", "a/b", "KEY", True),
        ("acme/*:ACME_*", "acme/b", "ACME_KEY", True),
        ("acme/*:ACME_*", "acme/b", "HOME", False),
    ],
)
def test_a_rule_allows_what_it_says_and_nothing_else(
    rule: str, namespace: str, variable: str, allowed: bool
) -> None:
    assert ReplicatorVariables.of([rule]).allow(namespace, variable) is allowed


def test_without_a_rule_nothing_is_allowed() -> None:
    assert not ReplicatorVariables().allow("public/default", "HOME")


@pytest.mark.parametrize(
    "text", ["KEY", "acme:KEY", "acme/orders", "acme/orders:", "a/b:K*Y", "a/b/c:KEY", "a/b:1"]
)
def test_what_is_no_rule_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be tenant/namespace:VARIABLE"):
        ReplicatorVariables.of([text])
