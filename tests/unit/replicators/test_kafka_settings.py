"""Which properties of Kafka's client a tenant may choose."""

from typing import Any

import pytest

from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.kafka.provider import KafkaProvider
from magnetar.replicators.kafka.settings import client_settings
from magnetar.replicators.policies import ReplicatorPolicies

SERVERS = {"bootstrap.servers": "kafka:9092"}


def test_what_is_given_is_added_to_what_makes_order_and_durability() -> None:
    found = client_settings({**SERVERS, "linger.ms": 20}, {"sasl.username": "u", "sasl.password": "p"})
    assert found["linger.ms"] == "20"
    assert (found["enable.idempotence"], found["enable.gapless.guarantee"]) == ("true", "true")
    assert (found["sasl.username"], found["sasl.password"]) == ("u", "p")


@pytest.mark.parametrize(
    "servers", ["a:1", "a.b-c:9092,d:9093", "127.0.0.1:9092", "[::1]:9092", "SSL://a:9093"]
)
def test_addresses_of_brokers(servers: str) -> None:
    assert client_settings({"bootstrap.servers": servers}, None)["bootstrap.servers"] == servers


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "needs the property bootstrap.servers"),
        ({"bootstrap.servers": "kafka"}, "bootstrap.servers must be host:port"),
        ({**SERVERS, "acks": "1"}, "acks must be one of all, -1, not '1'"),
        ({**SERVERS, "acks": 0}, "acks must be one of all"),
        ({**SERVERS, "compression.typ": "zstd"}, "did you mean compression.type?"),
        ({**SERVERS, "linger.ms": "-1"}, "linger.ms must be a whole number from 0"),
        ({**SERVERS, "linger.ms": "٣"}, "linger.ms must be a whole number from 0"),
        ({**SERVERS, "linger.ms": [1]}, "linger.ms must be a text, a number, true or false"),
        ({**SERVERS, "client.id": "a\0b"}, "client.id must be a text"),
        ({**SERVERS, "sasl.password": "hunter2"}, "sasl.password is a secret: give it with the credentials"),
        ({**SERVERS, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism must be one of PLAIN"),
        ({**SERVERS, "error_cb": "x"}, "has no property 'error_cb'"),
        ({**SERVERS, "enable.idempotence": "false"}, "has no property 'enable.idempotence'"),
    ],
)
def test_what_is_wrong_is_named(properties: dict[str, Any], said: str) -> None:
    with pytest.raises(ReplicatorConfigError) as caught:
        client_settings(properties, None)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "plugin.library.paths",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.truststore.location",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.keytab",
        "sasl.jaas.config",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.file",
        "ssl.engine.location",
        "ssl.providers",
    ],
)
def test_no_property_makes_the_worker_open_a_file_or_load_a_library(name: str) -> None:
    with pytest.raises(ReplicatorConfigError, match=r"cannot be given|has no property"):
        client_settings({**SERVERS, name: "/etc/passwd"}, None)


@pytest.mark.parametrize("name", ["ssl.key.location", "bootstrap.servers", "accessKey"])
def test_credentials_are_those_of_kafka(name: str) -> None:
    with pytest.raises(ReplicatorConfigError, match="credentials of a replicator to Kafka are"):
        client_settings(SERVERS, {name: "x"})


@pytest.mark.parametrize("target", ["", "a b", "..", "x" * 250, "persistent://a/b/c"])
def test_a_target_that_cannot_be_a_topic_of_kafka(target: str) -> None:
    with pytest.raises(ReplicatorConfigError, match="cannot be a topic of Kafka"):
        KafkaProvider().validate_properties(
            "public/default", ReplicatorPolicies("r", SERVERS, {"orders": target})
        )


def test_a_pattern_may_put_the_topics_name_into_its_target() -> None:
    KafkaProvider().validate_properties(
        "public/default", ReplicatorPolicies("r", SERVERS, {"orders.*": "copy-of-{topic}"})
    )
