"""Write-behind and checkpoints: they write entries to segments, so that the ring of the journal gets room.

One thread does the writing.  The loop prepares tasks (what to write, where), the thread carries them out in order,
and the loop applies the results.  So only the loop touches the ledgers' state, and appends never wait.

A checkpoint handles every ledger that has changed since the last one.  It flushes the dirty entries, writes the footer
if the ledger is sealed, and syncs the segment.  It notes in the catalogue how far the segment reaches.  Only then it
lets the journal forget the rounds concerned.

When a write fails (disk full), dirty entries stay in memory and in the journal, `stuck` is set, and all writes are
tried again after `retry_s`.  A failed *sync* is different: the kernel may drop what it could not write, and report
success the next time.  So that ledger's checkpoint never succeeds again in this process; the journal keeps its
entries, and the next start replays them.

Any other exception is unforeseen, and the state that it leaves cannot be trusted: it ends all writing
(`LocalLedgerStore.fail_stop`), and the next start replays the journal.  A commit of the catalogue lets the journal
forget rounds.  Before it, the code compares what the catalogue will know with what all ledgers had when the checkpoint
began, not only those that had changed.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.errors import StorageError
from magnetar.storage.blocks import align_up
from magnetar.storage.local.catalogue import Catalogue, Fact
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.crew import Crew, Flush, Sync
from magnetar.storage.local.format import FactKind
from magnetar.storage.local.journal import Journal
from magnetar.storage.local.leases import Leases
from magnetar.storage.local.ledger import LocalLedger, State
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.worker import Worker
from magnetar.storage.segment_format import footer

log = logging.getLogger(__name__)
# How many ledgers one task for the thread has: enough to be cheap, few enough to keep the loop free.
BATCH: Final = 64


class WritingStore(Protocol):
    """The store, as write-behind uses it."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    settings: LocalStoreSettings
    counters: StoreCounters
    segments: Path
    failure: StorageError | None
    durable_sequence: int
    entries_since_checkpoint: int
    next_ledger_id: int
    journal: Journal
    leases: Leases

    @property
    def ledgers(self) -> Mapping[int, LocalLedger]: ...
    def path_of(self, ledger: LocalLedger) -> Path: ...
    def touch(self, ledger: LocalLedger) -> None: ...
    def on_finished(self, ledger: LocalLedger) -> None: ...
    def on_checkpoint(self, sequence: int) -> None: ...
    def fail_stop(self, doing: str, error: BaseException) -> None: ...


