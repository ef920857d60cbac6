"""A worker that belongs to no server: it outlives the one it works for, and another one waits behind it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.spark.pipelines import Processes, World, settings

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


class Worker:
    """`magnetar worker` with a folder of its own."""

    def __init__(self, server: MagnetarProcess, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "log"
        command = [sys.executable, "-m", "magnetar", "worker", "--master", "local[2]"]
        command += ["--admin-url", server.http_url, "--data-dir", str(folder)]
        command += ["--token-file", str(server.data_dir / "worker-token")]
        with self._log.open("wb") as file:
            self.process = subprocess.Popen(command, stderr=file, stdout=file, start_new_session=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def world() -> Iterator[World]:
    with MagnetarProcess(settings=settings(**{"pipelines.worker.enabled": "false"})) as server:
        made = World(server)
        yield made
        made.close()


def test_it_goes_on_when_its_server_is_back_and_gives_way_when_it_ends(world: World, tmp_path: Path) -> None:
    source, sink = world.topic(), world.topic()
    world.write(source, 200)
    name = world.copy(source, sink)
    assert "no worker runs" in world.get(name).reason
    first = Worker(world.server, tmp_path / "first")
    second = None
    try:
        world.until(world.client.worker, 60)
        second = Worker(world.server, tmp_path / "second")
        world.check_copied(source, sink)
        assert world.worker_pid == first.pid
        assert "another worker runs the pipelines" in second.log

        before = Processes.below(first.pid)
        (jvm,) = [pid for pid, args in before.items() if "bin/java" in args]
        world.server.kill()
        world.server.restart()
        world.write(source, 300)
        world.check_copied(source, sink)
        assert world.worker_pid == first.pid
        assert jvm in Processes.there(before)

        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(60) == 0
        assert Processes.there(before) == {}
        world.until(lambda: (world.client.worker() or {}).get("pid") == second.pid, 60)
        assert len(world.committed(sink)) == 500
    finally:
        for worker in (first, second):
            if worker is not None:
                worker.kill()
