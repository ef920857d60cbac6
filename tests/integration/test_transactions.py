"""Transactions as librdkafka does them, against a real server that may be killed in the middle."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess

pytestmark = pytest.mark.clients

TIMEOUT_S = 30
_names = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"group.initial.rebalance.delay.ms": "0"}, nodes=2) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


@pytest.fixture
def topic(server: MagnetarProcess) -> Callable[[int], str]:
    """Makes a topic of its own for the test."""

    def make(partitions: int = 1) -> str:
        name = f"topic-{next(_names)}"
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
        return name

    return make


def transactional(server: MagnetarProcess, name: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 200,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def consumer(server: MagnetarProcess, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 200,
        }
    )


def read(
    server: MagnetarProcess, topic: str, isolation: str = "read_committed", partitions: int = 1
) -> list[bytes]:
    """All values that are visible now."""
    reader = consumer(server, f"reader-{next(_names)}", isolation)
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    ended = 0
    while ended < partitions:
        message = next_message(reader)
        if is_end(message):
            ended += 1
        else:
            values.append(message.value() or b"")
    reader.close()
    return values


def next_message(reader: Consumer) -> Message:
    message = reader.poll(TIMEOUT_S)
    assert message is not None, "the server sent nothing"
    return message


def is_end(message: Message) -> bool:
    """Whether this is no record, but says that there is none at the moment."""
    error = message.error()
    assert error is None or error.code() == KafkaError._PARTITION_EOF, error
    return error is not None


def test_a_commit_is_visible_in_every_partition_and_an_abort_in_none(
    server: MagnetarProcess, topic: Callable[[int], str]
) -> None:
    name = topic(4)
    producer = transactional(server, name)
    for round_number in range(4):
        producer.begin_transaction()
        for partition in range(4):
            producer.produce(name, b"%d" % round_number, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        if round_number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    assert sorted(read(server, name, partitions=4)) == [b"0"] * 4 + [b"2"] * 4
    assert len(read(server, name, "read_uncommitted", partitions=4)) == 16


def test_an_open_transaction_is_hidden_and_the_next_producer_fences_it(
    server: MagnetarProcess, topic: Callable[[int], str]
) -> None:
    name = topic(1)
    zombie = transactional(server, name)
    zombie.begin_transaction()
    zombie.produce(name, b"zombie")
    assert zombie.flush(TIMEOUT_S) == 0
    assert read(server, name) == []
    assert read(server, name, "read_uncommitted") == [b"zombie"]
    heir = transactional(server, name)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].fatal()
    heir.begin_transaction()
    heir.produce(name, b"heir")
    heir.commit_transaction(TIMEOUT_S)
    assert read(server, name) == [b"heir"]


def test_a_transaction_that_takes_too_long_is_aborted(
    server: MagnetarProcess, topic: Callable[[int], str]
) -> None:
    name = topic(1)
    producer = transactional(server, name, timeout_ms=1_000)
    producer.begin_transaction()
    producer.produce(name, b"late")
    assert producer.flush(TIMEOUT_S) == 0
    behind = Producer({"bootstrap.servers": server.bootstrap})
    behind.produce(name, b"behind")
    assert behind.flush(TIMEOUT_S) == 0
    reader = consumer(server, f"reader-{next(_names)}")
    reader.assign([TopicPartition(name, 0, 0)])
    message = next_message(reader)
    while is_end(message):  # of what is stable, until the transaction is aborted
        message = next_message(reader)
    assert message.value() == b"behind"
    reader.close()
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)


def copy(
    server: MagnetarProcess,
    source: str,
    target: str,
    end: int,
    before_commit: Callable[[int], None] = lambda _: None,
) -> None:
    """Copy the records up to offset `end` that are not copied yet, one transaction each, their offsets included."""
    group = f"copy-{source}"
    producer = transactional(server, group)
    copied = 0
    while copied < end:
        reader = consumer(server, group)
        reader.subscribe([source])
        try:
            while copied < end:
                message = next_message(reader)
                if is_end(message):
                    continue
                producer.begin_transaction()
                producer.produce(target, message.value())
                copied = (message.offset() or 0) + 1
                position = [TopicPartition(source, 0, copied)]
                producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), TIMEOUT_S)
                before_commit(copied)
                producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            # The group was formed anew: what is not committed is aborted, and begun again where the group is.
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(TIMEOUT_S)
            copied = 0
        reader.close()


def fill(server: MagnetarProcess, topic: str, count: int) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    return values


def committed(server: MagnetarProcess, group: str, topic: str) -> int:
    reader = consumer(server, group)
    (partition,) = reader.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    reader.close()
    return int(partition.offset)


def test_records_and_offsets_are_copied_exactly_once(
    server: MagnetarProcess, topic: Callable[[int], str]
) -> None:
    source, target = topic(1), topic(1)
    values = fill(server, source, 20)
    # Two copiers, one after the other: the second goes on where the first has committed.
    copy(server, source, target, 8)
    assert committed(server, f"copy-{source}", source) == 8
    copy(server, source, target, 20)
    assert read(server, target) == values
    assert committed(server, f"copy-{source}", source) == 20


class _Killed(Exception):
    """The copier goes down together with the server."""


def test_records_are_copied_exactly_once_when_server_and_copier_are_killed_before_a_commit() -> None:
    with MagnetarProcess(settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        values = fill(server, "source", 9)
        for end in (2, 5, 6):

            def kill(copied: int, end: int = end) -> None:
                if copied == end:
                    server.kill()
                    raise _Killed

            with pytest.raises(_Killed):
                copy(server, "source", "target", end, kill)
            server.restart()
            assert read(server, "target") == values[: end - 1]
        copy(server, "source", "target", len(values))
        assert read(server, "target") == values
        assert committed(server, "copy-source", "source") == len(values)
        assert "Traceback" not in server.log, server.log[-5000:]


def test_an_aborted_transaction_moves_no_offset(server: MagnetarProcess, topic: Callable[[int], str]) -> None:
    source, target = topic(1), topic(1)
    fill(server, source, 1)
    reader = consumer(server, f"abort-{source}")
    reader.subscribe([source])
    while is_end(next_message(reader)):
        pass
    producer = transactional(server, f"abort-{source}")
    producer.begin_transaction()
    producer.produce(target, b"never")
    position = [TopicPartition(source, 0, 1)]
    producer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), TIMEOUT_S)
    producer.abort_transaction(TIMEOUT_S)
    reader.close()
    assert committed(server, f"abort-{source}", source) < 0
    assert read(server, target) == []


@pytest.mark.timeout(300)  # eight starts of a server, and each time clients that find it again
def test_a_transaction_survives_a_killed_server(topic: Callable[[int], str]) -> None:
    with MagnetarProcess() as server:
        name = "survivor"
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(TIMEOUT_S)
        producer = transactional(server, "survivor")
        for kill_before_commit, number in itertools.product((True, False), range(3)):
            producer.begin_transaction()
            for partition in range(2):
                producer.produce(name, b"%d" % number, partition=partition)
            assert producer.flush(TIMEOUT_S) == 0
            if kill_before_commit:
                server.kill()
                server.restart()
            producer.commit_transaction(TIMEOUT_S)
            if not kill_before_commit:
                server.kill()
                server.restart()
        assert sorted(read(server, name, partitions=2)) == sorted([b"0", b"1", b"2"] * 4)

        # Killed while one is open, and its producer never comes back: the next one aborts it.
        producer.begin_transaction()
        producer.produce(name, b"orphan", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        server.kill()
        server.restart()
        heir = transactional(server, "survivor")
        heir.begin_transaction()
        heir.produce(name, b"heir", partition=0)
        heir.commit_transaction(TIMEOUT_S)
        values = read(server, name, partitions=2)
        assert b"orphan" not in values
        assert b"heir" in values
        assert "Traceback" not in server.log, server.log[-5000:]


def test_the_coordinators_epoch_of_a_producer_is_that_of_its_last_marker(
    server: MagnetarProcess, topic: Callable[[int], str]
) -> None:
    """As Apache Kafka 4.3.1 reports it: -1 before the first marker, 0 from then on, over restarts, too."""
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as PyTopicPartition

    name = topic(1)
    partition = PyTopicPartition(name, 0)

    def epochs() -> list[tuple[int, bool]]:
        client = KafkaAdminClient(bootstrap_servers=server.bootstrap.split(","))
        try:
            producers = client.describe_producers([partition])[partition].active_producers
        finally:
            client.close()
        return [(one.coordinator_epoch, one.current_transaction_start_offset >= 0) for one in producers]

    producer = transactional(server, f"epochs-{name}")
    producer.begin_transaction()
    producer.produce(name, b"1")
    assert producer.flush(TIMEOUT_S) == 0
    assert epochs() == [(-1, True)]
    producer.commit_transaction(TIMEOUT_S)
    assert epochs() == [(0, False)]
    producer.begin_transaction()
    producer.produce(name, b"2")
    assert producer.flush(TIMEOUT_S) == 0
    assert epochs() == [(0, True)]
    producer.abort_transaction(TIMEOUT_S)
    server.restart()
    assert epochs() == [(0, False)]
