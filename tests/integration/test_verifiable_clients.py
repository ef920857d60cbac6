"""Kafka's verifiable producer and consumer, which its own system tests are made of, at a server that is killed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_programs import JavaProgram
from tests.integration.java_tools import needs_java

pytestmark = [*needs_java, pytest.mark.crash]

PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
TOPIC = "t"
RECORDS = 1000
TIMEOUT_S = 120.0
_BEGIN = '{"timestamp"'


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"group.initial.rebalance.delay.ms": "0"}) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            made.result(TIMEOUT_S)
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


def events(lines: list[str], name: str) -> list[dict[str, Any]]:
    """What a verifiable client has told of one kind; it may tell behind a log line, which ends without an end."""
    found = [json.loads(line[line.index(_BEGIN) :]) for line in lines if _BEGIN in line]
    return [one for one in found if one["name"] == name]


def program(server: MagnetarProcess, main: str, *arguments: str) -> JavaProgram:
    return JavaProgram(
        main,
        ["--bootstrap-server", server.bootstrap, "--topic", TOPIC, *arguments],
        timeout_s=TIMEOUT_S,
    )


def test_what_was_acknowledged_is_consumed_where_it_was_written(server: MagnetarProcess) -> None:
    writes = ("--max-messages", str(RECORDS), "--throughput", "200", "--acks", "-1")
    reads = ("--group-id", "g", "--reset-policy", "earliest", "--verbose")
    with program(server, CONSUMER, *reads) as consumer, program(server, PRODUCER, *writes) as producer:
        consumer.start()
        producer.start()
        consumer.wait_until(lambda lines: len(events(lines, "record_data")) >= 100, "100 records")
        server.kill()
        server.restart()
        assert producer.ends() == 0, producer.tail
        (told,) = events(producer.lines, "tool_data")
        acknowledged = events(producer.lines, "producer_send_success")
        sent = {(one["partition"], one["offset"]): one["value"] for one in acknowledged}
        assert told["sent"] == RECORDS
        assert told["acked"] == len(sent) >= 100

        def consumed(lines: list[str]) -> dict[tuple[int, int], str]:
            return {(one["partition"], one["offset"]): one["value"] for one in events(lines, "record_data")}

        consumer.wait_until(lambda lines: sent.keys() <= consumed(lines).keys(), "all that was acknowledged")
        assert consumer.terminate() in (0, 143), consumer.tail  # 143: ended by SIGTERM
        found = consumed(consumer.lines)
        assert {where: found[where] for where in sent} == sent
        assert events(consumer.lines, "shutdown_complete")
        assert any(one["success"] for one in events(consumer.lines, "offsets_committed"))
    assert sorted(offset for _, offset in found) == list(range(len(found)))
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]).values()
    (committed,) = asked.result(TIMEOUT_S).topic_partitions
    assert (committed.partition, committed.offset) == (0, len(found))
