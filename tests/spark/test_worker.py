"""Pipelines as a user has them: a server that starts its worker, and everything that can be killed.

One worker serves all tests; each has pipelines and topics of its own.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator

import pytest

from magnetar.client.errors import NotFound
from magnetar.testing.server import MagnetarProcess
from tests.spark.pipelines import PATIENCE_S, Processes, World, settings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with MagnetarProcess(settings=settings()) as server:
        made = World(server)
        yield made
        made.close()


def test_a_query_copies_what_is_there_and_what_comes_and_says_so(world: World) -> None:
    source, sink = world.topic(), world.topic()
    world.write(source, 1000)
    name = world.copy(source, sink)
    world.check_copied(source, sink)
    world.write(source, 500)
    world.check_copied(source, sink)
    world.until(lambda: world.backlog(name) == 0)
    world.until(lambda: world.get(name).status.get("rows") == 1500)
    found = world.get(name)
    assert (found.state, found.reason) == ("RUNNING", "")
    status = found.status
    assert status["lag"] == 0
    assert set(status["lags"]) == {f"{source}-0", f"{source}-1"}
    assert status["last_batch"]["duration_ms"] <= status["batch_ms"]["max"]
    assert [row.lag for row in world.client.all() if row.name == name] == [0]
    assert dict(world.client.stats(name)) == status


def test_one_that_is_stopped_holds_what_comes_and_goes_on_from_there(world: World) -> None:
    source, sink = world.topic(), world.topic()
    world.write(source, 100)
    name = world.copy(source, sink)
    world.check_copied(source, sink)
    world.until(lambda: world.backlog(name) == 0)
    world.client.stop(name)
    world.until_state(name, "STOPPED")
    world.write(source, 100)
    assert world.backlog(name) == 100
    assert len(world.committed(sink)) == 100
    world.client.start(name)
    world.check_copied(source, sink)


def test_one_whose_checkpoint_is_lost_goes_on_from_its_subscription(world: World) -> None:
    source, sink = world.topic(), world.topic()
    world.write(source, 100)
    name = world.copy(source, sink)
    world.check_copied(source, sink)
    world.until(lambda: world.backlog(name) == 0)
    world.client.stop(name)
    world.until_state(name, "STOPPED")
    shutil.rmtree(world.server.data_dir / "pipelines" / name / "checkpoint")
    world.write(source, 50)
    world.client.start(name)
    world.check_copied(source, sink)


def test_one_that_is_deleted_is_gone_with_what_was_kept_for_it(world: World) -> None:
    source, sink = world.topic(), world.topic()
    world.write(source, 10)
    name = world.copy(source, sink)
    world.check_copied(source, sink)
    folder = world.server.data_dir / "pipelines" / name
    owner = json.loads((folder / "pipeline.json").read_text())
    assert owner["name"] == name
    subscription = world.get(name).subscription
    world.client.delete(name)

    def is_gone() -> bool:
        try:
            world.get(name)
        except NotFound:
            return True
        return False

    world.until(is_gone)
    assert not folder.exists()
    with pytest.raises(NotFound, match=subscription):
        world.rest.positions(subscription)
    assert len(world.committed(sink)) == 10


@pytest.mark.parametrize(
    ("source", "sql", "said"),
    [
        ({"subscribe": "not-there"}, "select key, value from source", "not-there"),
        ({"subscribe": "x", "startingOffset": "earliest"}, "select key, value from source", "startingOffset"),
        ({"subscribe": "x"}, "select nothing from source", "`nothing` cannot be resolved"),
        ({"subscribe": "x"}, "select 1 as value", "sql must read from source"),
    ],
    ids=["topic", "option", "column", "nothing streams"],
)
def test_what_cannot_run_has_failed_with_the_reason(
    world: World, source: dict[str, str], sql: str, said: str, request: pytest.FixtureRequest
) -> None:
    topic = world.topic()
    options = {key: topic if value == "x" else value for key, value in source.items()}
    name = f"bad-{request.node.callspec.id.replace(' ', '-')}"
    world.client.create(name, "query", {"source": options, "sql": sql, "sink": {"topic": "never"}})
    assert said in world.until_state(name, "FAILED").reason


@pytest.mark.timeout(1800)  # five starts of Spark, one after the other
def test_nothing_is_lost_or_doubled_whatever_is_killed(world: World) -> None:
    source, sink = world.topic(), world.topic()
    world.write(source, 200)
    name = world.copy(source, sink, maxOffsetsPerTrigger=100)
    world.check_copied(source, sink)

    # A Python worker of a task: Spark tries the task again.
    world.write(source, 1000)
    world.until(lambda: world.kill("magnetar.pipelines.spark.daemon"))
    world.check_copied(source, sink)

    # The process that plans the source: the query ends, and is started again.
    world.write(source, 500)
    world.until(lambda: world.kill("python_streaming_source_runner"))
    world.check_copied(source, sink)

    # The JVM: the worker restarts itself, as the same process.
    pid = world.worker_pid
    world.write(source, 500)
    assert world.kill("bin/java")
    world.check_copied(source, sink)
    assert world.worker_pid == pid

    # The worker: the server starts another one.
    before = Processes.below(pid)
    world.write(source, 500)
    os.kill(pid, signal.SIGKILL)
    world.check_copied(source, sink)
    assert world.worker_pid != pid
    assert Processes.there(before) == {}

    # The server, and with it everything.
    world.write(source, 500)
    before = Processes.below(world.worker_pid)
    world.server.kill()
    deadline = time.monotonic() + 60
    while Processes.there(before) and time.monotonic() < deadline:
        time.sleep(0.25)
    assert Processes.there(before) == {}
    world.server.restart()
    world.write(source, 300)
    world.check_copied(source, sink)
    world.until(lambda: world.backlog(name) == 0, PATIENCE_S)
