"""A test leaves its module's server as it found it, and no test may make it log a traceback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess

from .disks import small_disk
from .wire import Wire


@pytest.fixture(autouse=True)
def clean_log(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        running: MagnetarProcess = request.getfixturevalue("server")
        assert "Traceback" not in running.log, running.log[-5000:]


@pytest.fixture
def wire(server: MagnetarProcess) -> Iterator[Wire]:
    with Wire(server.ports[0]) as connection:
        yield connection


@pytest.fixture
def topic(topic_name: str, wire: Wire) -> str:
    """One that is there."""
    wire.create(topic_name)
    return topic_name


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system; ext4 takes direct writes, tmpfs may not."""
    with small_disk(request.param, tmp_path) as place:
        yield place
