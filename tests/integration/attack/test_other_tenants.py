"""The administrator of one tenant tries to get at another's topic: by names that look like it, ids, groups and paths.

What she tries must tell nothing of it (its content, its name, its sizes), change nothing of it, and be refused as it
would be for a topic that there is not.
"""

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

import jwt
import pytest

from magnetar.broker.security.model import group_resource
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from magnetar.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetSchema,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    CommandSubscribe,
)
from tests.integration.attack.tenants import (
    ALIKE,
    OWN,
    PATH,
    REFUSED,
    SECRET,
    VICTIM,
    World,
    codes,
    metadata,
    told,
)
from tests.integration.matrix.book import BOSS, STRANGER, SUPER, Book
from tests.integration.matrix.ruled import KafkaClient, running, token
from tests.integration.server.wire import record_batch


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running(Book(group_resource("g"))) as ruled:
        yield World(ruled)


@pytest.fixture(scope="module")
def mallory(world: World) -> Iterator[KafkaClient]:
    with world.ruled.kafka(STRANGER) as client:
        yield client


ASKS: Final[dict[str, Callable[[KafkaClient, str], Any]]] = {
    "metadata": metadata,
    "produce": lambda client, name: client.produce(name, record_batch([b"forged"])),
    "fetch": lambda client, name: client.fetch(name, 0, max_wait_ms=10),
    "list_offsets": lambda client, name: client.offset_of(name, -1),
    "delete_topics": lambda client, name: client.ask(
        "delete_topics", 5, DeleteTopicsRequest(topic_names=[name])
    ),
    "delete_records": lambda client, name: client.ask(
        "delete_records",
        2,
        DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, -1)])], 5000),
    ),
    "describe_configs": lambda client, name: client.ask(
        "describe_configs", 4, DescribeConfigsRequest([DescribeConfigsResource(2, name, None)])
    ),
    "offset_commit": lambda client, name: client.ask(
        "offset_commit",
        8,
        OffsetCommitRequest(
            "mine", topics=[OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 1)])]
        ),
    ),
    "create_topics": lambda client, name: client.ask(
        "create_topics", 5, CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5000)
    ),
}


@pytest.mark.parametrize("verb", ASKS)
def test_names_that_look_like_it_over_kafka(world: World, mallory: KafkaClient, verb: str) -> None:
    answers = {}
    for name in ALIKE:
        answers[name] = answer = ASKS[verb](mallory, name)
        found = codes(answer) if not isinstance(answer, tuple) else {answer[0]}
        assert found - {0} <= REFUSED, (name, answer)
        assert found - {0}, (name, answer)
    world.check(verb, *answers.values())


def test_a_topic_that_is_there_is_refused_as_one_that_is_not(mallory: KafkaClient) -> None:
    for verb, ask in ASKS.items():
        there, missing = (ask(mallory, f"public/default/{name}") for name in ("vault", "vaulz"))
        assert told(there).replace(b"vault", b"vaulz") == told(missing), verb
        assert codes(there) == codes(missing), verb


