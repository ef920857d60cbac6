"""The probe of a disk, on the real one."""

import os
import time
from pathlib import Path

import pytest

from bench import disk
from bench.disk import Pace


def test_probe_measures_synced_writes_and_leaves_nothing(tmp_path: Path) -> None:
    pace = disk.probe(tmp_path, 0.05)
    assert 0 < pace.p50_ms <= pace.worst_ms
    assert 0 <= pace.stalled_share <= 1
    assert not list(tmp_path.iterdir())


def test_a_stall_counts_by_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    costs = [0.0005] * 40 + [0.25] + [0.0005] * 1_000

    def write(descriptor: int, block: object, position: int) -> int:
        clock[0] += costs.pop(0)
        return disk.PROBE_BYTES

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    pace = disk.probe(tmp_path, 1.0)
    assert pace.p50_ms == pytest.approx(0.5)
    assert pace.worst_ms == pytest.approx(250)
    assert pace.stalled_share == pytest.approx(0.25, abs=0.01)
    assert not pace.calm


def test_waiting_for_calm_ends_with_the_first_even_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Pace(0.3, 0.1, 900.0), Pace(0.3, 0.02, 80.0), Pace(0.4, 0.001, 12.0)]
    monkeypatch.setattr(disk, "rest", lambda folder: None)
    monkeypatch.setattr(disk, "probe", lambda folder, seconds: answers.pop(0))
    assert disk.calm(tmp_path) == Pace(0.4, 0.001, 12.0)
    assert not answers


def test_waiting_for_calm_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "rest", lambda folder: None)
    monkeypatch.setattr(disk, "CALM_SECONDS_MAX", 0.1)
    monkeypatch.setattr(disk, "PROBE_SECONDS", 0.01)
    monkeypatch.setattr(disk, "STALLED_SHARE_MAX", -1.0)
    assert not disk.calm(tmp_path).calm
