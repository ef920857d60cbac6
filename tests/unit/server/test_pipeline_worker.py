"""The server's own worker as a process: when it comes, when it comes back, what is left of it."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from magnetar.base.clock import SystemClock
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.security.model import ANONYMOUS as OWNER
from magnetar.ledger.cursor_store import CursorStore
from magnetar.server import pipeline_worker
from magnetar.server.pipeline_worker import LOG_NAME, PipelineWorker
from magnetar.testing.metadata import MemoryMetadataStore

# Says who it is, has a child of its own that would live on, and ends with its input unless it is to be stubborn.
CHILD = """
import os, signal, subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), child.pid, flush=True)
sys.stdin.read()
"""


class World:
    def __init__(self, folder: Path, how: str = "") -> None:
        metadata = MemoryMetadataStore()
        clock = SystemClock()
        self.folder = folder / "pipelines"
        self.pipelines = Pipelines(metadata, clock, CursorStore(metadata))
        command = [sys.executable, "-c", CHILD, how]
        self.worker = PipelineWorker(self.pipelines, clock, command, self.folder)

    @property
    def started(self) -> list[tuple[int, int]]:
        """The children that said who they are, in whole lines: (process, its own child)."""
        with suppress(FileNotFoundError):
            lines = (self.folder / LOG_NAME).read_text().split("\n")[:-1]
            return [(int(first), int(second)) for first, second in map(str.split, lines) if first != "old"]
        return []

    async def until(self, what: Callable[[], object]) -> None:
        give_up_at = time.monotonic() + 30
        while not what():
            assert time.monotonic() < give_up_at
            await asyncio.sleep(0.02)

    async def until_started(self, count: int) -> tuple[int, int]:
        await self.until(lambda: len(self.started) == count)
        return self.started[-1]


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # its parent may take its time to reap it


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_worker, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(pipeline_worker, "_PAUSE_S", 0.02)
    monkeypatch.setattr(pipeline_worker, "STOP_S_MAX", 0.5)


def run(world: World, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world.worker.start()
        try:
            await scenario(world)
        finally:
            await world.worker.stop()
        for pid in (pid for pair in world.started for pid in pair):
            await world.until(lambda pid=pid: not is_there(pid))  # type: ignore[misc]

    asyncio.run(main())


def test_other_accounts_cannot_read_the_workers_log(tmp_path: Path) -> None:
    """Libraries put their options into what they say of a failure."""

    async def scenario() -> None:
        world = World(tmp_path)
        world.folder.mkdir(mode=0o755)  # by an earlier version
        world.worker.start()
        await world.pipelines.create("a", "query", {}, OWNER)
        await world.until_started(1)
        assert world.folder.stat().st_mode & 0o007 == 0
        await world.worker.stop()

    asyncio.run(scenario())


def test_the_first_pipeline_brings_it(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await asyncio.sleep(0.2)
        assert world.started == []
        await world.pipelines.create("a", "table", {}, OWNER)
        pid, _ = await world.until_started(1)
        assert os.getpgid(pid) == pid

    run(World(tmp_path), scenario)


def test_pipelines_that_are_there_at_the_start_bring_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    asyncio.run(world.pipelines.create("a", "table", {}, OWNER))

    async def scenario(world: World) -> None:
        await world.until_started(1)

    run(world, scenario)


def test_one_that_is_killed_comes_back_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.pipelines.create("a", "table", {}, OWNER)
        pid, child = await world.until_started(1)
        os.kill(pid, signal.SIGKILL)
        await world.until_started(2)
        assert not is_there(child)

    run(World(tmp_path), scenario)


def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.pipelines.create("a", "table", {}, OWNER)
        await world.until_started(1)

    run(World(tmp_path, "stubborn"), scenario)


def test_without_pipelines_it_goes_and_with_the_next_one_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_worker, "IDLE_S", 0.1)

    async def scenario(world: World) -> None:
        await world.pipelines.create("a", "table", {}, OWNER)
        pid, _ = await world.until_started(1)
        await world.pipelines.delete("a")
        await world.until(lambda: not is_there(pid))
        await world.pipelines.create("b", "table", {}, OWNER)
        await world.until_started(2)

    run(World(tmp_path), scenario)


def test_while_a_worker_from_elsewhere_runs_none_is_started(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.pipelines.take_lease("w", "there", 1, "there:/data")
        await world.pipelines.create("a", "table", {}, OWNER)
        await asyncio.sleep(0.2)
        assert world.started == []
        world.pipelines.lease.end("w", 1)
        await world.until_started(1)

    run(World(tmp_path), scenario)


def test_an_earlier_child_of_the_same_folder_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.folder.mkdir()
        place = f"{socket.gethostname()}:{world.folder.resolve()}"
        await world.pipelines.take_lease("w", "here", 1, place)
        await world.pipelines.create("a", "table", {}, OWNER)
        await world.until_started(1)

    run(World(tmp_path), scenario)


def test_a_long_log_is_cut_while_the_worker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_worker, "LOG_BYTES_MAX", 100)

    async def scenario(world: World) -> None:
        await world.pipelines.create("a", "table", {}, OWNER)
        await world.until_started(1)
        with (world.folder / LOG_NAME).open("a") as log:
            log.write("old line\n" * 30)
        await world.until(lambda: (world.folder / LOG_NAME).stat().st_size == 0)
        assert (world.folder / f"{LOG_NAME}.1").read_text() == ("old line\n" * 30)[-100:]

    run(World(tmp_path), scenario)
