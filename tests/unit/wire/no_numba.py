"""A process in which numba is not installed, for one test."""

import functools
import sys

import pytest

from magnetar.wire import compiling


def hide_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends, numba cannot be imported.

    The process asks only once whether it can: neither what other tests have found counts here, nor for them what this
    one finds.
    """
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(compiling, "_can_compile", functools.cache(compiling._can_compile.__wrapped__))
