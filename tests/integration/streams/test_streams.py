"""Kafka Streams with exactly_once_v2 beside kill -9 of itself and of the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_programs import JavaProgram
from tests.integration.java_tools import needs_java

from .running_sums import (
    ACCOUNTS,
    CHANGELOG,
    PARTITIONS,
    REPARTITION,
    SETTINGS,
    SOURCE,
    TIMEOUT_S,
    RunningSums,
)

pytestmark = needs_java


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings=SETTINGS) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


@pytest.mark.crash
def test_sums_are_exact_after_kills_and_a_restore_from_a_compacted_changelog(
    server: MagnetarProcess, tmp_path: Path
) -> None:
    with RunningSums(server, tmp_path, seed=1) as sums:
        application = sums.application
        sums.write(200)
        application.start()
        sums.wait_for(50)
        sums.write(200)
        server.kill()
        server.restart()
        sums.finish()
        assert sums.config_of(CHANGELOG)["cleanup.policy"] == "compact"
        assert sums.config_of(REPARTITION)["cleanup.policy"] == "delete"
        assert sums.config_of(REPARTITION)["retention.ms"] == "-1"
        left = sums.wait_until_compacted()
        sums.write(200)
        sums.wait_for(sums.written_count - 150)
        application.kill()
        server.kill()
        sums.forget_state()
        began = len(application.lines)
        server.restart()
        sums.write(50)
        application.start()
        sums.finish()
        restored = [
            int(application.says(f"restored {CHANGELOG}-{index} ", began).split()[-1])
            for index in range(PARTITIONS)
        ]
        # Above each commit there is a marker, which restoring counts as an offset and not as a record.
        assert len(ACCOUNTS) <= sum(restored) <= left + 200, application.tail


def test_the_streams_protocol_is_refused_by_name(server: MagnetarProcess, tmp_path: Path) -> None:
    arguments = [server.bootstrap, str(tmp_path / "state"), "streams"]
    with JavaProgram(SOURCE.stem, arguments, source=SOURCE, timeout_s=TIMEOUT_S) as application:
        application.start()
        assert application.ends() == 1
        application.says("STREAMS")
