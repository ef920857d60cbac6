"""A few rounds without Spark with each test run; `python -m tests.crash.spark.sink_rounds` is the long run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.crash.server.killing import Broken
from tests.crash.spark.sink_rounds import SETTINGS, check_order, run_rounds

ROUNDS = 3


@pytest.mark.crash
def test_each_record_is_there_once_whatever_is_killed(tmp_path: Path) -> None:
    with MagnetarProcess(settings=SETTINGS) as server:
        line = run_rounds(server, ROUNDS, 20261121, tmp_path, "plain_query", print)
    assert line.startswith(f"{ROUNDS} rounds ")


def message(partition: int, value: bytes) -> Any:
    return SimpleNamespace(
        error=lambda: None, partition=lambda: partition, value=lambda: value, offset=lambda: 7
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([b"0 0", b"0 0"], "holds record 0 of 0, not 1"),
        ([b"0 0", b"0 2"], "holds record 2 of 0, not 1"),
        ([b"1 0"], "partition 0 offset 7 holds record 0 of 1"),
    ],
)
def test_what_is_there_twice_or_missing_or_astray_is_seen(values: list[bytes], says: str) -> None:
    seen = [0, 0]
    with pytest.raises(Broken, match=says):
        check_order(seen, [message(0, value) for value in values])
