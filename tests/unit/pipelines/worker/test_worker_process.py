"""The worker's process around a Spark that is not there."""

import json
import os
import queue
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.lockfile import DirectoryLock
from magnetar.client.login import Server
from magnetar.client.pipelines import Pipeline
from magnetar.pipelines.spark import session, setup
from magnetar.pipelines.spark.databases import Databases
from magnetar.pipelines.worker import process
from magnetar.pipelines.worker.process import WorkerOptions
from magnetar.pipelines.worker.queries import own_folder


class FakeLink:
    """Holds the lease and remembers what was said at the end."""

    ended: str | None = None

    def __init__(self, server: Server, folder: Path, token: Path, events: "queue.SimpleQueue[Any]") -> None:
        self.about: dict[str, Any] = {}

    def acquire(self, stop: threading.Event) -> bool:
        return True

    def start(self, snapshot: Any) -> None:
        assert snapshot() == {}

    def trouble(self) -> str:
        return ""

    def report_soon(self) -> None: ...

    def close(self, reports: Any, trouble: str) -> None:
        FakeLink.ended = trouble


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerOptions:
    monkeypatch.setattr(process, "Link", FakeLink)
    monkeypatch.setattr(process, "_listen_to_signals", lambda stop: None)
    monkeypatch.setattr(process, "_pause", lambda stop: None)
    monkeypatch.setattr(FakeLink, "ended", None)
    databases = Databases(tmp_path / "jdbc")
    return WorkerOptions(
        Server("http://here"), tmp_path / "pipelines", tmp_path / "token", "local[1]", "1g", databases
    )


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def ensure(_: Any) -> bool:
        raise error

    monkeypatch.setattr(setup, "ensure_spark", ensure)


def test_what_a_person_must_mend_is_reported_and_ends_it(
    options: WorkerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(monkeypatch, ConfigError("Spark needs Java 17"))
    assert process.run(options) == 1
    assert FakeLink.ended == "Spark needs Java 17"
    DirectoryLock(options.folder / "worker.lock").release()  # it has let go


def test_what_may_pass_makes_it_start_itself_anew(
    options: WorkerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Anew(BaseException):
        pass

    def execv(program: str, arguments: list[str]) -> None:
        assert Path(program).name.startswith("python")
        assert arguments[0] == program
        raise Anew

    fail_with(monkeypatch, RuntimeError("the JVM did not come up"))
    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(Anew):
        process.run(options)
    assert FakeLink.ended == ""  # pipelines have not failed: they wait


def test_a_folder_that_another_worker_uses_is_waited_for(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "worker.lock")
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    assert process._lock(tmp_path, stop) is None
    lock.release()
    got = process._lock(tmp_path, threading.Event())
    assert got is not None
    got.release()


class Ended(BaseException):
    """In place of the end of the process."""


def test_it_ends_when_its_input_does(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(process, "STOP_SPARK_S_MAX", 0.01)
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    stop = threading.Event()
    codes: list[int] = []
    thread = threading.Thread(target=process._end_with_input, args=(stop, codes.append))
    thread.start()
    os.write(writing, b"still there")
    assert not stop.wait(0.1)
    os.close(writing)
    assert stop.wait(20)
    thread.join(20)
    assert codes == [1]
    sys.stdin.close()


class TestScratch:
    def test_what_a_killed_jvm_left_is_removed(self) -> None:
        with tempfile.TemporaryDirectory(dir="/tmp") as short:
            scratch = Path(short) / ".spark"
            scratch.mkdir()
            (scratch / "blockmgr-1").mkdir()
            made = process._scratch_settings(Path(short))
            assert made["spark.local.dir"] == str(scratch)
            assert f'"-Djava.io.tmpdir={scratch}"' in made[session.JAVA_OPTIONS]
            assert session.SETTINGS[session.JAVA_OPTIONS] in made[session.JAVA_OPTIONS]
            assert list(scratch.iterdir()) == []

    def test_a_path_too_long_for_sockets_is_not_used(self, tmp_path: Path) -> None:
        long = tmp_path / ("x" * 60)
        assert process._scratch_settings(long) == {}
        assert not long.exists()


class TestFolder:
    def pipeline(self, id: str) -> Pipeline:
        return Pipeline("a", id, "query", {}, "RUNNING", 1, "pipeline-a")

    def test_a_pipeline_finds_its_own_folder_again(self, tmp_path: Path) -> None:
        folder = own_folder(tmp_path, self.pipeline("1"))
        (folder / "checkpoint").mkdir()
        assert own_folder(tmp_path, self.pipeline("1")) == folder
        assert (folder / "checkpoint").exists()

    def test_what_an_earlier_one_of_its_name_left_is_removed(self, tmp_path: Path) -> None:
        folder = own_folder(tmp_path, self.pipeline("1"))
        (folder / "checkpoint").mkdir()
        own_folder(tmp_path, self.pipeline("2"))
        assert not (folder / "checkpoint").exists()
        assert json.loads((folder / "pipeline.json").read_text())["id"] == "2"

    def test_something_else_of_its_name_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "thesis.txt").touch()
        with pytest.raises(ConfigError, match="not a pipeline's folder"):
            own_folder(tmp_path, self.pipeline("1"))
        assert (tmp_path / "a" / "thesis.txt").exists()

    @pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
    def test_one_whose_making_was_cut_off_is_made_again(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "pipeline.json").write_text(content)
        assert (
            json.loads((own_folder(tmp_path, self.pipeline("1")) / "pipeline.json").read_text())["id"] == "1"
        )
