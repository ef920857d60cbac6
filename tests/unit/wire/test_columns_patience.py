"""Who decodes while the compiled code is still being made."""

import pytest

from magnetar.wire.columns import engine


class Compiling:
    """Code that is being compiled until a test waits for it."""

    def __init__(self) -> None:
        self.finished = self
        self.is_loaded = False

    def begin(self) -> None:
        pass

    def is_set(self) -> bool:
        return self.is_loaded

    def wait(self) -> None:
        self.is_loaded = True


def test_a_little_is_python_s_and_what_comes_after_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_compiled", Compiling())
    monkeypatch.setattr(engine, "_patience", engine._Patience())
    mebibytes = [engine._use_compiled(1 << 20) for _ in range(10)]
    assert mebibytes == [False] * 8 + [True] * 2


def test_what_is_much_by_itself_waits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_compiled", Compiling())
    monkeypatch.setattr(engine, "_patience", engine._Patience())
    assert engine._use_compiled((8 << 20) + 1)
