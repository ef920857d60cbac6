"""The supervisor over a Spark that does what a test says."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.client.pipelines import Pipeline
from magnetar.pipelines.worker.progress import Progress
from magnetar.pipelines.worker.queries import Running, SparkGone
from magnetar.pipelines.worker.supervisor import Supervisor


def pipeline(name: str = "a", *, run: int = 1, desired: str = "RUNNING", id: str = "1") -> Pipeline:
    return Pipeline(name, id, "query", {}, desired, run, f"pipeline-{name}")


class FakeSpark:
    """Starts and stops at once, and fails where told to."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fails: dict[str, BaseException] = {}  # starts
        self.ends: dict[str, BaseException] = {}  # running queries
        self.does_not_stop: BaseException | None = None
        self.alive = True
        self.names: dict[int, str] = {}

    def start(self, pipeline: Pipeline, ended: Callable[[], None]) -> Running:
        self.events.append(f"start {pipeline.name} {pipeline.run}")
        if pipeline.name in self.fails:
            raise self.fails[pipeline.name]
        nothing: Any = None
        running = Running(nothing, nothing, nothing, Progress(), pipeline.id)
        self.names[id(running)] = pipeline.name
        return running

    def ended(self, running: Running) -> BaseException | None:
        return self.ends.get(self.names[id(running)])

    def stop(self, running: Running) -> None:
        self.events.append(f"stop {self.names[id(running)]}")
        if self.does_not_stop is not None:
            raise self.does_not_stop

    def forget(self, name: str) -> None:
        self.events.append(f"forget {name}")

    def is_alive(self) -> bool:
        return self.alive


class World:
    def __init__(self) -> None:
        self.spark = FakeSpark()
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.now = 1000.0
        self.changes = 0
        self.supervisor = Supervisor(self.spark, self.queue, self.changed, lambda: self.now)

    def changed(self) -> None:
        self.changes += 1

    def order(self, *pipelines: Pipeline) -> None:
        """New orders, and everything that follows from them at once."""
        self.supervisor.handle(list(pipelines))
        self.supervisor.look()
        self.supervisor.act()

    def turn(self) -> None:
        """One helper's result, and what follows from it."""
        self.supervisor.handle(self.queue.get(timeout=5))
        self.supervisor.look()
        self.supervisor.act()

    def look(self) -> None:
        self.supervisor.look()
        self.supervisor.act()

    def report(self, name: str = "a") -> dict[str, Any]:
        return self.supervisor.reports()[name]

    def state(self, name: str = "a") -> str:
        state: str = self.report(name)["state"]
        return state


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.supervisor.close()


def test_nothing_is_done_or_said_before_the_first_orders(world: World) -> None:
    world.look()
    assert world.supervisor.reports() == {}


def test_what_is_wanted_runs_and_what_is_not_wanted_stops(world: World) -> None:
    world.order(pipeline())
    assert world.state() == "STARTING"
    world.turn()
    assert world.report() == {
        "id": "1",
        "run": 1,
        "state": "RUNNING",
        "reason": "",
        "status": {"rows": 0, "batches": 0, "rows_per_second": 0.0, "restarts": 0, "errors": 0},
    }
    world.order(pipeline(desired="STOPPED"))
    world.turn()
    assert world.state() == "STOPPED"
    assert world.spark.events == ["start a 1", "stop a"]
    assert world.changes >= 4


def test_a_restart_stops_and_starts(world: World) -> None:
    world.order(pipeline())
    world.turn()
    world.order(pipeline(run=2))
    world.turn()
    world.turn()
    assert (world.state(), world.report()["run"]) == ("RUNNING", 2)
    assert world.spark.events == ["start a 1", "stop a", "start a 2"]


def test_one_that_fails_is_tried_again_after_a_pause_and_says_why(world: World) -> None:
    world.spark.fails["a"] = OSError("no such host")
    world.order(pipeline())
    world.turn()
    assert (world.state(), world.report()["reason"]) == ("FAILED", "OSError: no such host")
    assert 0 < world.report()["status"]["retry_in_s"] <= 1
    world.look()
    assert len(world.spark.events) == 1
    world.now += 1
    world.spark.fails.clear()
    world.look()
    world.turn()
    assert world.state() == "RUNNING"
    world.order(pipeline(desired="STOPPED"))
    world.turn()
    world.now += 5
    world.look()
    status = world.report()["status"]
    assert (status["errors"], status["restarts"]) == (1, 1)
    assert status["last_error"] == "OSError: no such host"
    assert status["last_error_s_ago"] == 6.0


