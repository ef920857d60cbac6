"""Positions in more partitions than most requests may name."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess

pytestmark = pytest.mark.clients
TOPICS = [f"wide-{number}" for number in range(17)]
PARTITIONS = 1_000  # as many as one request may make


@pytest.fixture
def connected() -> Iterator[dict[str, Any]]:
    with MagnetarProcess() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for name in TOPICS:
            admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
        yield {"bootstrap.servers": server.bootstrap}
        assert "closing connection" not in server.log
        assert "Traceback" not in server.log


def test_positions_in_very_many_partitions_are_committed_and_found(connected: dict[str, Any]) -> None:
    consumer = confluent_kafka.Consumer({**connected, "group.id": "positions"})
    every = [(name, index) for name in TOPICS for index in range(PARTITIONS)]
    consumer.commit(
        offsets=[TopicPartition(name, index, index + 1) for name, index in every], asynchronous=False
    )
    found = consumer.committed([TopicPartition(name, index) for name, index in every], timeout=60)
    assert {(one.topic, one.partition): one.offset for one in found} == {
        (name, index): index + 1 for name, index in every
    }
    consumer.close()
