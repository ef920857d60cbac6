"""How the end of a load generator is judged: by its result first, and by its status where it has none."""

from pathlib import Path

import pytest

from bench.client import Librdkafka
from bench.process import RunFailed

# What `rdkafka_performance` printed before it ended with 1: a waiting event of its statistics counted as a message.
ALL_DELIVERED = (
    "% 99999 messages produced (10000000 bytes), 100000 delivered (offset 25010, 0 failed) in 3008ms: 9"
)


def ends_with(folder: Path, status: int, line: str) -> Librdkafka:
    program = folder / "rdkafka_performance"
    program.write_text(f"#!/bin/sh\necho '{line}'\nexit {status}\n")
    program.chmod(0o755)
    return Librdkafka(program)


def test_a_producer_that_delivered_everything_has_succeeded_whatever_its_status(tmp_path: Path) -> None:
    for status in 0, 1:
        load = ends_with(tmp_path, status, ALL_DELIVERED).produce("none:1", "topic", size=100, count=100_000)
        assert load.transfer.messages == 100_000
        assert load.transfer.seconds == 3.008


def test_a_producer_that_lost_a_message_or_says_nothing_has_failed(tmp_path: Path) -> None:
    lost = ALL_DELIVERED.replace("100000 delivered", "99999 delivered").replace("0 failed", "1 failed")
    for line in lost, "no broker is there":
        with pytest.raises(RunFailed):
            ends_with(tmp_path, 1, line).produce("none:1", "topic", size=100, count=100_000)


def test_any_other_status_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="ended with 1"):
        ends_with(tmp_path, 1, "% 10 messages (1000 bytes) consumed in 5ms:").consume(
            "none:1", "topic", partitions=1, count=10
        )
    with pytest.raises(RunFailed, match="ended with 139"):
        ends_with(tmp_path, 139, ALL_DELIVERED).produce("none:1", "topic", size=100, count=100_000)
