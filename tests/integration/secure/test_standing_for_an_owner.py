"""The consumer of a replicator at a server with `--secure`: by the token that the worker gets, it is the owner."""

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pulsar
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

from magnetar.client.errors import Refused
from magnetar.client.http import HttpClient
from magnetar.client.login import Login
from magnetar.client.pipelines import PipelinesClient
from magnetar.client.rest import RestClient
from magnetar.client.standing_consumer import StandingConsumer
from magnetar.server.token_tool import make_token
from tests.integration.server.wire import eventually

from .test_secure import Safe, produce, properties

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

Rule = tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation]
TOPIC = "copied"
FULL = f"persistent://public/default/{TOPIC}"
READS: Rule = (ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ)
DECLARES: Rule = (
    ResourceType.BROKER,
    "kafka-cluster",
    ResourcePatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.ALTER,
)
CONFIG = {
    "topic": FULL,
    "type": "Kafka",
    "region": "elsewhere",
    "target": "copies",
    "properties": {"bootstrap.servers": "localhost:1"},
    "auth_plugin": None,
    "credentials": None,
}


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    one = Safe(tmp_path_factory.mktemp("standing") / "data")
    with one.server:
        yield one
        assert "Traceback" not in one.server.log


def allow(admin: AdminClient, rule: Rule) -> None:
    for done in admin.create_acls([AclBinding(*rule, AclPermissionType.ALLOW)]).values():
        done.result(60)


class Worker:
    """The pipelines' worker, which runs nothing."""

    def __init__(self, safe: Safe, url: str, ca: str) -> None:
        token = (safe.server.data_dir / "worker-token").read_text().strip()
        self._http = HttpClient(url, login=Login(ca=ca, token=token))
        place = {"host": "here", "pid": 7, "place": "here:/data"}
        taken = self._http.send_json("POST", "/magnetar/v1/worker/lease", {"worker": "w", **place})
        self._epoch = taken["epoch"]

    def token_of(self, name: str) -> str:
        """What the query of a pipeline logs in with.  This keeps the lease, too."""
        body = {"worker": "w", "epoch": self._epoch, "pipelines": [name]}
        tokens = self._http.send_json("POST", "/magnetar/v1/worker/tokens", body)["tokens"]
        return str(tokens.get(name, ""))

    def close(self) -> None:
        self._http.close()


def test_it_stands_there_as_long_as_its_owner_may_read(safe: Safe, tmp_path: Path) -> None:
    url = properties(safe.folder / "client.conf")["webServiceUrl"].rstrip("/")
    ca = str(safe.folder / "ca.pem")
    admin = AdminClient({**safe.kafka()})
    admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(60)
    produce(safe.kafka(), TOPIC, b"1")
    allow(admin, DECLARES)
    allow(admin, READS)
    by_alice = make_token("alice", "", (safe.folder / "token.key").as_uri(), None, "1h", [])
    with closing(PipelinesClient(url, login=Login(ca=ca, token=by_alice))) as pipelines:
        subscription = pipelines.create("copier", "replicator", CONFIG).subscription
    file = tmp_path / "token"
    worker = Worker(safe, url, ca)
    file.write_text(worker.token_of("copier"))

    def counts() -> list[int]:
        """How many consumers `pulsar-admin` shows on each partition."""
        worker.token_of("copier")
        found = []
        for number in (0, 1):
            status, body = safe.get(
                f"/admin/v2/{FULL.replace('://', '/')}-partition-{number}/stats", safe.token
            )
            assert status == 200
            found.append(
                len(json.loads(body)["subscriptions"].get(subscription, {"consumers": []})["consumers"])
            )
        return found

    def until(wanted: list[int], what: str) -> None:
        eventually(lambda: counts() == wanted, what, 120)

    consumer = StandingConsumer(
        url, Login(ca=ca, token=file.as_uri()), FULL, subscription, "replicator-copier"
    )
    try:
        until([1, 1], "each partition has a consumer")
        client = safe.pulsar()
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(FULL, subscription, consumer_type=pulsar.ConsumerType.Shared)
        client.close()
        for done in admin.delete_acls([AclBindingFilter(*READS, AclPermissionType.ALLOW)]).values():
            assert len(done.result(60)) == 1
        until([0, 0], "what its owner may not read it does not stand on")
        allow(admin, READS)
        until([1, 1], "it comes back with the right")
        with closing(PipelinesClient(url, login=Login(ca=ca, token=by_alice))) as pipelines:
            pipelines.delete("copier", force=True)
        until([0, 0], "it stands for nobody when the pipeline is gone")
    finally:
        consumer.close()
        worker.close()


def test_it_asks_how_far_its_owner_may_read(safe: Safe, tmp_path: Path) -> None:
    url = properties(safe.folder / "client.conf")["webServiceUrl"].rstrip("/")
    ca = str(safe.folder / "ca.pem")
    admin = AdminClient({**safe.kafka()})
    admin.create_topics([NewTopic("own", 1)])["own"].result(60)
    reads: Rule = (ResourceType.TOPIC, "own", *READS[2:])
    allow(admin, DECLARES)
    by_alice = make_token("alice", "", (safe.folder / "token.key").as_uri(), None, "1h", [])
    with closing(PipelinesClient(url, login=Login(ca=ca, token=by_alice))) as pipelines:
        config = {**CONFIG, "topic": "persistent://public/default/own"}
        subscription = pipelines.create("asker", "replicator", config).subscription
    worker = Worker(safe, url, ca)
    with RestClient(url, login=Login(ca=ca, token=worker.token_of("asker"))) as query:
        with pytest.raises(Refused, match="not authorized"):
            query.admissions(subscription, [("own", 0, 0, 1)])
        allow(admin, reads)
        assert query.admissions(subscription, [("own", 0, 0, 1)]) == [1]
    worker.close()


def test_a_token_that_was_not_made_for_a_pipeline_opens_no_port(safe: Safe) -> None:
    given = properties(safe.folder / "client.conf")
    silent = logging.getLogger("pulsar-client")
    silent.setLevel(logging.CRITICAL)
    forged = f"magnetar-pipeline.9999999999999.{'0' * 64}.copier"
    client = pulsar.Client(
        given["brokerServiceUrl"],
        pulsar.AuthenticationToken(forged),
        tls_trust_certs_file_path=given["tlsTrustCertsFilePath"],
        operation_timeout_seconds=3,
        logger=silent,
    )
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(TOPIC)
    finally:
        client.close()
    assert safe.get(f"/lookup/v2/topic/{FULL.replace('://', '/')}", forged)[0] == 401
