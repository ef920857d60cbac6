"""What `bootstrap.servers` may look like."""

import pytest

from magnetar.client.kafka.cluster import parse_addresses
from magnetar.client.kafka.connection import Address
from magnetar.client.kafka.errors import KafkaClientError


def test_hosts_and_ports() -> None:
    assert parse_addresses("a:1, [::1]:9092,") == [Address("a", 1), Address("::1", 9092)]


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1,b"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(KafkaClientError):
        parse_addresses(text)
