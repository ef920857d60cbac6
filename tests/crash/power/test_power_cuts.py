"""A few power cuts of a whole server with each test run; `python -m tests.crash.power.cuts` is the long run."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.testing.server import ServerFailed
from tests.crash.power import trace
from tests.crash.power.cuts import Recording, Rounds, inspect, play
from tests.crash.power.disk import Fate
from tests.crash.server.killing import Broken
from tests.crash.server.lives import History

CUTS = 4
SEED = 20261122
PATIENCE_S = 10.0  # with what cannot be read


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = trace.build_recorder(tmp_path_factory.mktemp("recorder"))
    if built is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    return built


@pytest.fixture(scope="module")
def recording(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(library, tmp_path_factory.mktemp("recording"), random.Random(SEED))


@pytest.mark.crash
@pytest.mark.xdist_group("power")
def test_what_was_acknowledged_survives_power_cuts(
    library: Path, recording: Recording, tmp_path: Path
) -> None:
    Rounds(tmp_path, library, SEED).cut(recording, CUTS)


@pytest.mark.xdist_group("power")
def test_the_store_is_so_small_that_a_second_of_load_meets_everything(recording: Recording) -> None:
    assert {path.stat().st_size for path in recording.root.glob("journal/*.journal")} == {1 << 20}


# What is synced: path below the data folder, and whether by O_DSYNC; and when the power goes, at a quiet moment under
# load or behind a clean stop.
SYNCS: dict[str, tuple[Callable[[str, bool], bool], str]] = {
    "the journal's rounds": (lambda path, on_write: path.startswith("journal/") and on_write, "paused"),
    "the journal's folder": (lambda path, on_write: path == "journal", "paused"),
    "segments": (lambda path, on_write: path.startswith("segments/"), "stopped"),
    "the segments' folder": (lambda path, on_write: path == "segments", "stopped"),
    "the catalogue": (lambda path, on_write: path.startswith("catalogue"), "stopped"),
    "the data folder": (lambda path, on_write: path == ".", "paused"),
    "SQLite's WAL": (lambda path, on_write: path == "metadata.sqlite-wal", "paused"),
}


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.xdist_group("power")
@pytest.mark.parametrize("left_out", SYNCS)
def test_a_sync_that_is_left_out_loses_something(recording: Recording, tmp_path: Path, left_out: str) -> None:
    """Else the cuts would not notice when the server does not sync it any more."""
    without, when = SYNCS[left_out]
    disk = recording.disk(lambda path, on_write: not without(str(path.relative_to(recording.root)), on_write))
    history = History()
    for record in recording.records:
        event = play(disk, record)
        if event is None:
            continue
        if when in event:
            break
        history.note(event)
    assert any(without(*sync) for sync in disk.syncs), f"{left_out} was never synced"
    disk.write_to(tmp_path / "data", Fate.DROPPED, random.Random(SEED))
    with pytest.raises((Broken, ServerFailed)):
        inspect(tmp_path / "data", history, PATIENCE_S)


def test_a_record_that_a_killed_process_left_unfinished_is_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "records"
    trace.mark(log, {"number": 1})
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:-5])
    trace.mark(log, {"number": 2})
    assert [record.event()["number"] for record in trace.read(log)] == [1, 2]
    log.write_bytes(log.read_bytes() + whole[:-5])
    assert [record.event()["number"] for record in trace.read(log)] == [1, 2]
