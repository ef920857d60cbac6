"""Clients that we did not write are who their certificates say, and rules hold for that name."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.librdkafka import TOPIC_DENIED, produced

from .secured import Secured

pytestmark = pytest.mark.clients
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=alice-secret;"


class Named(Secured):
    """At `ssl` certificates are asked for and give the whole name, at `mutual` they are required and named by rules."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(authority)
        (self.sasl,) = free_ports(1)
        self.settings |= {
            "listeners": self.settings["listeners"] + f",SASL_SSL://127.0.0.1:{self.sasl}",
            "listener.name.ssl.ssl.client.auth": "requested",
            "listener.name.sasl_ssl.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": (
                "RULE:^CN=([A-Za-z0-9.-]+),OU=People.*$/$1/L,RULE:^CN=(admin)$/$1/"
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": PLAIN,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
        }


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[Named]:
    one = Named(authority)
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one


@pytest.fixture
def made(secured: Named, topic: str) -> str:
    client = admin(secured)  # as long as it is asked
    for one in client.create_topics([NewTopic(topic, 1, 1)]).values():
        one.result(20)
    return topic


def admin(secured: Named) -> AdminClient:
    return AdminClient({**secured.confluent(secured.mutual, secured.authority.issue("admin"))})


def allow(secured: Named, topic: str, principal: str) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    client = admin(secured)
    for one in client.create_acls([binding]).values():
        one.result(20)


def test_whole_name(secured: Named, made: str) -> None:
    dave = secured.authority.issue("dave", subject="/O=Magnetar/OU=People/CN=Dave")
    settings = secured.confluent(secured.ssl, dave)
    assert produced(settings, made) == TOPIC_DENIED
    allow(secured, made, "User:CN=Dave,OU=People,O=Magnetar")
    assert produced(settings, made) == 0
    erin = secured.authority.issue("erin", subject="/O=Magnetar/OU=People/CN=Erin")
    assert produced(secured.confluent(secured.ssl, erin), made) == TOPIC_DENIED
    kafka_python = KafkaProducer(
        bootstrap_servers=f"localhost:{secured.ssl}",
        security_protocol="SSL",
        ssl_context=secured.context(dave),
    )
    kafka_python.send(made, b"value").get(30)
    kafka_python.close()


def test_name_by_a_rule(secured: Named, made: str) -> None:
    dave = secured.authority.issue("dave", subject="/O=Magnetar/OU=People/CN=Dave")
    assert produced(secured.confluent(secured.mutual, dave), made) == TOPIC_DENIED
    allow(secured, made, "User:dave")
    assert produced(secured.confluent(secured.mutual, dave), made) == 0
    assert produced(secured.confluent(secured.ssl, dave), made) == TOPIC_DENIED


def test_without_a_certificate_where_one_is_only_asked_for(secured: Named, made: str) -> None:
    settings = secured.confluent(secured.ssl)
    assert produced(settings, made) == TOPIC_DENIED
    allow(secured, made, "User:ANONYMOUS")
    assert produced(settings, made) == 0


def test_name_that_no_rule_fits_gets_nothing(secured: Named) -> None:
    robot = secured.authority.issue("robot", subject="/O=Magnetar/OU=Robots")
    before = secured.server.log.count("no rule of ssl.principal.mapping.rules fits")
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient({**secured.confluent(secured.mutual, robot)}).list_topics(timeout=3)
    assert secured.server.log.count("no rule of ssl.principal.mapping.rules fits") > before


def test_a_login_gives_the_name_beside_a_certificate(secured: Named, made: str) -> None:
    settings = secured.confluent(secured.sasl, secured.authority.issue("admin")) | {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }
    assert produced(settings, made) == TOPIC_DENIED
    allow(secured, made, "User:alice")
    assert produced(settings, made) == 0
