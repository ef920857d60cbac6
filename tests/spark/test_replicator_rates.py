"""Rates of replicators as a user sets them: each holds back its own replicator of its own topic, and loses nothing."""

import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from magnetar.replicators.naming import PIPELINES
from magnetar.testing.server import MagnetarProcess
from tests.integration.http_answers import ask
from tests.spark.pipelines import settings
from tests.spark.replicated import Replicated, copied, expected, make_topic, numbers_by_key

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

PERIOD_S = 1_000_000  # of which no test sees a second one, nor a message's share of the first
COUNT = 100
REGIONS = ("east", "west")


@pytest.fixture(scope="module")
def world() -> Iterator[Replicated]:
    with MagnetarProcess(settings=settings()) as server:
        made = Replicated(server)
        yield made
        for region in REGIONS:
            call(made, "DELETE", f"namespaces/public/default/replicator/Kafka/{region}")
        made.until(lambda: not any(row.name.startswith(PIPELINES) for row in made.client.all()))
        made.close()


@pytest.fixture(scope="module")
def target() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as server:
        yield server


def call(world: Replicated, method: str, path: str, body: Any = None) -> Any:
    url = f"{world.server.http_url}/admin/v2/{path}"
    content = None if body is None else json.dumps(body).encode()
    status, answer = ask(url, {"Content-Type": "application/json"}, method=method, body=content)
    assert status in (200, 204), (path, answer)
    return json.loads(answer) if answer else None


def rate(world: Replicated, path: str, messages: int | None) -> None:
    """Set it, or remove it."""
    numbers = {"dispatchThrottlingRateInMsg": messages, "ratePeriodInSecond": PERIOD_S}
    path = f"{path}/replicatorDispatchRate"
    if messages is None:
        call(world, "DELETE", path)
    else:
        call(world, "POST", path, numbers)


def write_one_by_one(world: Replicated, topic: str, count: int) -> None:
    """Numbers with keys, each an entry of its own: an entry goes whole."""
    producer = ck.Producer({"bootstrap.servers": world.server.bootstrap, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"k%d" % (number % 10))
    assert producer.flush(60) == 0


def test_a_rate_holds_each_replicator_of_a_topic_and_no_other(
    world: Replicated, target: MagnetarProcess
) -> None:
    topic = world.topic(1)
    to = {region: make_topic(target.bootstrap, 1) for region in REGIONS}
    of_namespace, of_topic = "namespaces/public/default", f"persistent/public/default/{topic}"
    rate(world, of_namespace, 30)
    rate(world, of_topic, 10)
    for region in REGIONS:
        policies = {
            "replicationProperties": {"bootstrap.servers": target.bootstrap},
            "topicNameMapping": {topic: to[region]},
        }
        call(world, "POST", f"{of_namespace}/replicator/Kafka/{region}", {"replicatorPolicies": policies})
    write_one_by_one(world, topic, COUNT)

    def backlogs() -> set[int]:
        found = call(world, "GET", f"{of_topic}/replicator")["Kafka"]
        return {found[region]["msgBacklog"] for region in REGIONS}

    def at_target() -> set[int]:
        return {len(copied(target.bootstrap, to[region])) for region in REGIONS}

    other = 0

    def others_go_on() -> None:
        """The worker runs batches of all its pipelines, and so asks for the held ones again and again."""
        nonlocal other
        free, copy = world.topic(1), make_topic(target.bootstrap, 1)
        rate(world, f"persistent/public/default/{free}", 0)
        name = world.replicate(f"free-{other}", free, target.bootstrap, copy)
        other += 1
        for _ in range(3):
            world.write(free, 10)
            world.until(lambda: world.backlog(name) == 0)

    world.until(lambda: backlogs() == {COUNT - 10})
    others_go_on()
    assert (at_target(), backlogs()) == ({10}, {COUNT - 10})

    call(world, "POST", f"{of_topic}/replicator/Kafka/Restart?region={REGIONS[0]}")
    world.until(
        lambda: call(world, "GET", f"{of_topic}/replicator")["Kafka"][REGIONS[0]]["state"] == "Started"
    )
    others_go_on()
    assert (at_target(), backlogs()) == ({10}, {COUNT - 10})

    rate(world, of_topic, None)  # its namespace's holds now
    world.until(lambda: backlogs() == {COUNT - 40})
    others_go_on()
    assert (at_target(), backlogs()) == ({40}, {COUNT - 40})

    rate(world, of_namespace, None)
    world.until(lambda: backlogs() == {0})
    for region in REGIONS:
        found = copied(target.bootstrap, to[region])
        assert (len(found), numbers_by_key(found)) == (COUNT, expected(COUNT))
