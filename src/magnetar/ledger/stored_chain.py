"""The chain of one log in the metadata store: how it is read at a start, committed, and changed by compaction.

`ManagedLedger` appends to it and trims it.  Every change of a log's ledgers goes through `_save`, under
`_metadata_lock`, and changes memory only when the commit is durable.

**One owner.**  Each commit expects the version of the document that this object has read or written, and `owned`: what
must hold while this broker owns the log.  A commit that finds something else there is refused by the metadata store,
and the log is LOST from then on: another broker has it.  If the answer to a commit was lost, the next one first reads
what is stored.  It stores what memory has, and takes back what the lost one gave up.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final

from magnetar.base.errors import (
    BadVersion,
    LedgerNotFound,
    LogLost,
    MetadataError,
    MetadataLost,
    StorageError,
)
from magnetar.base.listed import listed
from magnetar.ledger.chain import LedgerInfo
from magnetar.ledger.chain_rows import METADATA_ROOT, document_of, info_of, rewritten
from magnetar.ledger.compacted import CompactedLedger
from magnetar.ledger.entry import NO_LEDGER
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.readable_log import ReadableLog
from magnetar.ledger.state import State
from magnetar.ledger.stored_log import StoredLog
from magnetar.ledger.tombstones import Tombstones
from magnetar.metadata.store import MUST_NOT_EXIST, Check, Delete, Put, Versioned
from magnetar.storage.store import LedgerId, LedgerStat, LedgerWriter

log = logging.getLogger(__name__)

_LISTED_MAX: Final = 8


def no_owner() -> None:
    """For a log of which no object hears."""


class StoredChain(ReadableLog):
    """See the module's text.  All methods run on the event loop."""

    def __init__(
        self,
        name: str,
        environment: LedgerEnvironment,
        owned: Sequence[Check] = (),
        on_advance: Callable[[], None] = no_owner,
        on_reset: Callable[[], None] = no_owner,
    ) -> None:
        super().__init__(name, environment)
        self.owned = owned  # what else depends on the ownership checks it, too
        self._on_advance = on_advance
        self._on_reset = on_reset
        self.state = State.IDLE
        self.problem: str | None = None  # why the log is refused, and what an operator can do
        self.next_offset = 0
        self.opened_at = 0  # `next_offset` when the log was opened
        self._metadata_version = MUST_NOT_EXIST
        self._unanswered: bytes | None = None  # the document of a commit that may have been carried out
        self._unanswered_puts: list[Delete] = []  # what takes its tombstones back
        self._to_undo: list[Delete] = []  # of commits that were carried out, although memory did not change
        self._metadata_lock = asyncio.Lock()
        self._is_erased = False  # or is being erased: the chain is not written any more

    def _leave_owner(self) -> None:
        """Forget the owner of an erased log, of which it hears nothing more.

        The owner has the log, and the memory of such a circle waits for a full collection, which a server that works
        never has (`server/garbage.py`).
        """
        self._on_advance = self._on_reset = no_owner

    # --- opening -----------------------------------------------------------------------------------------------------

    def restore(self, value: bytes, version: int, stats: Mapping[LedgerId, LedgerStat]) -> None:
        """Take the chain from its stored document and what the store knows about its ledgers; sets `problem` if
        ledgers are missing.
        """
        document = json.loads(value)
        self._metadata_version = version
        self.log_start = document["log_start"]
        position = document["first"]
        self.cleaned = document.get("cleaned", 0)
        missing: list[LedgerId] = []
        for row in document["ledgers"]:
            info = info_of(row, position)
            stat = stats.get(info.stored_id)
            if stat is None:
                missing.append(info.stored_id)
            elif stat.entry_count:
                info.take(stat)
            position = info.end_offset
            self._chain.add(info)
        beside = document.get("compacted")
        if beside is not None:
            stat = stats.get(beside)
            if stat is None:
                missing.append(LedgerId(beside))
            else:
                self.compacted = CompactedLedger(stat, self._environment)
        self.leader_epoch = document["epoch"] + 1
        self.next_offset = self.high_watermark = self.opened_at = max(position, self.log_start)
        if missing:
            self.state = State.REFUSED
            self.problem = (
                f"{self.name} is not served: of its ledgers {listed(missing, _LISTED_MAX)} are not in the data folder;"
                " put back what is missing, or see `magnetar doctor`"
            )

    def take_over(self, stored: StoredLog | None, generation: int) -> None:
        """Begin as the owner of this generation, which is the leader epoch, with what `recover_log` has found.

        Raises:
            LogLost: the owner of a later generation has written the chain.
        """
        if stored is not None:
            self.restore(stored.chain.value, stored.chain.version, stored.stats)
        if self.leader_epoch > generation:
            raise self._lost()
        self.leader_epoch = generation

    async def _save(
        self,
        ledgers: Sequence[LedgerInfo],
        log_start: int,
        given_up: Sequence[LedgerInfo] = (),
        *,
        cleaned: int = 0,
        more: Sequence[Put | Delete] = (),
        compacted: LedgerId | None = None,
    ) -> None:
        """Commit the chain and the operations `more` in one step; `given_up` are the ledgers that have left it.
        `compacted` replaces the ledger beside the chain; None leaves that as it is, and `NO_LEDGER` removes it.
        """
        assert self._metadata_lock.locked()
        # A ledger that was to begin behind appends on their way is empty if they have failed.
        first = min(ledgers[0].first_offset, self.high_watermark) if ledgers else self.high_watermark
        if compacted is None:
            compacted = NO_LEDGER if self.compacted is None else self.compacted.ledger_id
        document = document_of(
            ledgers, self.leader_epoch, first, log_start, max(cleaned, self.cleaned), compacted
        )
        await self._commit(document, [*Tombstones.of(info.stored_id for info in given_up), *more])

    async def _commit(self, document: bytes, more: Sequence[Put | Delete]) -> None:
        """Store the document if this broker still owns the log.

        Raises:
            LogLost: another broker does.
            MetadataLost: whether it is stored is not known.
            MetadataError: it is not stored.
        """
        metadata, path = self._environment.metadata, METADATA_ROOT + self.name
        if self._unanswered is not None:
            self._learn(await metadata.get(path))
        self._unanswered = document
        self._unanswered_puts = [Delete(one.path) for one in more if isinstance(one, Put)]
        put = Put(path, document, self._metadata_version)
        try:
            await metadata.commit([*self.owned, put, *self._to_undo, *more])
        except BadVersion:
            # Also what a store says that carried the commit out twice, because it had lost its own answer.
            self._learn(await metadata.get(path), must_be_new=True)
            self._to_undo = []
        except MetadataLost:
            raise
        except MetadataError:
            self._unanswered = None
            raise
        else:
            self._unanswered = None
            self._to_undo = []
            self._metadata_version = self._next_version

    @property
    def _next_version(self) -> int:
        return 0 if self._metadata_version == MUST_NOT_EXIST else self._metadata_version + 1

    def _learn(self, stored: Versioned | None, *, must_be_new: bool = False) -> None:
        """Find out whether the unanswered commit has been carried out.  The log is lost if neither this commit nor the
        previous state is stored, or with `must_be_new` if the commit is not.
        """
        found = MUST_NOT_EXIST if stored is None else stored.version
        if stored is not None and found == self._next_version and stored.value == self._unanswered:
            self._metadata_version = found
            self._to_undo += self._unanswered_puts
        elif must_be_new or found != self._metadata_version:
            self._lose()
            raise self._lost()
        self._unanswered = None

    def _lose(self) -> None:
        """Another broker has the log: stop writing, unless it is closed already."""
        if self.state is not State.CLOSED:
            log.warning("%s: another broker has taken this log over", self.name)
            self._stop_writing(State.LOST)

    def _lost(self) -> LogLost:
        return LogLost(f"another broker has taken {self.name} over")

    async def _seal(self, info: LedgerInfo, writer: LedgerWriter) -> LedgerStat | None:
        """Seal one ledger of the chain; None if it was deleted, and if that was another broker the log is lost."""
        try:
            return await writer.seal()
        except LedgerNotFound:
            if any(one is info for one in self._chain):  # a trim of ours takes it out before
                self._lose()
            return None

    async def _seal_all_but(self, current: LedgerInfo | None) -> None:
        for info in self._chain:
            if info is not current and info.writer is not None:
                stat = await self._seal(info, info.writer)
                if stat is not None:
                    if stat.last_offset > info.last_offset:
                        continue  # it has kept appends that failed: `_take_stock` sees to it
                    info.size_bytes = stat.size_bytes
                info.writer = None

    def _stop_writing(self, state: State) -> None:
        """Take no more appends for good."""
        self.state = state

    # --- compaction --------------------------------------------------------------------------------------------------

    async def replace(self, old: Sequence[LedgerInfo], new: LedgerWriter | None, cleaned: int) -> bool:
        """Replace sealed neighbours of the chain by one ledger, in one commit, and delete them.

        `new` came from `Tombstones.make`, and ends at the same offset as the last of `old`; None leaves these as they
        are.  Below `cleaned` the log is clean then.  Returns false, without a change, if the chain no longer has all
        of `old`.  When this ends, `new` is in the chain or given up.  That also holds if the caller is cancelled,
        because the metadata store carries out a commit whether a caller waits for it or not.

        Raises:
            MetadataError: nothing has changed (MetadataLost: whether it has changed is not known until the next
                start, and all ledgers stay).
            StorageError: the log is refused, closed or deleted.
        """
        work = self._take_or_give_up(new, self._replace(old, new, cleaned))
        return await asyncio.shield(self._environment.tasks.begin(f"replace ledgers of {self.name}", work))

    async def keep_beside(self, new: LedgerWriter | None) -> None:
        """Make `new` the ledger that Pulsar's compaction has left of the log, in one commit, and delete the previous
        one.

        `new` came from `Tombstones.make`, and its last entry ends at the offset up to which compaction has looked.
        None only deletes the previous one.  As in `replace`, `new` belongs to the log or is given up when this ends.

        Raises as `replace`.
        """
        work = self._take_or_give_up(new, self._keep_beside(new))
        await asyncio.shield(
            self._environment.tasks.begin(f"take what compaction has left of {self.name}", work)
        )

    async def _take_or_give_up(self, new: LedgerWriter | None, take: Coroutine[None, None, bool]) -> bool:
        is_replaced = False
        try:
            is_replaced = await take
        except (MetadataLost, asyncio.CancelledError):  # the commit may still be under way
            is_replaced = True  # it may be
            raise
        finally:
            if new is not None and not is_replaced:
                await self._environment.tombstones.unmake(new)
        return is_replaced

    async def _replace(self, old: Sequence[LedgerInfo], new: LedgerWriter | None, cleaned: int) -> bool:
        stat = None if new is None else await new.seal()
        async with self._metadata_lock:
            self._check_changeable()
            info, kept = None, list(self._chain)
            if new is not None and stat is not None:
                info = rewritten(old, stat, new)
                replaced = self._chain.replaced(old, info)
                if replaced is None:
                    return False
                kept = replaced
            given_up = () if info is None else old
            more = () if info is None else Tombstones.taken_back([info.stored_id])
            await self._save(kept, self.log_start, given_up, cleaned=cleaned, more=more)
            self.cleaned = max(cleaned, self.cleaned)
            if info is not None:
                self._chain.replace(kept)
                self.rewrite_count += 1
                self._run.drop_below(info.end_offset)
        self._environment.tombstones.carry_out(one.stored_id for one in given_up)
        return True

    async def _keep_beside(self, new: LedgerWriter | None) -> bool:
        stat = None if new is None else await new.seal()
        assert stat is None or stat.entry_count, stat
        async with self._metadata_lock:
            self._check_changeable()
            former = self.compacted
            gone = [] if former is None else [former.ledger_id]
            more = Tombstones.of(gone)
            if stat is not None:
                more += Tombstones.taken_back([stat.ledger_id])
            compacted = NO_LEDGER if stat is None else stat.ledger_id
            await self._save(list(self._chain), self.log_start, more=more, compacted=compacted)
            self.compacted = None if stat is None else CompactedLedger(stat, self._environment, new)
        self._environment.tombstones.carry_out(gone)
        return True

    def _check_changeable(self) -> None:
        if self.state is State.LOST:
            raise self._lost()
        if self._is_erased or self.state in (State.REFUSED, State.CLOSED):
            raise StorageError(f"{self.name} is not to be changed any more")
