"""Users who log in by SASL get what rules say, from Kafka's tools and from Pulsar's, and lose it when it is taken."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from tests.integration.librdkafka import GROUP_DENIED, TOPIC_DENIED, produced

from .guarded import Guarded

pytestmark = pytest.mark.clients
ANYTHING: Any = None


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(Authority(tmp_path_factory.mktemp("authority")))
    one.settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    # HTTP does not know its clients yet: here they are the administrators who grant.
    one.settings["super.users"] = "User:admin;User:ANONYMOUS"
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one


def acl(kind: Any, name: str, operation: Any) -> AclBinding:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, literal, "User:alice", "*", operation, allow)


def consumed(settings: dict[str, Any], topic: str, group: str) -> int:
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        error = message.error()
        return error.code() if error else 0
    finally:
        consumer.close()


def test_a_user_has_what_lists_say_until_they_are_deleted(guarded: Guarded, topic: str) -> None:
    admin = AdminClient(guarded.confluent("admin", "admin-secret"))
    alice = guarded.confluent("alice", "alice-secret")
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(20)
    assert produced(alice, topic) == TOPIC_DENIED
    lists = [
        acl(ResourceType.TOPIC, topic, AclOperation.WRITE),
        acl(ResourceType.TOPIC, topic, AclOperation.READ),
        acl(ResourceType.GROUP, topic, AclOperation.READ),
    ]
    for one in admin.create_acls(lists).values():
        one.result(20)
    assert produced(alice, topic) == 0
    assert consumed(alice, topic, topic) == 0
    assert consumed(alice, topic, "another") == GROUP_DENIED
    every, allow = ResourcePatternType.ANY, AclPermissionType.ANY
    everything = AclBindingFilter(
        ResourceType.ANY, ANYTHING, every, "User:alice", ANYTHING, AclOperation.ANY, allow
    )
    for gone in admin.delete_acls([everything]).values():
        assert len(gone.result(20)) == 3
    assert produced(alice, topic) == TOPIC_DENIED


def test_a_role_that_pulsars_side_grants_may_use_kafkas(guarded: Guarded, topic: str) -> None:
    admin = AdminClient(guarded.confluent("admin", "admin-secret"))
    alice = guarded.confluent("alice", "alice-secret")
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(20)
    where = (
        f"http://127.0.0.1:{guarded.server.http_port}/admin/v2/namespaces/public/default/permissions/alice"
    )

    def ask(method: str, actions: Any = None) -> None:
        headers = {"Content-Type": "application/json"}
        body = None if actions is None else json.dumps(actions).encode()
        request = urllib.request.Request(where, body, headers, method=method)
        assert urllib.request.urlopen(request, timeout=20).status == 204

    ask("POST", ["produce", "consume"])
    assert produced(alice, topic) == 0
    assert consumed(alice, topic, "any") == 0
    ask("DELETE")
    assert produced(alice, topic) == TOPIC_DENIED
