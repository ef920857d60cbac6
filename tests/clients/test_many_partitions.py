"""A consumer of very many partitions: its requests name all of them."""

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess

pytestmark = [pytest.mark.clients, pytest.mark.slow]
TOPICS = 17
PARTITIONS = 1_000  # as many as one request may make
POLLS_MAX = 1_000


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_of_more_partitions_than_other_requests_may_name_reads(protocol: str) -> None:
    names = [f"wide-{number}" for number in range(TOPICS)]
    with MagnetarProcess() as server:
        connected: dict[str, Any] = {"bootstrap.servers": server.bootstrap}
        admin = AdminClient(connected)
        for name in names:
            admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
        producer = confluent_kafka.Producer(connected)
        for name in names:
            producer.produce(name, name.encode(), partition=PARTITIONS - 1)
        assert producer.flush(60) == 0
        consumer = confluent_kafka.Consumer(
            {**connected, "group.id": "g", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(names)
        found: set[str] = set()
        for _ in range(POLLS_MAX):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.add((message.value() or b"").decode())
            if len(found) == TOPICS:
                break
        assert found == {*names}
        assert len(consumer.assignment()) == TOPICS * PARTITIONS
        consumer.close()
        assert "closing connection" not in server.log
        assert "Traceback" not in server.log
