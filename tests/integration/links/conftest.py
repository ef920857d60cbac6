"""What all tests of copies have: the server that has them."""

from collections.abc import Iterator

import pytest

from magnetar.testing.server import MagnetarProcess


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[MagnetarProcess]:
    """One for a module, with the module's `SETTINGS` if it has any."""
    with MagnetarProcess(settings=getattr(request.module, "SETTINGS", {})) as running:
        yield running
        assert "Traceback" not in running.log, running.log[-5000:]
