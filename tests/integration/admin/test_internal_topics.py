"""`__consumer_offsets` and `__transaction_state` as Kafka's clients see them.

The answers are those of Apache Kafka 4.3.1, but for growing and deleting them, which it takes.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from magnetar.testing.server import MagnetarProcess

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # kafka-python's
]

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(nodes=2) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


@pytest.fixture(scope="module")
def admin(server: MagnetarProcess) -> AdminClient:
    """Of a server where a group has committed, and a transaction was made; before that nothing is shown."""
    client = AdminClient({"bootstrap.servers": server.bootstrap})
    client.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
    assert set(client.list_topics(timeout=TIMEOUT_S).topics) == {"t"}
    group = consumer(server, "g")
    group.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    group.close()
    assert set(client.list_topics(timeout=TIMEOUT_S).topics) == {"t", OFFSETS}
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "x"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"x")
    producer.commit_transaction(TIMEOUT_S)
    return client


def consumer(server: MagnetarProcess, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )


def code_of(futures: Any) -> str:
    [future] = futures.values()
    with pytest.raises(KafkaException) as failure:
        future.result(TIMEOUT_S)
    name: str = failure.value.args[0].name()
    return name


def test_they_are_listed_and_marked_as_internal(server: MagnetarProcess, admin: AdminClient) -> None:
    from kafka.admin import KafkaAdminClient

    def ids() -> dict[str, str]:
        asked = admin.describe_topics(
            TopicCollection([OFFSETS, TRANSACTIONS, "t"]), request_timeout=TIMEOUT_S
        )
        found = {name: future.result() for name, future in asked.items()}
        assert {name: (one.is_internal, len(one.partitions)) for name, one in found.items()} == {
            OFFSETS: (True, 50),
            TRANSACTIONS: (True, 50),
            "t": (False, 1),
        }
        return {name: str(one.topic_id) for name, one in found.items()}

    assert set(admin.list_topics(timeout=TIMEOUT_S).topics) == {"t", OFFSETS, TRANSACTIONS}
    before = ids()
    client = KafkaAdminClient(bootstrap_servers=server.bootstrap.split(","))
    described = {one["name"]: one["is_internal"] for one in client.describe_topics()}
    client.close()
    assert described == {OFFSETS: True, TRANSACTIONS: True, "t": False}
    server.restart()
    assert ids() == before


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_no_client_writes_to_them_or_changes_them(
    server: MagnetarProcess, admin: AdminClient, name: str
) -> None:
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "message.timeout.ms": 10_000})

    def refused(error: KafkaError | None, _: object) -> None:
        assert error is not None
        errors.append(error.name())

    producer.produce(name, b"x", partition=0, on_delivery=refused)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == ["TOPIC_EXCEPTION"]
    assert code_of(admin.create_topics([NewTopic(name, 1, 1)])) == "TOPIC_ALREADY_EXISTS"
    assert code_of(admin.create_partitions([NewPartitions(name, 60)])) == "TOPIC_EXCEPTION"
    assert code_of(admin.delete_records([TopicPartition(name, 0, 0)])) == "TOPIC_EXCEPTION"
    assert code_of(admin.delete_topics([name])) == "TOPIC_EXCEPTION"
    change = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    assert code_of(admin.incremental_alter_configs([change])) == "TOPIC_EXCEPTION"
    [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    assert described.result(TIMEOUT_S)["cleanup.policy"].value == "compact"


def test_a_client_that_takes_every_topic_goes_on_undisturbed(
    server: MagnetarProcess, admin: AdminClient
) -> None:
    """librdkafka, unlike the Java client, takes the internal ones, too; they have nothing to read."""
    group = consumer(server, "everything")
    group.subscribe(["^.*"])
    read: list[tuple[str | None, bytes | None]] = []
    ends: set[tuple[str | None, int | None]] = set()
    while len(ends) < 101:
        message = group.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        if error is None:
            read.append((message.topic(), message.value()))
        else:
            assert error.name() == "_PARTITION_EOF", error
            ends.add((message.topic(), message.partition()))
    assert read == [("t", b"x")]
    assert group.get_watermark_offsets(TopicPartition(OFFSETS, 49), timeout=TIMEOUT_S) == (0, 0)
    group.commit(asynchronous=False)
    group.close()
