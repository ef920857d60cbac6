"""Tombstones, which name ledgers to delete: a ledger is never deleted in another way.

The metadata transaction that takes ledgers out of a chain writes one empty path for each of them,
`/deleted-ledgers/<ledger id, 16 hex digits>`.  Then the store deletes the ledger, and when that is durable, the path
is removed.  A crash in between leaves the path, and the next start continues from there; deleting twice is harmless.

A ledger that compaction fills is in no chain until it is complete.  It is created with a tombstone, and the
transaction that puts it into a chain removes that tombstone.

What must stay true: a ledger is deleted only after a commit that names it has been acknowledged, and its tombstone is
removed only after its deletion is durable.  A ledger that neither a chain nor a tombstone names is kept, because it
may be all that is left of a topic's data.  The record of a deleted topic names the topic's ledgers by its id
(`broker/topics/deleted.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from typing import Final

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.errors import BrokerError, StorageError
from magnetar.metadata.store import Delete, MetadataStore, Put
from magnetar.storage.store import LedgerId, LedgerStore, LedgerWriter

log = logging.getLogger(__name__)

ROOT: Final = "/deleted-ledgers/"
_AT_ONCE: Final = 256  # deletions that share the journal's rounds, and one commit for their tombstones
_RETRY_S: Final = 10.0


class Tombstones:
    """See the module's text.  All methods run on the event loop."""

    def __init__(
        self,
        store: LedgerStore,
        metadata: MetadataStore,
        clock: Clock,
        spawn: Callable[[str, Coroutine[None, None, None]], object],
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._spawn = spawn
        self._due: dict[LedgerId, None] = {}  # ledgers with a durable tombstone, in the order of these
        self._is_working = False
        self._retry: TimerHandle | None = None
        self._closed = False

    def __contains__(self, ledger_id: LedgerId) -> bool:
        return ledger_id in self._due

    @staticmethod
    def of(ledgers: Iterable[LedgerId]) -> list[Put | Delete]:
        """The operations for the transaction that gives `ledgers` up; the caller calls `carry_out` when that is
        durable.
        """
        return [Put(_path(ledger_id), b"") for ledger_id in ledgers]

    @staticmethod
    def taken_back(ledgers: Iterable[LedgerId]) -> list[Put | Delete]:
        """The operations for the transaction that puts ledgers of `make` into a chain."""
        return [Delete(_path(ledger_id)) for ledger_id in ledgers]

    async def make(self) -> LedgerWriter:
        """A new ledger that has its tombstone already: the next start deletes it, unless a chain has taken it
        (`taken_back`).

        Raises:
            StorageError, MetadataError: no ledger was created, or an empty one, which the next start deletes.
        """
        writer = await self._store.create()
        await self._metadata.commit(self.of([writer.stat.ledger_id]))
        return writer

    async def unmake(self, writer: LedgerWriter) -> None:
        """Delete a ledger of `make` that no chain has taken, in the background."""
        with suppress(StorageError):
            await writer.seal()
        self.carry_out([writer.stat.ledger_id])

    def carry_out(self, ledgers: Iterable[LedgerId]) -> None:
        """Delete ledgers whose tombstones are durable, in the background; a deletion that fails is tried again."""
        self._due.update(dict.fromkeys(ledgers))
        self._start()

    async def give_up(self, ledgers: Iterable[LedgerId]) -> None:
        """Write tombstones for ledgers that no chain has, and delete them.

        Raises:
            MetadataError: they stay.
        """
        named = list(ledgers)
        for begin in range(0, len(named), _AT_ONCE):
            some = named[begin : begin + _AT_ONCE]
            await self._metadata.commit(self.of(some))
            self.carry_out(some)

    async def load(self) -> list[LedgerId]:
        """The ledgers with tombstones of the last process, which may not be deleted yet; the caller calls
        `carry_out`.
        """
        return [LedgerId(int(path[len(ROOT) :], 16)) for path, _ in await self._metadata.scan(ROOT)]

    def close(self) -> None:
        """Stop trying failed deletions again: the next start does."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _start(self) -> None:
        self._retry = None
        if self._due and not self._is_working and not self._closed:
            self._is_working = True
            self._spawn("delete ledgers", self._work())

    async def _work(self) -> None:
        try:
            while self._due and not self._closed:
                some = list(self._due)[:_AT_ONCE]
                await delete_all(self._store, some)
                await self._metadata.commit([Delete(_path(ledger_id)) for ledger_id in some])
                for ledger_id in some:
                    del self._due[ledger_id]
        except BrokerError as error:
            log.warning("%d deleted ledgers are still on the disk: %s", len(self._due), error)
            if not self._closed:
                self._retry = self._clock.call_later(_RETRY_S, self._start)
        finally:
            self._is_working = False


async def delete_all(store: LedgerStore, ledgers: Collection[LedgerId]) -> None:
    """Delete ledgers that a durable transaction has given up; all deletions are durable when this returns.

    Raises:
        StorageError: some of them may be left.
    """
    outcomes = await asyncio.gather(*map(store.delete, ledgers), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _path(ledger_id: LedgerId) -> str:
    return f"{ROOT}{ledger_id:016x}"
