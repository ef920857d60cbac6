"""A server that the tests of one module share."""

from collections.abc import Iterator

import pytest

from magnetar.testing.server import MagnetarProcess


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as one:
        yield one
        assert "Traceback" not in one.log