def test_ids_of_topics(world: World, mallory: KafkaClient) -> None:
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=10, topics=[FetchTopic(topic_id=world.topic_id, partitions=[partition])])
    fetched = mallory.ask("fetch", 13, fetch)
    assert codes(fetched) - {0} and codes(fetched) - {0} <= {  # noqa: PT018
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
    asked = MetadataRequest([MetadataRequestTopic(topic_id=world.topic_id, name=None)])
    described = mallory.ask("metadata", 12, asked)
    deleted = mallory.ask(
        "delete_topics", 6, DeleteTopicsRequest(topics=[DeleteTopicState(None, world.topic_id)])
    )
    for answer in (fetched, described, deleted):
        assert b"vault" not in told(answer)
    world.check("ids", fetched, described, deleted)


@pytest.mark.parametrize("group", ["payroll", "billing"])
def test_groups_of_others(world: World, mallory: KafkaClient, group: str) -> None:
    topics = [OffsetFetchRequestTopic("vault", [0])]
    commit = OffsetCommitRequest(
        group, topics=[OffsetCommitRequestTopic(OWN, partitions=[OffsetCommitRequestPartition(0, 1)])]
    )
    answers = [
        mallory.ask("offset_fetch", 7, OffsetFetchRequest(group, topics)),
        mallory.ask("offset_fetch", 7, OffsetFetchRequest(group, None)),
        mallory.ask("offset_commit", 8, commit),
        mallory.ask("describe_groups", 5, DescribeGroupsRequest([group])),
        mallory.ask("delete_groups", 2, DeleteGroupsRequest([group])),
    ]
    for answer in answers:
        assert codes(answer) - {0} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}, answer
    # Her own group tells her nothing of a topic that she may not see, wherever it stands.
    mine = mallory.ask("offset_fetch", 7, OffsetFetchRequest("mine", topics))
    assert mine.topics[0].partitions[0].committed_offset == -1
    world.check(group, *answers, mine)


def test_cursors_of_others_and_what_she_has_by_the_same_name(world: World) -> None:
    own = "/admin/v2/persistent/acme/house/hers/subscription/billing"
    assert world.http(STRANGER, "PUT", own, {})[0] == 204
    for method, path in (
        ("DELETE", f"{PATH}/subscription/billing?force=true"),
        ("POST", f"{PATH}/subscription/billing/skip_all"),
        ("POST", f"{PATH}/subscription/billing/skip/1"),
        ("GET", f"{PATH}/subscription/billing/position/1"),
        ("DELETE", f"/magnetar/v1/positions?subscription=billing&topic={quote(VICTIM, safe='')}&force=true"),
        ("DELETE", f"/magnetar/v1/positions?subscription=payroll&topic={quote(VICTIM, safe='')}&force=true"),
        ("DELETE", "/magnetar/v1/positions?subscription=payroll&force=true"),
    ):
        status, content = world.http(STRANGER, method, path)
        assert status in (401, 403, 404), (method, path, status, content)
        world.check(path, content)
    for method in ("GET", "DELETE"):  # of all topics: it takes the right to the group, as for Kafka's clients
        status, content = world.http(
            STRANGER, method, "/magnetar/v1/positions?subscription=billing&force=true"
        )
        assert (status, b"vault" in content) == (403, False)
    assert world.http(STRANGER, "DELETE", own)[0] == 204
    assert json.loads(world.http(STRANGER, "GET", f"{own.rpartition('/')[0]}s")[1]) == []
    world.check("billing", content)


def test_segments_and_entries_that_are_guessed(world: World) -> None:
    internal = json.loads(world.http(SUPER, "GET", f"{PATH}/internalStats")[1])
    ledger = int(internal["lastConfirmedEntry"].partition(":")[0])
    own = "/admin/v2/persistent/acme/house/hers"
    for number in range(ledger + 3):
        for entry in range(3):
            status, content = world.http(STRANGER, "GET", f"{own}/ledger/{number}/entry/{entry}")
            assert status == 404 or b"hers" in content, (number, entry, status, content)
            assert SECRET not in content
    for name in ALIKE:
        topic = quote(name, safe="")
        status, content = world.http(
            STRANGER, "GET", f"/magnetar/v1/entries?topic={topic}&partition=0&offset=0"
        )
        assert status in (400, 403, 404, 412), (name, status, content)
        for path in ("segments", "offsets"):
            body = {
                "partitions": [{"topic": name, "partition": 0}],
                **({"lease_s": 60} if path == "segments" else {}),
            }
            status, found = world.http(STRANGER, "POST", f"/magnetar/v1/{path}", body)
            rows = json.loads(found).get("partitions", []) if status == 200 else []
            assert all(row["error"] is not None for row in rows), (name, found)
            assert b"segment" not in found.lower() or status == 200, (name, found)
        status, schema = world.http(STRANGER, "GET", f"/magnetar/v1/topics/{topic}/schema")
        assert status in (400, 401, 403, 404, 412), (name, status, schema)
        assert SECRET not in content + found + schema
    for lease in ("0" * 32, "..", "%2e%2e", "*", "%00"):
        assert world.http(STRANGER, "DELETE", f"/magnetar/v1/leases/{lease}")[0] in (204, 400, 404, 405), (
            lease
        )
    world.check("segments")


