import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.base.errors import MetadataError
from magnetar.broker.jobs import pipelines
from magnetar.broker.jobs.declarations import CONFIG_BYTES_MAX, NAME_CHARS_MAX
from magnetar.broker.jobs.errors import (
    InvalidPipeline,
    PipelineExists,
    PipelineNotFound,
    WorkerBusy,
    WorkerFenced,
)
from magnetar.broker.jobs.model import LEASE_S, Desired, PipelineKeys, State, WorkerSays
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.security.model import Principal
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

TOPIC = "persistent://public/default/t"
OWNER = Principal("User", "alice")
KEYS = PipelineKeys(b"key of the server", b"1" * 32)


class World:
    """A registry, with what it stands on; `reload` is what a restart of the server does."""

    def __init__(self) -> None:
        self.metadata = MemoryMetadataStore()
        self.clock = FakeClock()
        self.cursors = CursorStore(self.metadata)
        self.pipelines = self._made()

    def _made(self, keys: PipelineKeys = KEYS) -> Pipelines:
        return Pipelines(self.metadata, self.clock, self.cursors, keys=keys)

    async def reload(self, keys: PipelineKeys = KEYS) -> Pipelines:
        self.pipelines = self._made(keys)
        await self.pipelines.load()
        return self.pipelines

    async def worker(self, name: str = "w", pid: int = 1, place: str | None = None) -> int:
        return await self.pipelines.take_lease(name, "here", pid, place or f"here:/{name}")

    async def says(self, epoch: int, worker: str = "w", trouble: str = "", **states: Any) -> None:
        reports = {}
        for name, state in states.items():
            state, reason = state if isinstance(state, tuple) else (state, "")
            pipeline = self.pipelines.get(name)
            reports[name] = {"id": pipeline.id, "run": pipeline.run, "state": state, "reason": reason}
        await self.pipelines.reported(worker, epoch, reports, WorkerSays(trouble))

    def state(self, name: str) -> State:
        return self.pipelines.state(self.pipelines.get(name))[0]

    def reason(self, name: str) -> str:
        return self.pipelines.state(self.pipelines.get(name))[1]


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(World())

    asyncio.run(main())


