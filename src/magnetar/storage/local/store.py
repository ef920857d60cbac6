"""The local ledger store: one journal for all ledgers, one segment file per ledger, one catalogue.

    data_dir/journal/0000.journal ...   what was acknowledged, ordered by time (`journal`, `ring`, `replay`)
    data_dir/segments/<ledger>.segment  what was acknowledged, ordered by ledger (`segment`, `writebehind`, `reads`)
    data_dir/catalogue                  which ledgers exist, and where replay begins (`catalogue`)
    data_dir/leases/<lease id>          which segments other processes read (`leases`, `segments`, `segment_file`)

All public calls are made on the event loop on which `start` ran.  `format.py` and
`storage/segment_format.py` have the bytes, and docs/internals/disk-format.md explains them.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import LedgerNotFound, StorageError, StorageFull
from magnetar.base.tasks import settle
from magnetar.base.thread_time import counted
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.crew import Crew
from magnetar.storage.local.damage import Damage
from magnetar.storage.local.disk import Disk, RealDisk
from magnetar.storage.local.format import ROUND_BYTES, Control, control_record
from magnetar.storage.local.health import problem_of
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.journal import Journal
from magnetar.storage.local.leases import Leases
from magnetar.storage.local.ledger import LocalLedger, Queued, State
from magnetar.storage.local.reads import Reads
from magnetar.storage.local.recovery import Recovered, load_index, recover
from magnetar.storage.local.ring import Ring, RingFile, prepare_file
from magnetar.storage.local.segments import LocalSegments, store_id
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.writebehind import WriteBehind
from magnetar.storage.segment_format import segment_name
from magnetar.storage.store import LedgerId, LedgerStat

log = logging.getLogger(__name__)

NO_THREAD: Final = "can't start new thread"  # Python's message if the system allows no more
PATHS_MAX: Final = 1024  # of segments, kept in memory: making one takes longer than planning a read
INDEXES_MAX: Final = 1024  # of finished ledgers that were read lately, kept in memory


class LocalLedgerStore:
    """Implements `LedgerStore`; `start` creates it."""

    def __init__(
        self,
        data_dir: Path,
        settings: LocalStoreSettings,
        clock: Clock,
        disk: Disk,
        *,
        direct: bool,
        on_reported: Callable[[], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.clock = clock
        self.disk = disk
        self.direct = direct
        self._on_reported = on_reported
        self.data_dir = data_dir
        self.segments = data_dir / "segments"
        self._path = lru_cache(PATHS_MAX)(self._segment_of)
        self.counters = StoreCounters()
        self.damage = Damage(self.path_of)
        self.next_ledger_id = 1
        self.durable_sequence = 0
        """The sequence of the last journal round whose entries the ledgers have."""
        self.entries_since_checkpoint = 0
        self.entry_bytes_max = settings.journal_file_bytes - ROUND_BYTES - 64
        self.failure: StorageError | None = None
        """Why nothing is written until the next start; None while all is well."""
        self._ledgers: dict[int, LocalLedger] = {}
        self._indexes: OrderedDict[int, LocalLedger] = OrderedDict()
        self._drained: asyncio.Future[None] | None = None
        self._closed = False
        self._preparing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        data_dir: Path,
        *,
        settings: LocalStoreSettings,
        clock: Clock,
        disk: Disk | None = None,
        on_reported: Callable[[], None] = lambda: None,
    ) -> "LocalLedgerStore":
        """Open the store in `data_dir`, which is created if needed, and replay its journal.

        The store calls `on_reported` after it has reported all appends that became durable together.

        Raises:
            StorageFull: there is no room for two journal files.
            StorageError: the directory cannot be used, or has more damage than a torn tail.
        """
        loop = asyncio.get_running_loop()

        def prepare() -> tuple[Disk, bool, str]:
            used = RealDisk(data_dir) if disk is None else disk
            for directory in (data_dir, data_dir / "journal", data_dir / "segments", data_dir / "leases"):
                used.make_directory(directory)
            used.sync_directory(data_dir)
            return used, used.can_direct(data_dir), store_id(used, data_dir)

        try:
            used, direct, own_id = await loop.run_in_executor(None, prepare)
            if not direct:
                log.warning("no direct I/O in %s: buffered writes and fdatasync instead", data_dir)
            store = cls(data_dir, settings, clock, used, direct=direct, on_reported=on_reported)
            recovered = await loop.run_in_executor(None, recover, store)
            await store._begin(recovered, own_id)
        except OSError as error:
            full = error.errno in (28, 122)  # ENOSPC, EDQUOT
            raise (StorageFull if full else StorageError)(f"{data_dir} cannot be used: {error}") from error
        except RuntimeError as error:
            if NO_THREAD not in str(error):
                raise
            raise StorageError(
                f"{data_dir} cannot be served: {error}; allow this process more threads (ulimit -u, or pids.max of its"
                " control group)"
            ) from error
        return store

    async def _begin(self, recovered: Recovered, own_id: str) -> None:
        settings = self.settings
        self.segment_files = LocalSegments(self, own_id)
        self._ledgers = recovered.ledgers
        self.next_ledger_id = recovered.next_ledger_id
        self.durable_sequence = recovered.sequence
        ring = Ring(recovered.next_epoch)
        ring.add(*recovered.free_files, full=recovered.used_files)
        self.journal = Journal(
            ring,
            round_bytes_max=settings.round_bytes_max,
            next_sequence=recovered.sequence + 1,
            salt=recovered.catalogue.known.journal_salt,
            is_synced=settings.journal_sync_data,
            sync_after_write=settings.journal_sync_data and not self.direct,
            loop=self.loop,
            clock=self.clock,
            counters=self.counters,
            on_round=self._on_round,
            on_reported=self._on_reported,
            on_full=self._on_ring_full,
            on_failure=self.fail_stop,
        )
        self.reads = Reads(
            self.disk,
            direct=self.direct,
            step_bytes=settings.read_step_bytes,
            memory_bytes=settings.read_memory_bytes,
            threads=settings.read_threads,
            counters=self.counters,
            damage=self.damage,
            path_of=self.path_of,
            load_index=self._load_index,
            loop=self.loop,
        )
        self.behind = WriteBehind(
            self, Crew(self.disk, direct=self.direct), recovered.catalogue, recovered.deleted
        )
        self.leases = Leases(self.disk, self.data_dir / "leases", self.clock, self.behind.remove)
        self.leases.begin(recovered.leases, recovered.orphans)
        for ledger in self._ledgers.values():
            if ledger.dirty or ledger.touched:
                ledger.touched = False
                self.touch(ledger)
        try:
            self.journal.start()
            self.behind.start()
            await self.behind.worker.run(self.behind.crew.prepare)
            await self.behind.worker.run(self.reads.prepare)
        except RuntimeError:
            self.leases.close()
            await self.journal.stop()
            self.behind.release()
            self.behind.end()
            raise
        missing = settings.journal_file_count - len(recovered.used_files) - len(recovered.free_files)
        if missing > 0:
            self._preparing = self.loop.create_task(self._prepare_files(recovered.next_file_number, missing))
        if recovered.used_files or recovered.deleted:
            self.behind.checkpoint_soon()

    async def _prepare_files(self, number: int, count: int) -> None:
        """Create the ring's other files while the first one is already in use."""
        for offset in range(count):
            path = self.data_dir / "journal" / f"{number + offset:04d}.journal"
            if self.failure is not None:
                return
            try:
                file = await self.behind.worker.run(self._prepare_file, path)
            except OSError as error:
                log.warning("the journal ring stays smaller than set: file=%s error=%s", path.name, error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends all writing
                self.fail_stop("making a journal file", error)
                return
            self.journal.add_file(file)

    def _prepare_file(self, path: Path) -> RingFile:
        size = self.settings.journal_file_bytes
        prepare_file(self.disk, path, size, direct=self.direct)
        sync_writes = self.settings.journal_sync_data and self.direct
        return RingFile(path, self.disk.open(path, direct=self.direct, sync_writes=sync_writes), size)

    # -- the port

    def find(self, ledger_id: int) -> LocalLedger | None:
        return self._ledgers.get(ledger_id)

    async def create(self) -> LocalLedger:
        self._check_open()
        ledger_id = LedgerId(self.next_ledger_id)
        self.next_ledger_id += 1
        ledger = LocalLedger(self, ledger_id, State.OPEN)

        def created() -> None:
            self._ledgers[ledger_id] = ledger
            self.touch(ledger)

        await self._control(ledger_id, Control.CREATE, created)
        return ledger

    async def open(self, ledger_id: LedgerId) -> LocalLedger:
        self._check_open()
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            raise LedgerNotFound(f"there is no ledger {ledger_id}")
        if ledger.state is not State.SEALED:
            await ledger.seal()
        return ledger

    async def delete(self, ledger_id: LedgerId) -> None:
        self._check_open()
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return

        def deleted() -> None:
            if self._ledgers.pop(ledger_id, None) is None:
                return
            ledger.state = State.DELETED
            ledger.wake_sealers()
            ledger.dirty = []
            ledger.dirty_bytes = 0
            ledger.index = None
            self._indexes.pop(ledger_id, None)
            self.reads.forget(ledger)
            self.behind.on_deleted(ledger)

        await self._control(ledger_id, Control.DELETE, deleted)

    async def list_ledgers(self) -> list[LedgerStat]:
        self._check_open()
        return [self._ledgers[ledger_id].stat for ledger_id in sorted(self._ledgers)]

    @property
    def ledgers(self) -> dict[int, LocalLedger]:
        """All ledgers, by id."""
        return self._ledgers

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for ledger in self._ledgers.values():
            if ledger.state is State.OPEN:
                ledger.state = State.FAILED
        self.leases.close()
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
        if self.journal.queued_bytes:
            self._drained = self.loop.create_future()
            await self._drained
        is_saved = await self.behind.close()
        await self.journal.stop(is_needed=not is_saved)
        # In a thread that exists: the system may allow no new one.
        await self.behind.worker.run(self.reads.close)
        await self.behind.worker.run(self.behind.release)
        self.behind.end()

    async def checkpoint(self) -> None:
        """Write everything acknowledged to segments now.

        Raises:
            StorageError: the disk refuses the writes.
        """
        self._check_open()
        await self.behind.checkpoint()

    # -- trouble

    @property
    def problem(self) -> str | None:
        """What is wrong with the store and what to do about it, in one sentence; None when all is well."""
        return problem_of(self)

    def fail_stop(self, doing: str, error: BaseException) -> None:
        """After an unforeseen exception: write nothing more until the next start, and continue to serve reads.

        The state that the exception has left cannot be trusted, and the journal has everything that was acknowledged.
        All waiting writes fail; those that are in the journal may still be there after the next start.
        """
        if self.failure is not None:
            return
        self.failure = StorageError(f"storage has stopped writing after a fault in {doing} ({error!r})")
        log.error(
            "storage stops writing until the next start, reads go on: a fault in %s",
            doing,
            exc_info=(type(error), error, error.__traceback__),
        )
        self.journal.break_off(self.failure)

    # -- what the parts of the store need of each other

    def path_of(self, ledger: LocalLedger) -> Path:
        return self._path(ledger.ledger_id)

    def _segment_of(self, ledger_id: int) -> Path:
        return self.segments / segment_name(ledger_id)

    def touch(self, ledger: LocalLedger) -> None:
        """Note that the next checkpoint has something to do for `ledger`."""
        if not ledger.touched:
            ledger.touched = True
            self.behind.touched.append(ledger)

    def on_finished(self, ledger: LocalLedger) -> None:
        """The ledger's footer is durable, so its index need not stay in memory."""
        if ledger.index is not None:
            self._keep_index(ledger)

    def on_checkpoint(self, sequence: int) -> None:
        """Segments and catalogue have everything up to this round."""
        self.journal.recycle(sequence)

    def _on_ring_full(self) -> None:
        if not self.behind.stuck:
            self.behind.checkpoint_soon()

    def _keep_index(self, ledger: LocalLedger) -> None:
        self._indexes[ledger.ledger_id] = ledger
        self._indexes.move_to_end(ledger.ledger_id)
        while len(self._indexes) > INDEXES_MAX:
            self._indexes.popitem(last=False)[1].index = None

    def _load_index(self, ledger: LocalLedger) -> "asyncio.Task[SparseIndex]":
        return self.loop.create_task(self.index_of(ledger))

    async def index_of(self, ledger: LocalLedger) -> SparseIndex:
        """The ledger's index, from memory or from its file.  Raises as `load_index`."""
        if ledger.index is not None:
            return ledger.index
        try:
            index = await self.loop.run_in_executor(
                self.reads.pool,
                counted(load_index),
                self.reads,
                self.path_of(ledger),
                ledger.ledger_id,
                ledger.flushed_count,
                ledger.flushed_position,
            )
        except StorageError as error:
            self.damage.failed(ledger, 0, error)
            raise
        if ledger.index is None and not ledger.deleted:
            ledger.index = index
            self._keep_index(ledger)
        return index

    def _on_round(self, entries: list[Queued], sequence: int, error: StorageError | None) -> None:
        error = error or self.failure
        if error is None:
            left = iter(entries)
            try:
                full = self._apply_round(left)
            except Exception as fault:  # noqa: BLE001 - whatever it is, it ends all writing
                self.fail_stop("applying a journal round", fault)
                # Continue from the entry that raised it; the entries before it have their answer.
                self._on_round_failed(
                    entries[len(entries) - len(list(left)) - 1 :], self.failure or StorageError(str(fault))
                )
            else:
                self.durable_sequence = sequence
                self._write_behind(full)
        else:
            self._on_round_failed(entries, error)
        if self._drained is not None and not self.journal.queued_bytes and not self._drained.done():
            self._drained.set_result(None)

    def _apply_round(self, entries: Iterable[Queued]) -> list[LocalLedger]:
        """Make entries readable and answer them; returns the ledgers that now have enough to be written behind."""
        flush_bytes = self.settings.flush_bytes
        full: list[LocalLedger] = []
        touched = self.behind.touched
        deleted = State.DELETED
        count = 0
        size = 0
        for entry in entries:
            ledger = entry.ledger
            if ledger is not None and ledger.state is not deleted:
                ledger.on_durable(entry)
                count += 1
                size += entry.size
                if not ledger.touched:
                    ledger.touched = True
                    touched.append(ledger)
                if ledger.dirty_bytes >= flush_bytes and not ledger.flushing:
                    full.append(ledger)
                if ledger.seal_waiters is not None:
                    ledger.wake_sealers()
            done = entry.done
            try:
                done(None)
            except Exception as failure:  # noqa: BLE001 - must not lose the others' answers
                self.loop.call_exception_handler({"message": "done() raised", "exception": failure})
        self.counters.appended_entries += count
        self.counters.appended_bytes += size
        self.entries_since_checkpoint += count
        return full

    def _write_behind(self, full: list[LocalLedger]) -> None:
        if self.behind.stuck:
            return
        try:
            for ledger in full:  # one after the other: all at once, they would delay the journal
                self.behind.flush([ledger])
            if (
                self.entries_since_checkpoint >= self.settings.checkpoint_entries_max
                or self.journal.wants_checkpoint()
            ):
                self.behind.checkpoint_soon()
        except Exception as fault:  # noqa: BLE001 - as above
            self.fail_stop("beginning to write behind", fault)

    def _on_round_failed(self, entries: list[Queued], error: StorageError) -> None:
        for entry in entries:
            if entry.ledger is not None:
                entry.ledger.on_failed()
        for entry in entries:
            if entry.ledger is not None:
                self.counters.failed_entries += 1
                entry.ledger.wake_sealers()
            try:
                entry.done(error)
            except Exception as failure:  # noqa: BLE001 - as above
                self.loop.call_exception_handler({"message": "done() raised", "exception": failure})

    async def _control(self, ledger_id: int, control: Control, apply: Callable[[], None]) -> None:
        """Make a fact about a ledger durable, and `apply` it.

        `apply` is called together with the fact's round, and not later when the caller continues.  Otherwise a
        checkpoint in between would let the journal forget the fact before the catalogue knows it.
        """
        done: asyncio.Future[None] = self.loop.create_future()

        def report(error: Exception | None) -> None:
            if error is None:
                try:
                    apply()
                except Exception as fault:  # noqa: BLE001 - whatever it is, it ends all writing
                    self.fail_stop(f"applying a {control.name.lower()}", fault)
                    error = self.failure
            settle(done, error)

        self.journal.append(Queued(None, control_record(ledger_id, control), (), 0, 0, 0, report))
        await done

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("the ledger store is closed")
