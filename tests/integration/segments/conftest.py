from collections.abc import Iterator

import pytest

from magnetar.client.rest import RestClient
from magnetar.testing.server import MagnetarProcess


@pytest.fixture
def client(server: MagnetarProcess) -> Iterator[RestClient]:
    with RestClient(server.http_url) as made:
        yield made
