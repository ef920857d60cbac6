"""Clients that we did not write meet the quota of partitions that are made (KIP-599)."""

import time
from contextlib import closing

import confluent_kafka.admin
import kafka.admin
import kafka.errors
import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.integration.server.wire import Wire, eventually

pytestmark = pytest.mark.clients
AT_ONCE = 11  # seconds' worth of partitions


def limit(server: MagnetarProcess, client_id: str, rate: float) -> None:
    with Wire(server.ports[0]) as wire:
        limited = EntryData([EntityData("client-id", client_id)], [OpData("controller_mutation_rate", rate)])
        answer = wire.ask("alter_client_quotas", 1, AlterClientQuotasRequest([limited]))
        assert [row.error_code for row in answer.entries] == [0]


def test_librdkafka_makes_its_topics_and_waits_afterwards(server: MagnetarProcess) -> None:
    limit(server, "librdkafka", 1.0)
    admin = confluent_kafka.admin.AdminClient(
        {"bootstrap.servers": server.bootstrap, "client.id": "librdkafka"}
    )
    for name, partitions, waits_s in (("r1", AT_ONCE + 3, 0.0), ("r2", 1, 2.0)):
        began_s = time.monotonic()
        for made in admin.create_topics(
            [confluent_kafka.admin.NewTopic(name, partitions, 1)], operation_timeout=30
        ).values():
            made.result(60)
        assert time.monotonic() - began_s >= waits_s
    assert {"r1", "r2"} <= set(admin.list_topics(timeout=60).topics)


def test_kafka_python_is_told_that_it_has_made_too_many(server: MagnetarProcess) -> None:
    limit(server, "kafka-python", 1.0)
    with closing(
        kafka.admin.KafkaAdminClient(bootstrap_servers=server.bootstrap, client_id="kafka-python")
    ) as admin:
        admin.create_topics({"p1": {"num_partitions": AT_ONCE + 3}})
        with pytest.raises(kafka.errors.ThrottlingQuotaExceededError):
            admin.create_topics(["p2"])

        def makes_it() -> bool:
            try:
                admin.create_topics(["p2"])
            except (kafka.errors.ThrottlingQuotaExceededError, kafka.errors.NodeNotReadyError):
                return False  # the client itself asks for nothing while it has been told to wait
            return True

        eventually(makes_it, "it may go on")