def test_one_that_cannot_be_helped_stays_failed_until_it_is_asked_for_again(world: World) -> None:
    world.spark.fails["a"] = ConfigError("there is no key x")
    world.order(pipeline())
    world.turn()
    world.now += 1e6
    world.look()
    assert (world.state(), world.report()["reason"]) == ("FAILED", "there is no key x")
    assert world.spark.events == ["start a 1"]
    world.spark.fails.clear()
    world.order(pipeline(run=2))
    world.turn()
    assert world.state() == "RUNNING"


def test_a_query_that_ends_is_found_and_the_others_go_on(world: World) -> None:
    world.order(pipeline("a"), pipeline("b"))
    world.turn()
    if world.state("b") != "RUNNING":
        world.turn()
    world.spark.ends["a"] = RuntimeError("the disk is full")
    world.look()
    assert (world.state("a"), world.report("a")["reason"]) == ("FAILED", "RuntimeError: the disk is full")
    assert world.state("b") == "RUNNING"


def test_a_failure_that_is_not_to_be_tried_again_is_forgotten(world: World) -> None:
    world.spark.fails["a"] = OSError("x")
    world.order(pipeline())
    world.turn()
    world.order(pipeline(desired="STOPPED"))
    assert (world.state(), world.report()["reason"]) == ("STOPPED", "")


def test_one_that_was_never_started_rests_as_the_run_that_is_not_wanted(world: World) -> None:
    world.order(pipeline(run=7, desired="STOPPED"))
    world.look()
    assert (world.state(), world.report()["run"]) == ("STOPPED", 7)
    assert world.spark.events == []


def test_a_deleted_one_is_stopped_forgotten_and_reported(world: World) -> None:
    world.order(pipeline())
    world.turn()
    world.order(pipeline(desired="DELETED"))
    world.turn()
    world.look()
    assert world.spark.events == ["start a 1", "stop a", "forget a"]
    assert world.state() == "STOPPED"
    world.order()
    world.look()
    assert world.supervisor.reports() == {}


def test_another_of_the_same_name_starts_when_the_first_has_stopped(world: World) -> None:
    world.order(pipeline())
    world.turn()
    world.order(pipeline(id="2"))
    world.turn()
    world.look()
    world.turn()
    assert (world.state(), world.report()["id"]) == ("RUNNING", "2")
    assert "forget a" not in world.spark.events  # the new one's start does that


def test_a_query_that_does_not_stop_needs_a_new_driver(world: World) -> None:
    world.order(pipeline())
    world.turn()
    world.spark.does_not_stop = TimeoutError("30 s")
    world.order(pipeline(desired="STOPPED"))
    with pytest.raises(SparkGone, match="a does not stop"):
        world.turn()


def test_a_jvm_that_is_gone_is_noticed_without_any_query(world: World) -> None:
    world.spark.alive = False
    with pytest.raises(SparkGone):
        world.look()


def test_it_runs_until_told_to_stop_or_until_the_lease_is_lost(world: World) -> None:
    stop = threading.Event()
    answers = iter(["", "", "another worker has taken over"])
    world.queue.put([pipeline()])
    assert world.supervisor.run(stop, lambda: next(answers)) == "another worker has taken over"
    assert world.state() in ("STARTING", "RUNNING")
    stop.set()
    assert world.supervisor.run(stop, lambda: "") == ""


@pytest.mark.parametrize("trouble", [None, RuntimeError("x")])
def test_the_end_stops_every_query_and_says_whether_all_did(trouble: BaseException | None) -> None:
    world = World()
    world.order(pipeline())
    world.turn()
    world.spark.does_not_stop = trouble
    assert world.supervisor.close() is (trouble is None)
    assert world.spark.events[-1] == "stop a"
