"""Replicators as a user has them: a server with its worker, and real targets that take records, refuse them, or die."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.cli.main import run
from magnetar.client.errors import NotFound
from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from tests.integration.sasl.guarded import Guarded
from tests.kafka_peer import KafkaPeer
from tests.peers import is_here
from tests.spark.pipelines import settings
from tests.spark.replicated import (
    Replicated,
    copied,
    expected,
    full,
    make_topic,
    numbers_by_key,
    replicator,
)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def world() -> Iterator[Replicated]:
    with MagnetarProcess(settings=settings()) as server:
        made = Replicated(server)
        yield made
        made.close()


@pytest.fixture(scope="module")
def target() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as server:
        yield server


def test_six_steps_by_the_commands_of_pip_18(
    world: Replicated, target: MagnetarProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, to = world.topic(), make_topic(target.bootstrap)
    by_type = ("-r", "Kafka", full(topic))

    def magnetar(*words: str) -> str:
        assert run([*words, "--url", world.server.http_url]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    def stats() -> dict[str, Any]:
        found = json.loads(magnetar("persistent", "replicator-stats", full(topic), "-o", "json"))
        return dict(found["Kafka"]["us-west1"]) if found else {}

    def has_all(count: int) -> bool:
        return numbers_by_key(copied(target.bootstrap, to)) == expected(count)

    config = ("public/default", "--type", "Kafka", "--region-name", "us-west1")
    properties = json.dumps({"bootstrap.servers": target.bootstrap})
    mapping = json.dumps({topic: to})
    magnetar(
        *("namespaces", "add-repl-config", *config),
        *("--replication-properties", properties, "--topicNameMapping", mapping),
    )
    world.write(topic, 100)
    world.until(lambda: stats()["connectedConsumers"] > 0)
    world.until(lambda: has_all(100))
    world.until(lambda: stats()["msgBacklog"] == 0)

    magnetar("persistent", "update-replicator", "-a", "Stop", *by_type)
    world.until(lambda: stats()["connectedConsumers"] == 0)
    world.write(topic, 50)
    assert (stats()["state"], stats()["msgBacklog"]) == ("Stopped", 50)
    assert has_all(100)

    magnetar("persistent", "update-replicator", "-a", "Start", *by_type)
    world.until(lambda: stats()["connectedConsumers"] > 0)
    world.until(lambda: has_all(150))
    world.until(lambda: (stats()["state"], stats()["msgBacklog"]) == ("Started", 0))

    magnetar("persistent", "update-replicator", "-a", "Restart", *by_type)
    world.write(topic, 10)
    world.until(lambda: has_all(160))
    world.until(lambda: stats()["connectedConsumers"] > 0)

    subscription = stats()["subscription"]
    magnetar("persistent", "deregister-replicator", *by_type)
    world.until(lambda: not stats())
    with pytest.raises(NotFound):
        world.rest.positions(subscription)
    magnetar("namespaces", "remove-repl-config", *config)


def test_six_steps_from_add_to_deregister(world: Replicated, target: MagnetarProcess) -> None:
    topic, to = world.topic(), make_topic(target.bootstrap)
    world.write(topic, 100)

    def has_all(count: int) -> bool:
        return numbers_by_key(copied(target.bootstrap, to)) == expected(count)

    name = world.replicate("six-steps", topic, target.bootstrap, to)
    world.until(lambda: world.consumers(name, topic, 2) == 1)
    world.until(lambda: has_all(100))
    world.until(lambda: world.backlog(name) == 0)

    world.client.stop(name)
    world.until_state(name, "STOPPED")
    assert world.consumers(name, topic, 2) == 0
    world.write(topic, 50)
    assert world.backlog(name) == 50
    assert has_all(100)

    world.client.start(name)
    world.until(lambda: world.consumers(name, topic, 2) == 1)
    world.until(lambda: has_all(150))
    world.until(lambda: world.backlog(name) == 0)

    run = world.get(name).run
    world.client.restart(name)
    world.until(lambda: world.get(name).run > run and world.get(name).state == "RUNNING")
    world.until(lambda: world.consumers(name, topic, 2) == 1)
    world.write(topic, 10)
    world.until(lambda: has_all(160))

    subscription = world.get(name).subscription
    world.client.delete(name)

    def is_gone() -> bool:
        try:
            world.rest.positions(subscription)
        except NotFound:
            return True
        return False

    world.until(is_gone)
    assert len(copied(target.bootstrap, to)) == 160


def test_a_dead_target_holds_back_its_own_replicator_alone(
    world: Replicated, target: MagnetarProcess
) -> None:
    away = MagnetarProcess()  # nothing listens at its ports yet
    topic, to = world.topic(), make_topic(target.bootstrap)
    world.write(topic, 100)
    dead = world.replicate("dead", topic, away.bootstrap, to)
    alive = world.replicate("alive", topic, target.bootstrap, to)
    assert "no broker of Kafka's" in world.until_state(dead, "FAILED").reason
    for _ in range(2):
        world.write(topic, 100)
        world.until(lambda: world.backlog(alive) == 0)
        assert world.get(alive).state == "RUNNING"
    assert numbers_by_key(copied(target.bootstrap, to)) == expected(300)
    assert world.backlog(dead) == 300
    world.until(lambda: world.get(dead).status.get("failures", 0) >= 3)  # it is tried again and again
    assert world.get(alive).status.get("failures", 0) == 0
    with away:
        world.until(lambda: world.backlog(dead) == 0)
        assert {int(value or b"-1") for _, value, _ in copied(away.bootstrap, to)} == set(range(300))
        world.client.delete(dead, force=True)


def test_refused_credentials_stop_a_replicator_until_a_user_starts_it(
    world: Replicated, target: MagnetarProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    guarded = Guarded(Authority(tmp_path_factory.mktemp("authority")))
    topic = world.topic()
    world.write(topic, 10)
    with MagnetarProcess(settings=guarded.settings):
        bootstrap = f"localhost:{guarded.sasl}"
        properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        secrets = {"sasl.username": "alice", "sasl.password": "not-hers-Zk3qPv9"}
        name = world.replicate(
            "refused", topic, bootstrap, "copy", properties=properties, credentials=secrets
        )
        status = world.until_state(name, "FAILED")
        assert "Kafka refuses who writes to topic copy" in status.reason
        assert "not-hers-Zk3qPv9" not in repr(status)
        assert "retry_in_s" not in status.status
        # Another one is started and drained meanwhile: this one was not tried again.
        to = make_topic(target.bootstrap)
        other = world.replicate("not-refused", topic, target.bootstrap, to)
        world.until(lambda: world.backlog(other) == 0)
        assert world.get(name).status["failures"] == 1
        assert world.backlog(name) == 10


def test_records_that_the_target_never_takes_are_dead_letters(
    world: Replicated, target: MagnetarProcess
) -> None:
    topic, to = world.topic(1), make_topic(target.bootstrap, 1, max_message_bytes="2000")
    for content in (b"0", os.urandom(5_000), b"2"):
        world._producer.produce(topic, content, b"k", headers=[("own", b"\xff")])
    assert world._producer.flush(60) == 0
    name = world.replicate("poison", topic, target.bootstrap, to)
    world.until(lambda: world.backlog(name) == 0)
    assert {value for _, value, _ in copied(target.bootstrap, to)} == {b"0", b"2"}
    [(key, value, headers)] = copied(world.server.bootstrap, f"{topic}-{world.get(name).subscription}-DLQ")
    assert (key, len(value or b"")) == (b"k", 5_000)
    said = dict(headers)
    assert said["own"] == b"\xff"
    assert (said["magnetar.topic"], said["magnetar.offset"]) == (topic.encode(), b"1")
    assert b"large" in (said["magnetar.reason"] or b"").lower()


def test_a_second_server_gets_messages_by_pulsars_protocol(
    world: Replicated, target: MagnetarProcess
) -> None:
    topic, to = world.topic(2), make_topic(target.bootstrap, 2)
    world.write_with_headers(topic, 3000)
    config = {
        **replicator(topic, "", full(to)),
        "type": "Pulsar",
        "properties": {"serviceUrl": target.pulsar_url},
    }
    world.client.create("by-pulsar", "replicator", config)
    world.until(lambda: world.backlog("by-pulsar") == 0)
    world.write_with_headers(topic, 1000)
    world.until(lambda: world.backlog("by-pulsar") == 0)
    found = copied(target.bootstrap, to)
    assert numbers_by_key(found) == expected(4000)
    for _, value, headers in found:
        number = int(value or b"-1")
        said = dict(headers)
        assert said.pop("replicated_from") == b"magnetar"
        assert said == {"number": b"%d" % number, "odd": None if number % 2 else b"\xff"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not is_here("kafka"), reason="needs Java and the peer script of Kafka")
@pytest.mark.parametrize(
    "properties", [{}, {"transactional.id": "repl"}], ids=["idempotent", "transactional"]
)
def test_apache_kafka_has_all_in_order_whatever_is_killed(
    world: Replicated, tmp_path: Path, properties: dict[str, str]
) -> None:
    topic = world.topic(2)
    with KafkaPeer(tmp_path) as kafka:
        to = make_topic(kafka.bootstrap, 2)
        world.write_with_headers(topic, 2000)
        name = world.replicate(
            f"to-kafka-{len(properties)}",
            topic,
            kafka.bootstrap,
            to,
            properties=properties,
            records_per_batch=500,
        )
        world.until(lambda: world.get(name).status.get("batches", 0) >= 2)

        kafka.kill()
        world.write_with_headers(topic, 1000)
        world.until_state(name, "FAILED")
        kafka.start()
        world.until(lambda: world.backlog(name) == 0)

        world.write_with_headers(topic, 3000)
        pid = world.worker_pid
        os.kill(pid, signal.SIGKILL)
        world.until(lambda: world.client.worker() is not None and world.worker_pid != pid)
        world.until(lambda: world.backlog(name) == 0)

        world.write_with_headers(topic, 3000)
        world.server.kill()
        world.server.restart()
        world.write_with_headers(topic, 1000)
        world.until(lambda: world.backlog(name) == 0)

        found = copied(kafka.bootstrap, to)
        assert numbers_by_key(found) == expected(10_000)
        for _, value, headers in found:
            number = int(value or b"-1")
            assert headers == (("number", b"%d" % number), ("odd", None if number % 2 else b"\xff"))
        if properties:
            assert len(found) == 10_000  # for consumers of committed records each one is there once
        world.client.delete(name, force=True)
