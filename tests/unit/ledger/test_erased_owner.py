"""A log that is erased forgets its owner, which has the log: the two are freed without a collection."""

import asyncio
import weakref

import pytest

from magnetar.base.errors import StorageError
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.testing.ledgers import MemoryLedgerStore

from .chain import Chain, run, settle


class Owner:
    def __init__(self, environment: LedgerEnvironment, heard: list[str]) -> None:
        self._heard = heard
        self.log = ManagedLedger(
            "owned", environment, LedgerLimits(), on_advance=self._on_advance, on_reset=self._on_reset
        )

    def _on_advance(self) -> None:
        self._heard.append("advance")

    def _on_reset(self) -> None:
        self._heard.append("reset")


@run
async def test_an_erased_log_forgets_its_owner() -> None:
    chain = Chain(MemoryLedgerStore())
    heard: list[str] = []
    owner = Owner(chain.environment, heard)
    chain.log = owner.log
    chain.append()
    await settle()
    assert heard == ["advance"]
    await owner.log.erase()
    known = weakref.ref(owner)
    del owner
    assert known() is None


@run
async def test_an_owner_hears_first_that_appends_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(MemoryLedgerStore(automatic=False))
    heard: list[str] = []
    owner = Owner(chain.environment, heard)
    chain.log = owner.log
    await chain.written(1)
    heard.clear()
    chain.append()
    (ledger,) = chain.store.ledgers.values()
    is_known = asyncio.Event()

    async def seal() -> None:
        if not is_known.is_set():
            monkeypatch.undo()
            chain.store.refuses_seals = True
            await is_known.wait()
        raise StorageError("no")

    monkeypatch.setattr(ledger, "seal", seal)
    chain.store.fail()
    await settle()
    erasing = asyncio.ensure_future(chain.log.erase())
    await chain.flush()
    await erasing
    assert (heard, list(chain.outcomes)) == ([], [0])
    is_known.set()
    await settle()
    assert heard == ["reset"]
    assert isinstance(chain.outcomes[1], StorageError)
    known = weakref.ref(owner)
    del owner
    assert known() is None
