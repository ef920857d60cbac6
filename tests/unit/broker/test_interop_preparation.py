"""The code that converts is loaded before it is needed, and only where it can be."""

import pytest

from magnetar.broker.interop.interop import Interop
from magnetar.broker.log.opening import Opener
from magnetar.ledger.entry import EntryKind
from magnetar.wire.convert import engine


@pytest.mark.parametrize("first", EntryKind)
def test_what_converts_is_loaded_once_both_protocols_have_clients(
    first: EntryKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[None] = []
    monkeypatch.setattr(engine, "prepare", lambda: prepared.append(None))
    (other,) = set(EntryKind) - {first}
    interop = Interop(1 << 20, 5 << 20, Opener())
    try:
        interop.client_connected(first)
        interop.client_connected(first)
        assert prepared == []
        interop.client_connected(other)
        assert len(prepared) == 1
        interop.client_connected(first)
        interop.client_connected(other)
        assert len(prepared) == 1
    finally:
        interop.close()
