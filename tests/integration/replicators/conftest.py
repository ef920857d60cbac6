"""Services of AWS for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.aws_peer import Line, MotoServer


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture
def line(moto: MotoServer) -> Iterator[Line]:
    with Line(moto.url) as made:
        yield made
