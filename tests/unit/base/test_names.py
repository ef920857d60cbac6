import pytest

from magnetar.base.names import (
    LOCAL_NAME_CHARS_MAX,
    NAMED_ENTITY_CHARS_MAX,
    InvalidTopicName,
    TopicName,
    parse_partition,
)


@pytest.mark.parametrize(
    ("name", "full", "kafka"),
    [
        ("t", "persistent://public/default/t", "t"),
        ("A.b_c-9", "persistent://public/default/A.b_c-9", "A.b_c-9"),
        ("__consumer_offsets", "persistent://public/default/__consumer_offsets", "__consumer_offsets"),
        ("public/default/t", "persistent://public/default/t", "t"),
        ("persistent://public/default/t", "persistent://public/default/t", "t"),
        ("ten/ns/t", "persistent://ten/ns/t", "persistent://ten/ns/t"),
        ("persistent://ten/ns/t", "persistent://ten/ns/t", "persistent://ten/ns/t"),
        (
            "non-persistent://public/default/t",
            "non-persistent://public/default/t",
            "non-persistent://public/default/t",
        ),
        ("a=b:c.d-e_f/ns/t", "persistent://a=b:c.d-e_f/ns/t", "persistent://a=b:c.d-e_f/ns/t"),
        ("-partition-1", None, None),
        ("x-partition-", "persistent://public/default/x-partition-", "x-partition-"),
        ("x-partition-01", "persistent://public/default/x-partition-01", "x-partition-01"),
        ("x-partition-1-y", "persistent://public/default/x-partition-1-y", "x-partition-1-y"),
    ],
)
def test_names_are_read_and_shown(name: str, full: str | None, kafka: str | None) -> None:
    if full is None:
        with pytest.raises(InvalidTopicName):
            TopicName.parse(name)
        return
    topic = TopicName.parse(name)
    assert topic.full == str(topic) == full
    assert topic.kafka_name() == kafka
    assert TopicName.parse(topic.full) == topic
    assert TopicName.parse(topic.kafka_name()) == topic


def test_the_default_tenant_and_namespace_are_the_callers() -> None:
    topic = TopicName.parse("t", "ten", "ns")
    assert topic.full == "persistent://ten/ns/t"
    assert topic.kafka_name("ten", "ns") == "t"
    assert topic.kafka_name() == "persistent://ten/ns/t"
    assert TopicName.parse("t") != topic
    assert topic.namespace_name == "ten/ns"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a b",
        "a\n",
        "é",
        "\uff11",
        "a\0",
        "a:b",
        "a/b",
        "/a",
        "a/",
        "a/b/",
        "/b/c",
        "a//c",
        "a/b/..",
        "../b/c",
        "a/./c",
        "a/b/c/d",
        "a b/ns/t",
        "persistent://t",
        "persistent://a/b",
        "persistent://a/b/c/d",
        "persistent:///b/c",
        "://a/b/c",
        "kafka://a/b/c",
        "persistent://persistent://a/b/c",
        "x-partition-0",
        "x-partition-4294967295",
        "ten/ns/x-partition-12",
        "persistent://ten/ns/x-partition-0",
        "x-partition-0-partition-1",
    ],
)
def test_names_that_no_topic_can_have_are_refused_with_one_sentence(name: str) -> None:
    with pytest.raises(InvalidTopicName) as caught:
        TopicName.parse(name)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_local_name_at_kafkas_limit_is_fine_and_one_more_is_not() -> None:
    longest = "a" * LOCAL_NAME_CHARS_MAX
    assert TopicName.parse(longest).local == longest
    assert TopicName.parse(f"ten/ns/{longest}").local == longest
    for name in (longest + "a", f"ten/ns/{longest}a", "a" * 100_000):
        with pytest.raises(InvalidTopicName, match="249"):
            TopicName.parse(name)


def test_tenants_and_namespaces_are_bounded() -> None:
    longest = "a" * NAMED_ENTITY_CHARS_MAX
    topic = TopicName.parse(f"non-persistent://{longest}/{longest}/{'a' * LOCAL_NAME_CHARS_MAX}")
    assert not topic.persistent
    with pytest.raises(InvalidTopicName, match="128"):
        TopicName.parse(f"{longest}a/ns/t")


def test_partition_names_go_both_ways() -> None:
    topic = TopicName.parse("ten/ns/t")
    assert topic.partition_name(7) == "persistent://ten/ns/t-partition-7"
    assert parse_partition(topic.partition_name(7)) == (topic, 7)
    assert parse_partition(topic.full) == (topic, -1)
    assert parse_partition("t-partition-0") == (TopicName.parse("t"), 0)
    assert parse_partition("t-partition-01") == (TopicName.parse("t-partition-01"), -1)
    with pytest.raises(InvalidTopicName):
        parse_partition("t-partition-0-partition-1")
    for name in ("-partition-1", "ten/ns/-partition-1"):
        with pytest.raises(InvalidTopicName):
            parse_partition(name)


def test_reading_a_name_again_gives_the_same_object() -> None:
    assert TopicName.parse("cached") is TopicName.parse("cached")
