"""Ways around a door that asks: paths that look like open ones, other methods, other versions, commands and requests
that name somebody else's topics on the way to something of one's own.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from magnetar.broker.security.model import group_resource
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand
from tests.integration.attack.tenants import OWN, SECRET, VICTIM, World, told
from tests.integration.matrix.book import STRANGER, SUPER, Book
from tests.integration.matrix.ruled import PulsarWire, running, token
from tests.integration.server.wire import eventually


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running(Book(group_resource("g"))) as ruled:
        yield World(ruled)


NEARLY_OPEN: Final = (
    "/health/../metrics",
    "/health/%2e%2e/metrics",
    "/health/..%2fmetrics",
    "//health/../metrics",
    "/health;/../metrics",
    "/ready/../admin/v2/tenants",
    "/ready%2f..%2fadmin%2fv2%2ftenants",
    "/status.html/../admin/v2/clusters",
    "/status.html%00/admin/v2/tenants",
    "/admin/v2/brokers/health/../../tenants",
    "/admin/v2/brokers/ready/..;/../tenants",
    "http://127.0.0.1/health/../admin/v2/tenants",
    "/metrics/",
    "/metrics?x=/health",
    "/METRICS",
    "/metrics;/health",
    "/metrics%20",
    "/openapi.json",
    "/magnetar/v1/worker/orders",
    "/admin/v2/tenants?x=/ready",
    "/admin/v2/tenants#/health",
)


def asked(port: int, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", NEARLY_OPEN)
def test_paths_near_the_open_ones_say_nothing_to_strangers(world: World, path: str) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
        for more in (
            {},
            {"Authorization": ""},
            {"Authorization": "Bearer"},
            {"Authorization": "Worker x"},
            {"X-Original-URL": "/health", "X-Rewrite-URL": "/health", "X-Forwarded-Uri": "/health"},
            {"X-Original-Principal": SUPER, "X-Forwarded-User": SUPER, "X-Remote-User": SUPER},
            {"X-Pulsar-Auth-Method-Name": "none"},
        ):
            status, content = asked(world.port, method, path, {"Content-Type": "application/json", **more})
            assert status in (307, 400, 401, 403, 404, 405), (method, path, more, status, content)
            assert b"vault" not in content
            assert b"magnetar_" not in content


@pytest.mark.parametrize(
    "header", ["X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override", "X-Original-Method"]
)
def test_a_method_is_the_one_of_the_request(world: World, header: str) -> None:
    """What she may do with her own topic is no way to do something else."""
    body = {"adminRoles": [STRANGER], "allowedClusters": ["standalone"]}
    for path in ("/admin/v2/tenants/public", "/admin/v2/persistent/public/default/vault?_method=DELETE"):
        for method in ("GET", "POST"):
            connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=20)
            headers = {
                "authorization": f"Bearer {token(STRANGER)}",
                header: "DELETE",
                "content-type": "application/json",
            }
            connection.request(method, path, json.dumps(body), headers)
            answer = connection.getresponse()
            assert answer.status in (401, 403, 404, 405), (method, path, answer.status)
            answer.read()
            connection.close()
    world.check(header)


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v3/functions/public/default",
        "/admin/v3/functions/public/default/vault/status",
        "/admin/v3/sinks/public/default/vault",
        "/admin/v3/sources/public/default",
        "/admin/v3/packages/function/public/default",
        "/admin/v3/transactions/coordinatorStats",
        "/admin/v3/transactions/transactionBufferStats/public/default/vault",
        "/admin/v3/persistent/public/default/vault/stats",
        "/admin/v1/persistent/public/default/vault/stats",
        "/admin/persistent/public/default/vault/stats",
        "/admin/v2/persistent;v=3/public/default/vault/stats",
        "/admin/v2/persistent/acme;public/default/vault/stats",
        "/admin/v2/persistent/acme/house;/../../public/default/vault/stats",
        "/admin/v2/broker-stats/topics",
        "/admin/v2/broker-stats/metrics",
        "/admin/v2/brokers/standalone/127.0.0.1:8080/ownedNamespaces",
        "/admin/v2/resource-quotas",
        "/admin/v2/worker/functions",
        "/lookup/v2/topic/persistent/public/default/vault",
        "/lookup/v2/topic/persistent/public/default/vault/bundle",
        "/ws/v2/consumer/persistent/public/default/vault/s",
        "/metrics",
    ],
)
def test_other_versions_and_corners_of_http(world: World, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        status, content = world.http(STRANGER, method, path)
        assert status >= 400 or content == b"[]", (
            method,
            path,
            status,
            content,
        )  # a list of what she may see
        assert status < 500 or status == 501, (method, path, status, content)
        assert b"payroll" not in content
        assert SECRET not in content
    world.check(path)


def refusal_of(wire: PulsarWire, command: Any) -> None:
    wire.say(command)
    kind, answer = wire.answer()
    refused = (
        kind == BaseCommand.ERROR
        or (hasattr(answer, "error") and answer.HasField("error"))
        or (hasattr(answer, "error_code") and answer.HasField("error_code"))
    )
    assert refused, (kind, answer)
    assert b"billing" not in str(answer).encode()


def test_lists_and_watchers_of_another_tenants_topics(world: World) -> None:
    with world.ruled.pulsar(STRANGER) as wire:
        for namespace in ("public/default", "public/default/", "acme/house/../../public/default"):
            refusal_of(wire, pb.CommandGetTopicsOfNamespace(namespace=namespace, request_id=1))
            refusal_of(
                wire,
                pb.CommandWatchTopicList(
                    namespace=namespace, watcher_id=1, request_id=1, topics_pattern="public/default/.*"
                ),
            )
        for pattern in ("public/default/.*", "persistent://public/default/.*", ".*"):
            wire.say(
                pb.CommandGetTopicsOfNamespace(
                    namespace="acme/house", topics_pattern=pattern, request_id=1, mode="ALL"
                )
            )
            kind, answer = wire.answer()
            assert kind == BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
            assert set(answer.topics) <= {OWN}
    world.check("lists")


def test_transactions_that_touch_another_tenants_topic(world: World) -> None:
    """And somebody else's transaction: it is not there for her."""
    with world.ruled.pulsar(SUPER) as victim, world.ruled.pulsar(STRANGER) as wire:
        victim.say(pb.CommandNewTxn(request_id=1, txn_ttl_seconds=600, tc_id=0))
        _, hers = victim.answer()
        assert not hers.HasField("error")
        wire.say(pb.CommandNewTxn(request_id=1, txn_ttl_seconds=600, tc_id=0))
        _, own = wire.answer()
        assert not own.HasField("error")
        ids = {"txnid_most_bits": own.txnid_most_bits, "txnid_least_bits": own.txnid_least_bits}
        for topic in (VICTIM, f"{VICTIM}-partition-0"):
            refusal_of(wire, pb.CommandAddPartitionToTxn(request_id=1, partitions=[topic], **ids))
            subscription = pb.Subscription(topic=topic, subscription="billing")
            refusal_of(wire, pb.CommandAddSubscriptionToTxn(request_id=1, subscription=[subscription], **ids))
        foreign = {"txnid_most_bits": hers.txnid_most_bits, "txnid_least_bits": hers.txnid_least_bits}
        refusal_of(wire, pb.CommandAddPartitionToTxn(request_id=1, partitions=[OWN], **foreign))
        refusal_of(wire, pb.CommandEndTxn(request_id=1, txn_action=pb.ABORT, **foreign))
        refusal_of(wire, pb.CommandEndTxn(request_id=1, txn_action=pb.COMMIT, **foreign))
        victim.say(pb.CommandEndTxn(request_id=1, txn_action=pb.COMMIT, **foreign))
        assert not victim.answer()[1].HasField("error")
    world.check("transactions")


