"""A real Apache Pulsar broker replicates a namespace into the replicator service, and on into a real Apache Kafka.

Broker, service and target are killed on the way.  Pulsar knows the service as one of its clusters.
"""

import json
import logging
import time
import urllib.error
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import free_ports
from tests.kafka_peer import KafkaPeer
from tests.peers import is_here
from tests.pulsar_peer import PulsarPeer
from tests.replicator_service import ReplicatorService, kafka_target
from tests.soak.flights_history import Flight, flights, judged
from tests.spark.replicated import copied

pytestmark = [
    pytest.mark.clients,
    pytest.mark.peers,
    pytest.mark.slow,
    pytest.mark.crash,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not (is_here("pulsar") and is_here("kafka")),
        reason="needs Java and the peer scripts of Pulsar and Kafka",
    ),
]

NAMESPACE = "public/flights"
TOPIC = f"persistent://{NAMESPACE}/departures"
REGION = "kafka-west"
DEAD_REGION = "kafka-east"
TOKEN = "a-token-of-a-broker-Zk3qPv9xT7wQ"
PARTITIONS = 2
FLIGHTS = 30_000
PATIENCE_S = 300.0


def until(what: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    give_up_at = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < give_up_at, "it did not come to pass"
        time.sleep(0.25)


class World:
    """Pulsar, the service and Kafka, each a process of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.kafka = stack.enter_context(KafkaPeer(folder / "kafka"))
        [dead, no_http] = free_ports(2)
        self._no_http = f"http://127.0.0.1:{no_http}"  # a replicator service has no admin API
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        admin.create_topics([NewTopic("departures", PARTITIONS, 1)])["departures"].result(60)
        regions = {
            REGION: kafka_target(self.kafka.bootstrap, {".+": "{topic}"}),
            DEAD_REGION: kafka_target(f"127.0.0.1:{dead}", {".+": "{topic}"}),
        }
        tokens = folder / "tokens"
        tokens.touch(0o600)
        tokens.write_text(TOKEN)
        self.service = stack.enter_context(
            ReplicatorService(folder, {NAMESPACE: {"Kafka": regions}}, ("--token-file", str(tokens)))
        )
        self.pulsar = stack.enter_context(
            PulsarPeer(folder / "pulsar", createTopicToRemoteClusterForReplication="false")
        )

    def add_cluster(self, name: str, token: str = TOKEN) -> None:
        cluster = {
            "serviceUrl": self._no_http,
            "brokerServiceUrl": self.service.url,
            "authenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "authenticationParameters": f"token:{token}",
        }
        self.pulsar.ask(f"clusters/{name}", "PUT", cluster)

    def replicate_to(self, *clusters: str) -> None:
        """Make the namespace with its topic, which is replicated from its first message on."""
        allowed = {"adminRoles": [], "allowedClusters": ["standalone", *clusters]}
        self.pulsar.ask("tenants/public", "POST", allowed)
        self.pulsar.ask(f"namespaces/{NAMESPACE}", "PUT", {"replication_clusters": ["standalone", *clusters]})
        self.pulsar.ask(f"persistent/{NAMESPACE}/departures/partitions", "PUT", PARTITIONS)

    @contextmanager
    def producer(self) -> Iterator[pulsar.Producer]:
        silent = logging.getLogger("tests.pulsar_replicates")
        silent.setLevel(logging.CRITICAL + 1)
        client = pulsar.Client(self.pulsar.url, operation_timeout_seconds=60, logger=silent)
        try:
            yield client.create_producer(
                TOPIC,
                message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
                batching_enabled=True,
                compression_type=pulsar.CompressionType.ZSTD,
                send_timeout_millis=0,
                block_if_queue_full=True,
            )
        finally:
            client.close()

    def backlog(self, region: str) -> int | None:
        """Messages that Pulsar has for a region and no receipt of; None while it does not say."""
        found = 0
        for partition in range(PARTITIONS):
            try:
                stats: dict[str, Any] = self.pulsar.ask(
                    f"persistent/{NAMESPACE}/departures-partition-{partition}/stats"
                )
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return None
            one = stats["replication"].get(region)
            if one is None:
                return None
            found += int(one["replicationBacklog"])
        return found

    def arrived(self) -> int:
        return len(copied(self.kafka.bootstrap, "departures"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        made = World(tmp_path_factory.mktemp("world"), stack)
        for region in (REGION, DEAD_REGION):
            made.add_cluster(region)
        made.replicate_to(REGION, DEAD_REGION)
        yield made


class Writer:
    """Sends flights without waiting, as fast as the broker takes them."""

    def __init__(self, producer: pulsar.Producer) -> None:
        self._producer = producer
        self._failed: list[pulsar.Result] = []

    def write(self, some: Sequence[Flight]) -> None:
        for flight in some:
            self._producer.send_async(
                flight.value,
                self._note,
                partition_key=flight.key.decode(),
                properties={name: value.decode() for name, value in flight.headers},
            )

    def finish(self) -> None:
        self._producer.flush()
        assert self._failed == []

    def _note(self, result: pulsar.Result, _: object) -> None:
        if result != pulsar.Result.Ok:
            self._failed.append(result)


def test_flights_arrive_in_order_though_broker_service_and_target_are_killed(world: World) -> None:
    sent = flights(FLIGHTS)
    parts = [sent[first : first + FLIGHTS // 6] for first in range(0, FLIGHTS, FLIGHTS // 6)]
    with world.producer() as producer:
        writer = Writer(producer)
        writer.write(parts[0])
        until(lambda: world.arrived() > 0)
        writer.write(parts[1])
        world.service.kill()  # while both send
        writer.write(parts[2])
        arrived = world.arrived()
        world.service.start()
        writer.write(parts[3])
        until(lambda: world.arrived() > arrived)
        world.kafka.kill()
        writer.write(parts[4])
        until(lambda: f"to {REGION} ends: " in world.service.log)
        world.kafka.start()
        world.pulsar.kill()
        world.pulsar.start()
        writer.write(parts[5])
        writer.finish()
    until(lambda: world.backlog(REGION) == 0)
    found = copied(world.kafka.bootstrap, "departures")
    verdict = judged(
        [flight._replace(headers=in_order(flight.headers)) for flight in sent],
        [(key, value, in_order(headers)) for key, value, headers in found],
    )
    verdict.require()
    # The dead region beside it has held back nothing, and lost nothing.
    assert (world.backlog(DEAD_REGION) or 0) > 0
    assert TOKEN not in world.service.log
    assert "Traceback" not in world.service.log


def in_order(headers: tuple[tuple[str, bytes | None], ...]) -> Any:
    """Properties of a message are a map: pulsar-client gives them an order of its own."""
    return tuple(sorted(headers))


def test_a_cluster_with_another_token_is_not_let_in(world: World) -> None:
    wrong = "another-token-of-a-broker-Zk3qPv"
    log_before = len(world.service.log)
    world.add_cluster("stranger", wrong)
    namespace = "public/strangers"
    clusters = ["standalone", REGION, DEAD_REGION, "stranger"]
    world.pulsar.ask("tenants/public", "POST", {"adminRoles": [], "allowedClusters": clusters})
    world.pulsar.ask(f"namespaces/{namespace}", "PUT", {"replication_clusters": ["standalone", "stranger"]})
    client = pulsar.Client(world.pulsar.url)
    client.create_producer(f"persistent://{namespace}/t").send(b"not for it")
    until(lambda: "it shows no token that this service knows" in world.service.log[log_before:])
    client.close()
    stats = json.dumps(world.pulsar.ask(f"persistent/{namespace}/t/stats"))
    assert '"connected": false' in stats
    assert wrong not in world.service.log
