"""Everything here holds for Python and for compiled code."""

import os
from pathlib import Path

import pytest

from magnetar.wire.columns import engine, load

COMPILING_S = (
    600  # the first test of a fresh checkout waits for the compiler, on a machine that does other things too
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):  # of all tests there are: parents of a path take long to make
            item.add_marker(pytest.mark.timeout(COMPILING_S))


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def engine_in_use(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything by Python, then everything by compiled code."""
    assert load()
    if request.param == "plain":
        monkeypatch.setattr(engine, "_use_compiled", lambda size: False)
    return str(request.param)
