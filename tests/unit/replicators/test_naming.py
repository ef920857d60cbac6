"""The names that the server makes for a replicator."""

from magnetar.broker.jobs.declarations import NAME_CHARS_MAX
from magnetar.replicators.naming import (
    is_word,
    named,
    pipeline_name,
    replicator_of,
    subscription_name,
    subscription_of,
)

_LONG = "persistent://" + "t" * 128 + "/" + "n" * 128 + "/" + "a" * 249


def test_replicators_of_the_same_local_name_have_pipelines_of_their_own() -> None:
    names = {
        pipeline_name(kind, region, topic)
        for kind in ("Kafka", "Kinesis")
        for region in ("us-east", "us-west1")
        for topic in ("persistent://public/default/orders", "persistent://acme/default/orders", _LONG)
    }
    assert len(names) == 12


def test_a_long_name_still_is_one_of_a_pipeline() -> None:
    assert len(pipeline_name("T" * 24, "r" * 24, _LONG)) <= NAME_CHARS_MAX


def test_a_name_has_no_two_dots_in_a_row() -> None:
    assert ".." not in pipeline_name("Kafka", "us-west1", "persistent://public/default/a...b")


def test_a_subscription_is_named_by_type_and_region() -> None:
    assert subscription_name("Kafka", "us-west1") == "pulsar.repl.Kafka.us-west1"


def test_a_pipelines_name_and_its_subscription_say_what_it_replicates_to() -> None:
    name = pipeline_name("Kafka", "us-west1", "persistent://public/default/a.b.c")
    assert named(name) == replicator_of("pulsar.repl.Kafka.us-west1") == ("Kafka", "us-west1")
    assert subscription_of(name) == "pulsar.repl.Kafka.us-west1"


def test_other_names_are_no_replicators() -> None:
    for name in ("replicator", "replicator.a", "replicator.a.b", "my.replicator.a.b.c", "pipeline"):
        assert named(name) is None
        assert subscription_of(name) is None
    for name in ("pulsar.repl.cluster", "pulsar.repl.", "s", "my.pulsar.repl.a.b"):
        assert replicator_of(name) is None


def test_a_type_or_a_region_has_no_dot() -> None:
    assert is_word("us-west_1")
    for text in ("", "a.b", "a b", "a/b", "x" * 25, "ä"):
        assert not is_word(text)
