"""Everything here holds for Python and for compiled code."""

import pytest

from magnetar.wire.columns import engine, load


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def engine_in_use(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything by Python, then everything by compiled code."""
    assert load()
    if request.param == "plain":
        monkeypatch.setattr(engine, "_use_compiled", lambda size: False)
    return str(request.param)