class TestDeclaring:
    def test_what_is_declared_survives_a_restart(self) -> None:
        async def scenario(world: World) -> None:
            made = await world.pipelines.create("a", "table", {"topic": "t", "n": [1]}, OWNER)
            await world.pipelines.stop("a")
            again = (await world.reload()).get("a")
            assert (again.id, again.kind, again.config) == (made.id, "table", {"topic": "t", "n": [1]})
            assert again.desired is Desired.STOPPED

        run(scenario)

    @pytest.mark.parametrize(
        "name",
        [
            *("", ".", "..", "a..b", "-a", "a/b", "a b", "ä", "a\n", "%2e", "x" * (NAME_CHARS_MAX + 1)),
            *("worker.lock", "worker.log.1", "Worker.log"),  # files of the worker's, in the same folder
        ],
    )
    def test_a_name_that_cannot_be_a_folder_and_a_subscription_is_refused(self, name: str) -> None:
        async def scenario(world: World) -> None:
            with pytest.raises(InvalidPipeline, match="name"):
                await world.pipelines.create(name, "table", {}, OWNER)
            assert len(world.pipelines) == 0

        run(scenario)

    def test_the_longest_name_and_the_largest_config_are_taken_and_one_more_is_not(self) -> None:
        async def scenario(world: World) -> None:
            room = CONFIG_BYTES_MAX - len('{"x": ""}')
            await world.pipelines.create("x" * NAME_CHARS_MAX, "table", {"x": "y" * room}, OWNER)
            with pytest.raises(InvalidPipeline, match="too large"):
                await world.pipelines.create("b", "table", {"x": "y" * (room + 1)}, OWNER)

        run(scenario)

    def test_all_configs_together_have_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pipelines, "CONFIGS_BYTES_MAX", 100)

        def sized(size: int) -> dict[str, str]:
            return {"x": "y" * (size - len('{"x": ""}'))}

        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", sized(50), OWNER)
            await world.pipelines.create("b", "table", sized(40), OWNER)
            for again in (False, True):
                declared = await world.reload() if again else world.pipelines
                with pytest.raises(InvalidPipeline, match="together"):
                    await declared.create("c", "table", sized(11), OWNER)
                with pytest.raises(InvalidPipeline, match="together"):
                    await declared.redeclare("b", sized(51), OWNER)
            await declared.redeclare("b", sized(20), OWNER)
            await declared.create("c", "table", sized(30), OWNER)
            await declared.delete("a")
            await declared.create("d", "table", sized(50), OWNER)

        run(scenario)

    def test_what_others_have_declared_is_not_measured_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Eight megabytes of numbers, at each declaration of any client, held the loop for a third of a second."""
        measured: list[str] = []

        def dumps(content: Any) -> str:
            measured.append(json.dumps(content))
            return measured[-1]

        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {"x": "of another"}, OWNER)
            await world.pipelines.create("b", "table", {}, OWNER)
            monkeypatch.setattr(pipelines, "json", SimpleNamespace(dumps=dumps, loads=json.loads))
            await world.pipelines.create("c", "table", {"x": 1}, OWNER)
            await world.pipelines.redeclare("b", {"x": 2}, OWNER)
            assert not any("of another" in one for one in measured)

        run(scenario)

    def test_two_pipelines_have_two_names(self) -> None:
        async def scenario(world: World) -> None:
            results = await asyncio.gather(
                *(world.pipelines.create("a", "table", {}, OWNER) for _ in range(2)), return_exceptions=True
            )
            assert sum(isinstance(one, PipelineExists) for one in results) == 1

        run(scenario)

    def test_what_cannot_be_stored_is_not_there(self) -> None:
        async def scenario(world: World) -> None:
            world.metadata.fail_next = 1
            with pytest.raises(MetadataError):
                await world.pipelines.create("a", "table", {}, OWNER)
            with pytest.raises(PipelineNotFound):
                world.pipelines.get("a")

        run(scenario)

    def test_runs_are_counted_by_what_asks_for_one(self) -> None:
        async def scenario(world: World) -> None:
            pipelines = world.pipelines
            assert (await pipelines.create("a", "table", {}, OWNER)).run == 1
            assert (await pipelines.start("a")).run == 1  # it is wanted already
            assert (await pipelines.restart("a")).run == 2
            assert (await pipelines.stop("a")).run == 2
            assert (await pipelines.stop("a")).run == 2
            assert (await pipelines.start("a")).run == 3

        run(scenario)


class TestDeleting:
    async def hold(self, world: World) -> None:
        await world.cursors.commit({CursorKey("pipeline-a", TOPIC, 0): Cursor(mark_delete=7)})

    def test_without_a_worker_it_is_gone_at_once_with_its_subscription(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            await self.hold(world)
            assert await world.pipelines.delete("a")
            assert "pipeline-a" not in world.cursors
            assert len(await world.reload()) == 0

        run(scenario)

    def test_with_a_worker_it_is_gone_when_that_has_stopped_it(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            await self.hold(world)
            epoch = await world.worker()
            assert not await world.pipelines.delete("a")
            assert world.state("a") is State.DELETING
            with pytest.raises(PipelineNotFound, match="being deleted"):
                await world.pipelines.start("a")
            with pytest.raises(PipelineExists, match="being deleted"):
                await world.pipelines.create("a", "table", {}, OWNER)
            await world.says(epoch, a="RUNNING")
            assert "pipeline-a" in world.cursors
            await world.says(epoch, a="STOPPED")
            assert len(world.pipelines) == 0
            assert "pipeline-a" not in world.cursors

        run(scenario)

    def test_a_report_about_an_earlier_one_of_the_same_name_does_not_count(self) -> None:
        async def scenario(world: World) -> None:
            old = await world.pipelines.create("a", "table", {}, OWNER)
            await world.pipelines.delete("a")
            await world.pipelines.create("a", "table", {}, OWNER)
            epoch = await world.worker()
            await world.pipelines.delete("a")
            report = {"id": old.id, "run": 1, "state": "STOPPED"}
            await world.pipelines.reported("w", epoch, {"a": report, "gone": report}, WorkerSays())
            assert len(world.pipelines) == 1

        run(scenario)

    def test_force_does_not_wait(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            await world.worker()
            assert await world.pipelines.delete("a", force=True)
            assert len(world.pipelines) == 0

        run(scenario)


class TestStates:
    def test_a_life(self) -> None:
        async def scenario(world: World) -> None:
            pipelines = world.pipelines
            await pipelines.create("a", "table", {}, OWNER)
            assert world.state("a") is State.CREATED
            assert "magnetar worker" in world.reason("a")
            epoch = await world.worker()
            assert world.state("a") is State.STARTING
            await world.says(epoch, a="RUNNING")
            assert world.state("a") is State.RUNNING
            await world.says(epoch, a=("FAILED", "no such topic"))
            assert (world.state("a"), world.reason("a")) == (State.FAILED, "no such topic")
            await pipelines.start("a")  # tried again
            assert world.state("a") is State.STARTING
            await world.says(epoch, a="RUNNING")
            await pipelines.stop("a")
            assert world.state("a") is State.RUNNING  # until the worker says otherwise
            await world.says(epoch, a="STOPPED")
            assert world.state("a") is State.STOPPED

        run(scenario)

    @pytest.mark.parametrize(
        ("about", "said"),
        [
            ({}, ""),
            ({"state": "runs", "spark": "4.3.0"}, ""),
            ({"state": "is starting Spark"}, "the worker is starting Spark"),
            (
                {"state": "is installing Spark", "progress": "downloading pyspark (434 MB)"},
                "the worker is installing Spark: downloading pyspark (434 MB)",
            ),
        ],
    )
    def test_what_a_start_waits_for_is_said(self, about: dict[str, str], said: str) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            await world.pipelines.create("b", "table", {}, OWNER, start=False)
            epoch = await world.worker()
            await world.pipelines.reported("w", epoch, {}, WorkerSays(about=about))
            assert (world.state("a"), world.reason("a")) == (State.STARTING, said)
            assert (world.state("b"), world.reason("b")) == (State.STOPPED, "")

        run(scenario)

    def test_a_worker_that_is_gone_is_said(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            epoch = await world.worker()
            await world.says(epoch, a="RUNNING")
            world.clock.advance(LEASE_S)
            assert world.state("a") is State.STARTING
            assert "no worker" in world.reason("a")

        run(scenario)

    def test_a_worker_that_cannot_run_anything_fails_all_that_is_wanted(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            await world.pipelines.create("b", "table", {}, OWNER, start=False)
            await world.says(await world.worker(), trouble="no Java")
            assert (world.state("a"), world.reason("a")) == (State.FAILED, "no Java")
            assert world.state("b") is State.STOPPED
            world.clock.advance(LEASE_S)
            await world.worker("other", 2)
            assert world.state("a") is State.STARTING

        run(scenario)

    @pytest.mark.parametrize(
        "report",
        [
            [],
            {},
            {"state": "CREATED", "run": 1},
            {"state": "RUNNING", "run": "1"},
            {"state": "RUNNING", "run": 1, "status": []},
            {"state": "RUNNING", "run": 1, "status": {"x": "y" * (64 << 10)}},
        ],
    )
    def test_a_report_without_the_form_of_one_is_refused_and_changes_nothing(self, report: Any) -> None:
        async def scenario(world: World) -> None:
            made = await world.pipelines.create("a", "table", {}, OWNER)
            epoch = await world.worker()
            if isinstance(report, dict):
                report["id"] = made.id
            with pytest.raises(InvalidPipeline):
                await world.pipelines.reported("w", epoch, {"a": report}, WorkerSays("x"))
            assert world.state("a") is State.STARTING

        run(scenario)


class TestOrders:
    def test_they_come_at_once_when_they_are_news_and_else_with_the_next_change(self) -> None:
        async def scenario(world: World) -> None:
            pipelines = world.pipelines
            await pipelines.create("a", "table", {}, OWNER)
            epoch = await world.worker()
            found = await pipelines.orders("w", epoch, "", 5)
            assert found is not None
            version, wanted = found
            assert [one.name for one in wanted] == ["a"]
            waiting = asyncio.create_task(pipelines.orders("w", epoch, version, 5))
            await asyncio.sleep(0)
            assert not waiting.done()
            await pipelines.stop("a")
            found = await waiting
            assert found is not None
            assert found[1][0].desired is Desired.STOPPED

        run(scenario)

    @pytest.mark.parametrize("how", ["time", "stop"])
    def test_no_request_waits_longer_than_asked_or_than_the_server_lives(self, how: str) -> None:
        async def scenario(world: World) -> None:
            epoch = await world.worker()
            version = world.pipelines.version
            waiting = asyncio.create_task(world.pipelines.orders("w", epoch, version, 5))
            await asyncio.sleep(0)
            if how == "time":
                world.clock.advance(5)
            else:
                world.pipelines.release_waiting()
            assert await waiting is None

        run(scenario)

    def test_versions_of_another_start_of_the_server_are_news(self) -> None:
        async def scenario(world: World) -> None:
            epoch = await world.worker()
            version = world.pipelines.version
            await world.reload()
            assert await world.pipelines.orders("w", epoch, version, 5) is not None

        run(scenario)


class TestLease:
    def test_one_worker_at_a_time(self) -> None:
        async def scenario(world: World) -> None:
            first = await world.worker("w", 1)
            world.clock.advance(LEASE_S - 1)
            assert await world.worker("w", 1) == first  # renewed
            world.clock.advance(LEASE_S - 1)
            with pytest.raises(WorkerBusy, match="pid 1"):
                await world.worker("v", 2)
            world.clock.advance(1)
            second = await world.worker("v", 2)
            assert second > first
            for say in (
                world.pipelines.orders("w", first, "", 0),
                world.pipelines.reported("w", first, {}, WorkerSays()),
            ):
                with pytest.raises(WorkerFenced):
                    await say

        run(scenario)

    def test_a_worker_that_waits_for_orders_when_the_lease_is_lost_is_fenced(self) -> None:
        async def scenario(world: World) -> None:
            first = await world.worker("w", 1)
            waiting = asyncio.create_task(world.pipelines.orders("w", first, world.pipelines.version, 5))
            await asyncio.sleep(0)
            await world.worker("v", 2, place="here:/w")
            world.clock.advance(5)
            with pytest.raises(WorkerFenced):
                await waiting

        run(scenario)

    def test_a_lease_that_no_other_worker_took_is_the_workers_again(self) -> None:
        async def scenario(world: World) -> None:
            epoch = await world.worker()
            world.clock.advance(10 * LEASE_S)
            await world.says(epoch)
            with pytest.raises(WorkerBusy):
                await world.worker("v", 2)

        run(scenario)

    def test_a_server_that_starts_again_gives_the_holder_time_to_come_back(self) -> None:
        async def scenario(world: World) -> None:
            epoch = await world.worker()
            world.clock.advance(10 * LEASE_S)
            await world.reload()
            with pytest.raises(WorkerBusy):
                await world.worker("v", 2)
            await world.says(epoch)
            world.clock.advance(LEASE_S)
            assert await world.worker("v", 2) == epoch + 1

        run(scenario)

    def test_the_next_worker_does_not_wait_for_one_that_said_it_ended(self) -> None:
        async def scenario(world: World) -> None:
            epoch = await world.worker("w", 1)
            world.pipelines.lease.end("w", epoch)
            assert await world.worker("v", 2) == epoch + 1
            with pytest.raises(WorkerFenced):
                world.pipelines.lease.end("w", epoch)

        run(scenario)

    def test_a_worker_that_holds_the_lock_of_the_holders_directory_need_not_wait(self) -> None:
        async def scenario(world: World) -> None:
            epoch = await world.worker("w", 1, place="here:/data")
            await world.reload()
            with pytest.raises(WorkerBusy):
                await world.worker("v", 2, place="there:/data")
            assert await world.worker("v", 2, place="here:/data") == epoch + 1

        run(scenario)

    def test_a_lease_that_cannot_be_stored_is_not_given(self) -> None:
        async def scenario(world: World) -> None:
            world.metadata.fail_next = 1
            with pytest.raises(MetadataError):
                await world.worker()
            assert world.pipelines.lease.holder is None
            assert await world.worker("v", 2) == 1

        run(scenario)