PATHS: Final = (
    "public/default/vault",
    "public%2Fdefault/vault",
    "public/default%2Fvault",
    "public%2Fdefault%2Fvault",
    "public%252Fdefault%252Fvault",
    "acme/house/..%2F..%2Fpublic%2Fdefault%2Fvault",
    "acme/house/..%252F..%252Fpublic%252Fdefault%252Fvault",
    "acme/house/../../public/default/vault",
    "acme/house/hers/../../../public/default/vault",
    "acme/house/%2e%2e/%2e%2e/public/default/vault",
    "acme/house/%252e%252e/%252e%252e/public/default/vault",
    "acme/house/..;/..;/public/default/vault",
    "acme/house;a=b/../../public/default/vault",
    "acme//house/../../public/default/vault",
    "./public/default/vault",
    "/public/default/vault",
    "%70ublic/default/vault",
    "%2570ublic/default/vault",
    "public/default/v%61ult",
    "public/default/vault%00",
    "public/default/vault%20",
    "public/default/vault%0a",
    "public/default/vault%E2%80%8B",
    "public/default/vault%c0%af",
    "public/default/vault-partition-0",
    "PUBLIC/default/vault",
    "%EF%BD%90ublic/default/vault",
    "acme\\..\\public/default/vault",
)


@pytest.mark.parametrize(
    ("method", "behind"),
    [
        ("GET", "/stats"),
        ("GET", "/internalStats"),
        ("GET", "/subscriptions"),
        ("GET", "/subscription/billing/position/1"),
        ("GET", "/ledger/0/entry/0"),
        ("GET", "/permissions"),
        ("GET", "/messageTTL"),
        ("POST", f"/permissions/{STRANGER}"),
        ("POST", "/messageTTL"),
        ("PUT", "/partitions"),
        ("PUT", "/unload"),
        ("POST", "/terminate"),
        ("DELETE", "?force=true"),
        ("DELETE", "/truncate"),
    ],
)
def test_paths_that_are_encoded_and_turned(world: World, method: str, behind: str) -> None:
    body = (
        {"POST": ["consume"], "PUT": 2}.get(method)
        if "permissions" in behind or "partitions" in behind
        else None
    )
    body = 1 if behind == "/messageTTL" and method == "POST" else body
    for path in PATHS:
        for prefix in (
            "/admin/v2/persistent/",
            "/admin/v2//persistent/",
            "/admin/v2/clusters/../persistent/",
            "/Admin/v2/persistent/",
        ):
            status, content = world.http(STRANGER, method, f"{prefix}{path}{behind}", body)
            assert status >= 400, (method, prefix, path, status, content)
            assert status < 500 or status == 501, (method, prefix, path, status, content)
            assert SECRET not in content
    world.check((method, behind))


def test_names_that_look_like_it_over_pulsar(world: World) -> None:
    for name in ALIKE:
        if "\0" in name or not name.isprintable():
            continue  # a client of its own is no use: what follows is the same server's check of names
        with world.ruled.pulsar(STRANGER) as wire:
            for command in (
                CommandLookupTopic(topic=name, request_id=1),
                CommandPartitionedTopicMetadata(topic=name, request_id=1),
                CommandProducer(topic=name, producer_id=1, request_id=1),
                CommandSubscribe(
                    topic=name,
                    subscription="billing",
                    subType=CommandSubscribe.Exclusive,
                    consumer_id=1,
                    request_id=1,
                ),
                CommandGetSchema(topic=name, request_id=1),
            ):
                wire.say(command)
                kind, answer = wire.answer()
                refused = (
                    kind == BaseCommand.ERROR
                    or getattr(answer, "error", None)
                    or getattr(answer, "error_code", 0)
                )
                assert refused, (name, kind, answer)
    world.check("pulsar")


