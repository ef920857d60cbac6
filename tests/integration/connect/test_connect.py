"""Kafka Connect, distributed, beside kill -9 of its worker and of the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java

from .lines import SETTINGS, Lines

pytestmark = [*needs_java, pytest.mark.crash]


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings=SETTINGS) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


def test_a_file_becomes_another_and_its_topic_has_each_line_once(
    server: MagnetarProcess, tmp_path: Path
) -> None:
    with Lines(server, tmp_path, exactly_once=True) as lines:
        lines.worker.start()
        lines.connect()
        lines.write(300)
        lines.wait_for(50)
        lines.write(300)
        server.kill()
        server.restart()
        lines.wait_for(450)
        assert lines.policies() == {"compact"}
        lines.worker.kill()
        server.kill()
        lines.write(300)
        server.restart()
        lines.worker.start()
        lines.finish()
        lines.wait_until_running()
