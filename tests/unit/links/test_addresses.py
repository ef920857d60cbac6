"""Addresses of sources."""

import pytest

from magnetar.base.errors import ConfigError
from magnetar.links.address import servers_of


@pytest.mark.parametrize(
    ("address", "servers"),
    [
        ("kafka://host:9092", "host:9092"),
        ("kafka://host:9092/", "host:9092"),
        ("kafka://a.b-c:1,[::1]:9092", "a.b-c:1,[::1]:9092"),
    ],
)
def test_an_address_names_servers(address: str, servers: str) -> None:
    assert servers_of(address) == servers


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
    ],
)
def test_what_is_no_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(ConfigError, match="is no source"):
        servers_of(address)


def test_an_address_with_a_login_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        servers_of("kafka://user:secret@host:9092")
    assert "secret" not in str(raised.value)