class WriteBehind:
    def __init__(self, store: WritingStore, crew: Crew, catalogue: Catalogue, deleted: list[int]) -> None:
        self._store = store
        self.crew = crew
        self._catalogue = catalogue
        self.worker = Worker("magnetar-flush", store.loop, store.fail_stop)
        self.touched: list[LocalLedger] = []
        self._deleted = deleted
        """Ledgers whose deletion the catalogue does not know."""
        self._new_files = False
        self._checkpoint: asyncio.Task[None] | None = None
        self._again = False
        self._closing = False
        self._lost: set[int] = set()
        """Ledgers whose sync failed: the journal keeps their entries until the next start."""
        self.stuck = False
        """A write has failed, and none has succeeded since."""
        self.stuck_why = ""
        self.wanted_since_s: float | None = None
        """When a checkpoint was requested that has not succeeded yet; None if there is none."""
        self._retry: Any = None

    def start(self) -> None:
        """Start the threads.  Raises RuntimeError if the system allows no more threads."""
        self.worker.start()

    # -- flushing

    def flush(self, ledgers: list[LocalLedger]) -> "asyncio.Future[None] | None":
        """Start to write the dirty entries of `ledgers` behind, except of those that are being written already."""
        if self._store.failure is not None:
            return None
        flushes = []
        for ledger in ledgers:
            if ledger.dirty and not ledger.flushing and not ledger.deleted:
                ledger.flushing = True
                flushes.append(
                    Flush(
                        ledger,
                        self._store.path_of(ledger),
                        not ledger.has_file,
                        ledger.dirty[:],
                        ledger.flushed_position,
                        ledger.position,
                        ledger.rest,
                    )
                )
        if not flushes:
            return None
        counts = [len(flush.records) for flush in flushes]
        done: asyncio.Future[None] = self._store.loop.create_future()

        def report(_: None, error: BaseException | None) -> None:
            try:
                if error is not None:
                    self._store.fail_stop("writing segments", error)
                    return
                for flush, count in zip(flushes, counts, strict=True):
                    self._on_flushed(flush, count)
            finally:
                if not done.done():
                    done.set_result(None)

        self.worker.submit(self.crew.flush, flushes, report=report)
        return done

    def _on_flushed(self, flush: Flush, count: int) -> None:
        ledger = flush.ledger
        ledger.flushing = False
        counters = self._store.counters
        if ledger.deleted:
            if flush.create:
                self._remove_file(ledger)  # a failed flush may have created the file, too
            return
        if flush.error is not None:
            counters.flush_errors += 1
            self._on_stuck(f"segment {flush.path.name}: {flush.error}")
            return
        counters.flushes += 1
        counters.flushed_bytes += flush.end - flush.position
        self._new_files = self._new_files or flush.create
        ledger.on_flushed(count, flush.end, flush.new_rest)
        if ledger.dirty_bytes >= self._store.settings.flush_bytes and not self.stuck:
            self.flush([ledger])

    # -- checkpoints

    def checkpoint_soon(self) -> None:
        """Begin a checkpoint; if one is running, another one follows it."""
        if self._store.failure is not None:
            return
        if self._checkpoint is None:
            if not self.stuck and not self._closing:
                self._checkpoint = self._store.loop.create_task(self._run_checkpoints())
        else:
            self._again = True

    async def checkpoint(self) -> None:
        """Write to segments everything that is durable in the journal now; return when that is synced.

        Raises:
            StorageError: the disk refuses the writes; the journal keeps the entries.
        """
        while self._checkpoint is not None:
            await asyncio.wait([self._checkpoint])
        self._checkpoint = self._store.loop.create_task(self._checkpoint_alone())
        await asyncio.shield(self._checkpoint)  # a caller may be cancelled; the checkpoint continues

    @property
    def lost_count(self) -> int:
        """How many ledgers have segments that could not be synced."""
        return len(self._lost)

    async def _checkpoint_alone(self) -> None:
        self._again = False
        try:
            await self._checkpoint_once()
        finally:
            self._checkpoint = None
            if self._again:
                self.checkpoint_soon()

    async def _run_checkpoints(self) -> None:
        try:
            while True:
                self._again = False
                await self._checkpoint_once()
                if not self._again:
                    return
        except StorageError as error:
            if self._store.failure is None:
                self._on_stuck(str(error))
        finally:
            self._checkpoint = None

    async def _checkpoint_once(self) -> None:
        store = self._store
        if store.failure is not None:
            raise store.failure
        if self.wanted_since_s is None:
            self.wanted_since_s = store.clock.monotonic()
        sequence = store.durable_sequence
        touched, self.touched = self.touched, []
        try:
            for ledger in touched:
                ledger.touched = False
            store.entries_since_checkpoint = 0
            await self._save(touched, sequence)
            store.counters.checkpoints += 1
            self.wanted_since_s = None
            self._on_unstuck()
            store.on_checkpoint(sequence)
        except BaseException as error:
            for ledger in touched:
                store.touch(ledger)
            store.counters.checkpoint_errors += 1
            if isinstance(error, OSError | StorageError):
                raise StorageError(f"checkpoint failed: {error}") from error
            if not isinstance(error, asyncio.CancelledError):
                store.fail_stop("a checkpoint", error)
                raise StorageError(f"checkpoint failed: {error!r}") from error
            raise

    async def _save(self, touched: list[LocalLedger], sequence: int) -> None:
        store = self._store
        had = [(ledger, ledger.position) for ledger in store.ledgers.values() if not ledger.finished]
        await self._flush_all(touched)
        facts, noted = await self._sync_all(touched)
        # Also of what was deleted meanwhile.  Its entries may be in no segment, and the journal forgets those up to
        # `sequence`, but keeps later ones.  The deletion itself is later, too, so the catalogue must know of it.
        deleted = self._deleted[:]
        facts += [Fact(FactKind.DELETED, ledger_id, 0, 0, 0, 0, b"") for ledger_id in deleted]
        self._check_nothing_is_forgotten(had, facts)
        await self.worker.run(
            self._catalogue.commit, facts, sequence, store.next_ledger_id, store.journal.epoch
        )
        del self._deleted[: len(deleted)]
        for sync in noted:
            sync.ledger.points_noted = sync.points
            if sync.fact.kind is FactKind.SEALED:
                sync.ledger.finished = True
                store.on_finished(sync.ledger)

    def _check_nothing_is_forgotten(self, had: list[tuple[LocalLedger, int]], facts: list[Fact]) -> None:
        """Check that with `facts` the catalogue knows what every ledger `had`, so that the journal may forget its
        rounds.

        It does not use the list of changed ledgers, because that list is what it checks.
        """
        known = self._catalogue.facts
        new = {line.ledger_id: line.data_bytes for line in facts if line.kind is not FactKind.DELETED}
        gone = {line.ledger_id for line in facts if line.kind is FactKind.DELETED}
        for ledger, position in had:
            ledger_id = ledger.ledger_id
            if ledger_id in gone:
                continue
            found = new.get(ledger_id)
            if found is None and ledger_id in known:
                found = known[ledger_id][0].data_bytes
            if found is None or found < position:
                raise AssertionError(
                    f"ledger {ledger_id} has {position} bytes, and the catalogue would know of {found}"
                )
        lingering = known.keys() - self._store.ledgers.keys() - gone
        if lingering:
            raise AssertionError(f"ledger {min(lingering)} is gone, and the catalogue would not know")

    async def _flush_all(self, touched: list[LocalLedger]) -> None:
        errors = self._store.counters.flush_errors
        waiting = [(ledger, ledger.position) for ledger in touched]
        while waiting:
            for start in range(0, len(waiting), BATCH):
                batch = [ledger for ledger, _ in waiting[start : start + BATCH]]
                done = self.flush(batch)
                await (done if done is not None else asyncio.sleep(0))
                if self._store.failure is not None:
                    raise self._store.failure
                if self._store.counters.flush_errors > errors:
                    raise StorageError("segments cannot be written")
            waiting = [
                (ledger, target)
                for ledger, target in waiting
                if ledger.flushed_position < target and not ledger.deleted
            ]
            if any(ledger.flushing for ledger, _ in waiting):
                await self.worker.run(_nothing)

    async def _sync_all(self, touched: list[LocalLedger]) -> tuple[list[Fact], list[Sync]]:
        noted: list[Sync] = []
        for start in range(0, len(touched), BATCH):
            syncs = [
                self._plan_sync(ledger)
                for ledger in touched[start : start + BATCH]
                if not ledger.deleted and not ledger.finished
            ]
            with_files = [sync for sync in syncs if sync.ledger.has_file]
            await self.worker.run(self.crew.sync, with_files)
            for sync in with_files:
                if sync.ledger.deleted:
                    continue  # deleted meanwhile: its file is not needed
                if sync.sync_failed:
                    self._lost.add(sync.ledger.ledger_id)
                    sync.ledger.fence()
                    log.error("segment sync failed, its journal files are kept: file=%s", sync.path.name)
                if sync.ledger.ledger_id in self._lost:
                    raise StorageError(f"ledger {sync.ledger.ledger_id} could not be synced")
                if sync.error is not None:
                    raise StorageError(str(sync.error))
            noted += syncs
        if self._new_files:
            self._new_files = False  # before the sync: a file that is created meanwhile needs another sync
            try:
                await self.worker.run(self.crew.disk.sync_directory, self._store.segments)
            except OSError:
                self._new_files = True
                raise
        noted = [sync for sync in noted if not sync.ledger.deleted]
        return [sync.fact for sync in noted], noted

    def _plan_sync(self, ledger: LocalLedger) -> Sync:
        index = ledger.index
        sealed = ledger.state is State.SEALED and not ledger.dirty
        points = 0
        whole = b""
        if index is not None:
            points = len(index)
            while points and index.positions[points - 1] >= ledger.flushed_position:
                points -= 1
            if sealed:
                whole = index.to_bytes(0, points)
        numbers = (
            ledger.flushed_count,
            ledger.flushed_position,
            ledger.flushed_last_offset,
            ledger.flushed_max_timestamp,
        )
        new_points = b""
        if index is not None and not sealed:
            new_points = index.to_bytes(ledger.points_noted, points)
        return Sync(
            ledger,
            self._store.path_of(ledger),
            align_up(ledger.flushed_position),
            footer(ledger.ledger_id, *numbers, whole) if sealed and ledger.has_file else None,
            Fact(FactKind.SEALED if sealed else FactKind.PROGRESS, ledger.ledger_id, *numbers, new_points),
            points,
        )

    # -- deletion

    def on_deleted(self, ledger: LocalLedger) -> None:
        """Remove the file of a ledger whose deletion is durable in the journal."""
        self._lost.discard(ledger.ledger_id)
        self._deleted.append(ledger.ledger_id)
        # A failed flush may have created a file, too.  If a flush is under way, its report removes the file.
        if ledger.has_file or (ledger.durable_count and not ledger.flushing):
            self._remove_file(ledger)

    def _remove_file(self, ledger: LocalLedger) -> None:
        self._store.leases.give_up(ledger.ledger_id, self._store.path_of(ledger), ledger.flushed_position)

    def remove(self, path: Path) -> None:
        """Remove a file that is no longer needed."""

        def report(_: None, error: BaseException | None) -> None:
            if isinstance(error, OSError):
                log.warning("file could not be removed: file=%s error=%s", path.name, error)
            elif error is not None:
                self._store.fail_stop("removing a file", error)

        self.worker.submit(self.crew.disk.remove, path, report=report)

    # -- trouble

    def _on_stuck(self, why: str) -> None:
        if not self.stuck:
            log.error("write-behind stopped, appends go on while the journal has room: %s", why)
        self.stuck = True
        self.stuck_why = why
        self._store.journal.refuse_when_full(True)
        if self._retry is None and not self._closing:
            self._retry = self._store.clock.call_later(self._store.settings.retry_s, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._checkpoint is None and not self._closing and self._store.failure is None:
            self._checkpoint = self._store.loop.create_task(self._run_checkpoints())

    def _on_unstuck(self) -> None:
        if self.stuck:
            log.info("write-behind goes on")
            self.stuck = False
            self._store.journal.refuse_when_full(False)

    async def close(self) -> bool:
        """Make a last checkpoint.  False if the disk refused it; the journal has everything then."""
        self._closing = True
        if self._retry is not None:
            self._retry.cancel()
        try:
            await self.checkpoint()
        except StorageError as error:
            log.error("closed without a checkpoint, the next start replays the journal: %s", error)
            return False
        return True

    def release(self) -> None:
        """Blocking: close the catalogue and end the crew."""
        self._catalogue.close()
        self.crew.close()

    def end(self) -> None:
        """End the worker, which must get no more tasks."""
        self.worker.stop()


def _nothing() -> None:
    return None