def test_tokens_that_are_made_up_or_are_for_others(world: World) -> None:
    """The user of PLAIN is not looked at beside a token, and a role is one to the letter."""

    def logged_in(user: str, shown: str) -> KafkaClient | None:
        client = KafkaClient(world.ruled.login_port)
        assert client.ask("sasl_handshake", 1, SaslHandshakeRequest("PLAIN")).error_code == 0
        message = f"\0{user}\0token:{shown}".encode()
        if client.ask("sasl_authenticate", 2, SaslAuthenticateRequest(message)).error_code:
            client.socket.close()
            return None
        return client

    for user in ("public/default", SUPER, BOSS, "User:admin", "*"):
        client = logged_in(user, token(STRANGER))
        assert client is not None
        with client:
            assert client.fetch("vault", 0, max_wait_ms=10).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    lookalikes = (
        f"{SUPER} ",
        f" {SUPER}",
        SUPER.upper(),
        f"User:{SUPER}",
        f"{SUPER}\u200b",
        "\uff41dmin",
        f"{SUPER};x",
        "*",
        "a*",
        "*n",
    )
    for role in lookalikes:
        client = logged_in("x", token(role))
        if client is not None:
            with client:
                answer = client.fetch("vault", 0, max_wait_ms=10)
                assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, role
        status, content = world.http("", "GET", f"{PATH}/stats", shown=token(role))
        assert status in (400, 401, 403), (role, status, content)
    header, claims, signature = token(STRANGER).split(".")
    forged_claims = base64.urlsafe_b64encode(json.dumps({"sub": SUPER}).encode()).rstrip(b"=").decode()
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    for shown in (
        f"{header}.{forged_claims}.{signature}",
        f"{none}.{forged_claims}.",
        f"{none}.{forged_claims}.{signature}",
        jwt.encode({"sub": SUPER}, "another key, which is as long as one", "HS256"),
        f"{header}.{forged_claims}.AAAA",
        f"{header}.{claims}.{signature}.{forged_claims}",
    ):
        assert logged_in(SUPER, shown) is None, shown
        assert world.http("", "GET", f"{PATH}/stats", shown=shown)[0] == 401, shown
    proxied = {"authorization": f"Bearer {token(STRANGER)}", "X-Original-Principal": SUPER}
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=20)
    connection.request("GET", f"{PATH}/stats", headers=proxied)
    assert connection.getresponse().status == 401
    connection.close()
    world.check("tokens")


def test_limits_that_others_share_are_not_joined_nor_left(world: World) -> None:
    """Who may join a group may use up what others in it have, and who may leave one has no limit."""
    assert world.http(SUPER, "PUT", "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": 100})[0] == 204
    for method, path, body in (
        ("POST", "/admin/v2/namespaces/acme/house/resourcegroup/gold", None),
        ("DELETE", "/admin/v2/namespaces/acme/house/resourcegroup", None),
        ("PUT", "/admin/v2/namespaces/acme/another", {"resource_group_name": "gold"}),
        ("PUT", "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": 1}),
        ("DELETE", "/admin/v2/resourcegroups/gold", None),
    ):
        status, content = world.http(STRANGER, method, path, body)
        assert status == 401, (method, path, status, content)
    world.check("groups")


def test_a_frame_that_names_two_topics_gets_its_own_alone(world: World, mallory: KafkaClient) -> None:
    """A right to one topic of a request is none to the others."""
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(name, partitions=[partition]) for name in (OWN, "vault", OWN)]
    answer = mallory.ask("fetch", 12, FetchRequest(max_wait_ms=10, topics=topics))
    by_name = {row.topic: row.partitions[0] for row in answer.responses}
    assert by_name["vault"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert b"hers" in told(by_name[OWN])
    world.check("two topics", answer)