def test_producers_that_would_make_a_subscription_of_hers(world: World) -> None:
    """A first subscription, and a dead-letter topic's, is asked for as any other."""
    with world.ruled.pulsar(STRANGER) as wire:
        for topic in (
            VICTIM,
            "persistent://public/default/vault-billing-DLQ",
            "persistent://public/default/new",
        ):
            refusal_of(
                wire,
                pb.CommandProducer(
                    topic=topic, producer_id=1, request_id=1, initial_subscription_name="billing"
                ),
            )
            schema = pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)
            refusal_of(wire, pb.CommandGetOrCreateSchema(topic=topic, request_id=1, schema=schema))
    world.check("producers")


def test_groups_of_her_own_over_topics_of_others(world: World) -> None:
    group, read, allow = 3, 3, 3
    with world.ruled.kafka(SUPER) as admin:
        rules = [AclCreation(group, "hers-", 4, f"User:{STRANGER}", "*", read, allow)]
        assert admin.ask("create_acls", 3, CreateAclsRequest(rules)).results[0].error_code == 0
    with world.ruled.kafka(STRANGER) as mallory:
        for names in (["vault"], [OWN, "vault"], [VICTIM]):
            consumer = ConsumerGroupHeartbeatRequest(
                "hers-c", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=names, topic_partitions=[]
            )
            sharer = ShareGroupHeartbeatRequest("hers-s", "m", 0, subscribed_topic_names=names)
            for api, asks in (("consumer_group_heartbeat", consumer), ("share_group_heartbeat", sharer)):
                answer = mallory.ask(api, 1, asks)
                assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, (api, names)
        request = ConsumerGroupHeartbeatRequest(
            "hers-pattern",
            "m",
            0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex=".*",
            topic_partitions=[],
        )
        found: list[bytes] = []

        def is_assigned() -> bool:
            nonlocal request
            answer = mallory.ask("consumer_group_heartbeat", 1, request)
            assert answer.error_code == 0, answer.error_message
            assert world.topic_id not in told(answer)
            request = ConsumerGroupHeartbeatRequest("hers-pattern", "m", answer.member_epoch)
            found.extend(one.topic_id for one in (answer.assignment or request).topic_partitions or ())
            return bool(found)

        eventually(is_assigned, "her own topic is what the pattern finds")
        assert world.topic_id not in found
    world.check("groups")
