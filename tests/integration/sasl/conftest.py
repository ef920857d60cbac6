"""One server for each module whose clients have to log in, with TLS and without."""

import itertools
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from tests.integration.quiet_log import assert_quiet

from .guarded import Guarded


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(Authority(tmp_path_factory.mktemp("authority")))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one


@pytest.fixture(autouse=True)
def clean_log(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    assert_quiet(request.getfixturevalue("guarded").server.log, "-secret")


@pytest.fixture
def closed_socket_pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A producer of kafka-python that does not begin leaves its sockets to the garbage collector, which finds them in
    any later test.
    """
    pairs: list[tuple[socket.socket, socket.socket]] = []
    make_pair = socket.socketpair

    def seen_pair(*args: Any) -> tuple[socket.socket, socket.socket]:
        pairs.append(make_pair(*args))
        return pairs[-1]

    monkeypatch.setattr(socket, "socketpair", seen_pair)
    yield
    assert pairs
    for end in itertools.chain(*pairs):
        end.close()
