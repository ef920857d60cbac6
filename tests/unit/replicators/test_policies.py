"""Which topics a mapping means, and where they go."""

import pytest

from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.policies import ReplicatorPolicies


def _target(mapping: dict[str, str], local_name: str) -> str | None:
    return ReplicatorPolicies("us-east", topic_names=mapping).target_of(local_name)


def test_a_topics_own_key_wins_over_expressions_in_front_of_it() -> None:
    mapping = {"orders.*": "all", "orders-eu": "eu"}
    assert _target(mapping, "orders-eu") == "eu"
    assert _target(mapping, "orders-us") == "all"


def test_of_several_expressions_the_first_one_decides() -> None:
    mapping = {"orders-(eu|us)": "first", "orders-.+": "second"}
    assert _target(mapping, "orders-us") == "first"
    assert _target(mapping, "orders-asia") == "second"


def test_an_expression_has_to_match_the_whole_name() -> None:
    assert _target({"orders-(eu|us)": "stream"}, "my-orders-eu-2") is None


def test_a_dot_in_a_topics_name_stands_for_itself() -> None:
    assert _target({"a.b": "stream"}, "axb") is None


def test_the_place_of_the_name_is_filled_for_expressions_only() -> None:
    assert _target({"o.*": "copy-{topic}"}, "orders") == "copy-orders"
    assert _target({"orders": "copy-{topic}"}, "orders") == "copy-{topic}"


def test_what_is_no_expression_is_refused_with_one_sentence() -> None:
    with pytest.raises(ReplicatorConfigError, match="neither a topic's name nor a regular expression"):
        _target({"a(b": "stream"}, "orders")


def test_credentials_are_not_shown() -> None:
    assert "hunter2" not in repr(ReplicatorPolicies("us-east", credentials={"secretKey": "hunter2"}))


def test_an_expression_means_no_dead_letters_and_nothing_of_the_server() -> None:
    for name in ("orders-pulsar.repl.Kafka.us-east-DLQ", "__spark_sink"):
        assert _target({".*": "all"}, name) is None
        assert _target({name: "all"}, name) == "all"
