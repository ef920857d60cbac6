"""Clients that use a topic while it is deleted, and kills in the middle of that."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import confluent_kafka
import pulsar
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from magnetar.testing.server import MagnetarProcess

from .wire import eventually

RECORDS = 20
POSITION = 15
PATIENCE_S = 30.0


class Client:
    """A producer and a consumer without a group of members, as one program has them."""

    def __init__(self, server: MagnetarProcess) -> None:
        where: dict[str, str | int | float | bool] = {
            "bootstrap.servers": server.bootstrap,
            "log_level": 0,
            "topic.metadata.refresh.interval.ms": 100,
            "reconnect.backoff.max.ms": 200,
        }
        self._where = where
        self.consumer = confluent_kafka.Consumer({**where, "group.id": "g", "enable.auto.commit": False})
        self.admin = AdminClient(where)

    def produce(self, count: int) -> None:
        """Records, to a topic that is made if there is none: a producer that has seen one go makes no other."""
        producer = confluent_kafka.Producer({**self._where, "linger.ms": 0})
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for _ in range(count):
            producer.produce("t", b"v", on_delivery=delivered)
        assert producer.flush(PATIENCE_S) == 0
        if failed:
            raise KafkaException(failed[0])

    def commit(self, offset: int) -> bool:
        """Whether the commit was acknowledged."""
        try:
            (one,) = self.consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        except KafkaException:
            return False
        return one.error is None

    def committed(self) -> int:
        """-1001 when nothing is."""
        (one,) = self.consumer.committed([TopicPartition("t", 0)], timeout=PATIENCE_S)
        return int(one.offset)

    def end(self) -> int:
        return int(self.consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=PATIENCE_S)[1])


@contextmanager
def client_of(server: MagnetarProcess) -> Iterator[Client]:
    client = Client(server)
    try:
        yield client
    finally:
        client.consumer.close()


def patiently_produce(client: Client, count: int) -> None:
    def tried() -> bool:
        try:
            client.produce(count)
        except KafkaException:
            return False
        return True

    eventually(tried, "records are taken")


def test_a_client_that_makes_the_topic_again_in_the_middle_of_its_deletion_keeps_what_it_commits() -> None:
    with MagnetarProcess() as server, client_of(server) as client, client_of(server) as other:
        for _ in range(8):
            patiently_produce(client, RECORDS)
            eventually(lambda: client.commit(POSITION), "the offset is committed")
            over = threading.Event()
            wrong: list[str] = []

            def use(over: threading.Event = over, wrong: list[str] = wrong) -> None:
                """Commits one number after the other; once the topic was seen to be gone, each must stay."""
                offset, is_new, found = 1000, False, 0
                while not (over.is_set() and is_new and found == offset):
                    offset += 1
                    if not other.commit(offset):
                        is_new = True
                        patiently_produce(other, 1)
                        continue
                    found = other.committed()
                    if found != offset and is_new:
                        wrong.append(f"{offset} was committed, and {found} is found")
                    is_new = is_new or found != offset

            user = threading.Thread(target=use)
            user.start()
            client.admin.delete_topics(["t"])["t"].result(PATIENCE_S)
            over.set()
            user.join(PATIENCE_S)
            assert not user.is_alive()
            assert wrong == []
            client.admin.delete_topics(["t"])["t"].result(PATIENCE_S)
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_a_topic_that_is_made_again_after_a_kill_has_no_position_of_the_one_before() -> None:
    seed = random.randrange(1 << 32)
    source = random.Random(seed)
    with MagnetarProcess() as server:
        seen = {"old": 0, "new": 0}
        for _ in range(8):
            with client_of(server) as client:
                patiently_produce(client, RECORDS)
                eventually(partial(client.commit, POSITION), "the offset is committed")
                deletion = client.admin.delete_topics(["t"])["t"]
                threading.Event().wait(source.uniform(0, 0.02))
                server.kill()
                server.start()
                deletion.exception(PATIENCE_S)
            with client_of(server) as client:
                patiently_produce(client, 1)
                is_old = client.end() > RECORDS
                seen["old" if is_old else "new"] += 1
                assert client.committed() == (POSITION if is_old else -1001), f"seed {seed}"
                client.admin.delete_topics(["t"])["t"].result(PATIENCE_S)
        assert "Traceback" not in server.log, f"seed {seed}, {seen}"


def test_a_subscription_of_a_topic_that_was_deleted_begins_from_nothing_when_both_are_made_again() -> None:
    with MagnetarProcess() as server:
        client = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for number in range(5):
            producer = client.create_producer("t")
            consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
            for index in range(3):
                producer.send(b"%d-%d" % (number, index))
            for index in range(3):
                message = consumer.receive(timeout_millis=20_000)
                assert message.data() == b"%d-%d" % (number, index)
                consumer.acknowledge(message)
            producer.close()
            consumer.close()
            admin.delete_topics(["t"])["t"].result(PATIENCE_S)
        client.close()
        assert "Traceback" not in server.log
