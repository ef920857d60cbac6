"""Addresses of sources."""

import pytest

from magnetar.base.errors import ConfigError
from magnetar.links.address import KafkaAddress, PulsarAddress, address_of


@pytest.mark.parametrize(
    ("address", "servers"),
    [
        ("kafka://host:9092", "host:9092"),
        ("kafka://host:9092/", "host:9092"),
        ("kafka://a.b-c:1,[::1]:9092", "a.b-c:1,[::1]:9092"),
    ],
)
def test_an_address_names_servers(address: str, servers: str) -> None:
    assert address_of(address) == KafkaAddress(servers)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("pulsar://host:6650/a/b/c", PulsarAddress((("host", 6650),), False, "a", "b", "c")),
        ("pulsar+ssl://x:1,[::1]:2/a/b/", PulsarAddress((("x", 1), ("::1", 2)), True, "a", "b", "")),
    ],
)
def test_an_address_of_pulsar_names_a_topic_or_a_namespace(address: str, found: PulsarAddress) -> None:
    assert address_of(address) == found


def test_the_origin_of_topics_has_one_spelling() -> None:
    found = address_of("pulsar+ssl://x:1,y:2/a/b/c")
    assert isinstance(found, PulsarAddress)
    assert found.origin == "pulsar+ssl://x:1,y:2/a/b"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host:9092",
        "kafka://",
        "kafka://host",
        "pulsar://host:6650",
        "kafka://a:1,,b:2",
        "kafka://a:1/topic",
        "pulsar://host:6650/",
        "pulsar://host:6650/a",
        "pulsar://host:6650/a/b/c/d",
        "pulsar://host:6650//b/c",
        "pulsar://host:6650/a b/c/d",
        "pulsar://host:6650/a/b/c d",
        "pulsar://host/a/b/c",
        "http://host:8080/a/b/c",
    ],
)
def test_what_is_no_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(ConfigError, match="is no source"):
        address_of(address)


def test_a_partition_is_no_topic_of_its_own() -> None:
    with pytest.raises(ConfigError, match="is a partition"):
        address_of("pulsar://host:6650/a/b/c-partition-3")


@pytest.mark.parametrize("rest", ["kafka://user:secret@host:9092", "pulsar://user:secret@host:6650/a/b/c"])
def test_an_address_with_a_login_is_refused_and_not_shown(rest: str) -> None:
    with pytest.raises(ConfigError) as raised:
        address_of(rest)
    assert "secret" not in str(raised.value)
