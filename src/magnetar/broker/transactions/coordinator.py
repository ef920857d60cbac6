"""The transaction coordinator: every transactional id of this process, from its first producer to its expiry.

Each change is durable before it is answered, and a decision (PrepareCommit, PrepareAbort) is durable before it is
carried out.  So a crash at any step leaves either an open transaction, which times out, or a decided one, which the
next start finishes.  Offsets of a transaction are in its record until it commits.  They become the group's in the
step that completes the transaction, so that a second try never moves them back.

The rules are KIP-98's, with KIP-360's epochs.  The request that ends a transaction shows whether the transaction has
its own epoch (version 2, KIP-890), so producers of both versions are served.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from magnetar.base.clock import sleep
from magnetar.base.errors import EntryCorrupt, MetadataError
from magnetar.base.tasks import Tasks
from magnetar.base.upkeep import Job
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest
from magnetar.broker.groups.moves import Moves
from magnetar.broker.groups.offsets import GroupOffsets
from magnetar.broker.security.model import Principal
from magnetar.broker.transactions import rules
from magnetar.broker.transactions.coordination import Coordination
from magnetar.broker.transactions.endings import wait_for_end
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.markers import BACK_OFF_MAX_S, write_markers
from magnetar.broker.transactions.model import (
    Initialised,
    Offsets,
    Producer,
    TopicPartition,
    TransactionRecord,
    TransactionState,
)
from magnetar.broker.transactions.paths import ID_BYTES_MAX, RECORD_BYTES_MAX, record_path
from magnetar.broker.transactions.registry import Transaction, TransactionRegistry
from magnetar.broker.transactions.rules import Initialise
from magnetar.metadata.store import Delete, Put

log: Final = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 1.0
EXPIRY_INTERVAL_S: Final = 60.0
_LOOKED_AT_ONCE: Final = 1000  # ids in one turn of the event loop: there may be fifty thousand
_ABORTED_AT_ONCE: Final = 100  # ids whose writes share a commit
_FORGOTTEN_FOR_ONE: Final = 2  # ids for each new one, so that a lowered limit is reached in time

_Result = TypeVar("_Result")
_S: Final = TransactionState
_E: Final = TransactionError


class TransactionCoordinator:
    """See the module's text.  `load` first; `close` last."""

    def __init__(
        self, shared: Coordination, group_offsets: GroupOffsets, registry: TransactionRegistry
    ) -> None:
        self._clock = shared.times.clock
        self._metadata = shared.metadata
        self._commits = shared.commits
        self._producer_ids = shared.producer_ids
        self._group_offsets = group_offsets
        self._find_partition = shared.find_partition
        self._settings = shared.settings
        self._registry = registry
        self._tasks = Tasks(log)
        self._upkeep = shared.times.upkeep
        self._expiry_now_ms = shared.times.expiry.now_ms
        self._jobs: list[Job] = []
        self.is_in_transaction = self._registry.is_in_transaction
        self.pending_offsets = self._registry.pending_offsets

    async def load(self) -> None:
        """Read the stored records, and finish decided transactions.  Raises MetadataError."""
        await self._registry.load(self._metadata)
        for transaction in self._registry:
            if transaction.state in rules.COMPLETED:
                self._start_ending(transaction)
        self._jobs = [
            self._upkeep.every(CHECK_INTERVAL_S, "late transactions", self._abort_late),
            self._upkeep.every(EXPIRY_INTERVAL_S, "transactional ids", self._expire),
        ]

    async def close(self) -> None:
        """Stop; the next start finishes decided transactions that have not ended."""
        for job in self._jobs:
            await job.stop()
        self._tasks.cancel()
        await self._tasks.ended()

    # --- requests ----------------------------------------------------------------------------------------------------

    async def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        claimed: Producer | None = None,
        owner: Principal | None = None,
    ) -> Initialised:
        """Give the id to a new producer, after aborting the transaction that the previous producer left open.

        `claimed`: the id and epoch of a producer that is not new, and wants the next epoch after an error (KIP-360).
        """
        if not 0 < len(transactional_id.encode()) <= ID_BYTES_MAX:
            return Initialised(_E.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return Initialised(_E.INVALID_TRANSACTION_TIMEOUT)
        try:
            while True:
                answer, wait_for = await self._init_step(transactional_id, timeout_ms, claimed, owner)
                if answer is not None:
                    return answer
                if wait_for is not None and not await self._is_ended(wait_for):
                    return Initialised(_E.CONCURRENT_TRANSACTIONS)
        except MetadataError as failure:
            log.warning("the server cannot store transactional id %r: %s", transactional_id, failure)
            return Initialised(_E.COORDINATOR_NOT_AVAILABLE)

    async def _init_step(
        self, transactional_id: str, timeout_ms: int, claimed: Producer | None, owner: Principal | None
    ) -> tuple[Initialised | None, Transaction | None]:
        """One attempt: the answer, or the transaction that must end before the next attempt."""
        transaction = self._registry.slot(transactional_id)
        async with transaction.lock:
            if transaction.is_dropped:
                return None, None
            self._registry.own(transaction, owner)
            record, now_ms = transaction.record, self._clock.now_ms()
            if record is not None and claimed is not None and not rules.may_continue(record, claimed):
                return Initialised(_E.PRODUCER_FENCED), None
            step = rules.INITIALISE[transaction.state]
            if step is Initialise.CREATE or record is None:
                record = await self._create(transaction, timeout_ms)
                if record is None:
                    return Initialised(_E.COORDINATOR_NOT_AVAILABLE), None
                return Initialised(_E.NONE, record.producer_id, record.epoch), None
            if step is Initialise.ABORT_FIRST:
                await self._write(transaction, rules.fenced(record, now_ms, claimed))
                self._start_ending(transaction)
                return None, transaction
            if step is Initialise.WAIT:
                return None, transaction
            new_id = None
            if rules.is_exhausted(record) and not rules.is_repeated(record, claimed):
                new_id = await self._producer_ids.allocate()
            record = rules.renewed(record, new_id, timeout_ms, now_ms, claimed)
            await self._write(transaction, record)
            return Initialised(_E.NONE, record.producer_id, record.epoch), None

    async def _create(self, transaction: Transaction, timeout_ms: int) -> TransactionRecord | None:
        """The record of a new id; None if there is no room for one more."""
        try:
            if not await self._make_room(transaction.owner):
                self._registry.drop(transaction)
                return None
            producer_id = await self._producer_ids.allocate()
            record = TransactionRecord(producer_id, 0, timeout_ms, _S.EMPTY, self._clock.now_ms())
            await self._write(transaction, record)
        except BaseException:
            self._registry.drop(transaction)
            raise
        return record

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> TransactionError:
        """Let the transaction write to `partitions`, which must exist; the first ones open the transaction."""
        return await self._add(transactional_id, producer, frozenset(partitions), {})

    async def join(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> TransactionError:
        """As `add_partitions`, for a request that may be cancelled."""
        # In a task of its own, so that the transaction stays locked until the record is durable.  Otherwise an end
        # could miss the partitions, and records there would never be decided.
        adding = self.add_partitions(transactional_id, producer, partitions)
        return await asyncio.shield(self._spawn(adding, f"join {transactional_id}"))

    async def add_group(self, transactional_id: str, producer: Producer, group_id: str) -> TransactionError:
        """Let the transaction commit offsets of a group."""
        return await self._add(transactional_id, producer, frozenset(), {group_id: {}})

    async def _add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        groups: Mapping[str, Offsets],
    ) -> TransactionError:
        transaction = self._registry.find(transactional_id)
        if transaction is None:
            return _E.INVALID_REQUEST if not transactional_id else _E.INVALID_PRODUCER_ID_MAPPING
        async with transaction.lock:
            record = transaction.record
            error = rules.check_producer(record, producer)
            if error is _E.NONE:
                error = rules.ADD[transaction.state]
            if error is not _E.NONE or record is None:
                return error
            is_open = record.state is _S.ONGOING
            offsets = {group: {**record.offsets.get(group, {}), **rows} for group, rows in groups.items()}
            if is_open and partitions <= record.partitions and offsets.items() <= record.offsets.items():
                return _E.NONE
            now_ms = self._clock.now_ms()
            wanted = replace(
                record,
                state=_S.ONGOING,
                partitions=record.partitions | partitions,
                offsets={**record.offsets, **offsets},
                started_ms=record.started_ms if is_open else now_ms,
                updated_ms=now_ms,
            )
            return await self._write_or_refuse(transaction, wanted)

    def verify(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> TransactionError:
        """Check that the producer's open transaction has the partition."""
        transaction = self._registry.find(transactional_id)
        if transaction is None:
            return _E.INVALID_REQUEST if not transactional_id else _E.INVALID_PRODUCER_ID_MAPPING
        return rules.verify(transaction.record, producer, partition)

    async def commit_offsets(
        self, transactional_id: str, producer: Producer, request: CommitRequest, *, adds_group: bool = False
    ) -> Sequence[GroupError | TransactionError]:
        """Store a group's offsets until the transaction commits; returns one answer for each, once durable.

        `adds_group`: the transaction need not have the group, and need not be open.
        """
        errors, good = await self._group_offsets.check_transactional(request)
        if not good:
            return errors
        if adds_group:
            kept = await self._add(transactional_id, producer, frozenset(), {request.group_id: good})
        else:
            kept = await self._keep_offsets(transactional_id, producer, request.group_id, good)
        if kept is _E.NONE:
            return errors
        return [kept if error is GroupError.NONE else error for error in errors]

    async def _keep_offsets(
        self, transactional_id: str, producer: Producer, group_id: str, offsets: Offsets
    ) -> TransactionError:
        transaction = self._registry.find(transactional_id)
        if transaction is None:
            return _E.INVALID_PRODUCER_ID_MAPPING
        async with transaction.lock:
            record = transaction.record
            error = rules.check_producer(record, producer)
            if error is _E.NONE:
                error = rules.COMMIT_OFFSETS[transaction.state]
            if error is not _E.NONE or record is None:
                return error
            if group_id not in record.offsets:
                return _E.TRANSACTION_ABORTABLE
            wanted = replace(
                record,
                offsets={**record.offsets, group_id: {**record.offsets[group_id], **offsets}},
                updated_ms=self._clock.now_ms(),
            )
            return await self._write_or_refuse(transaction, wanted)

    async def end(self, transactional_id: str, producer: Producer, *, commit: bool) -> TransactionError:
        """Commit or abort.  Returns when everything is visible; if that takes long, when the decision is durable."""
        return (await self._decide(transactional_id, producer, commit=commit, renews=False)).error

    async def end_and_renew(self, transactional_id: str, producer: Producer, *, commit: bool) -> Initialised:
        """As `end`, for version 2: the producer continues with the epoch, or the id, that it gets."""
        return await self._decide(transactional_id, producer, commit=commit, renews=True)

    async def _decide(
        self, transactional_id: str, producer: Producer, *, commit: bool, renews: bool
    ) -> Initialised:
        transaction = self._registry.find(transactional_id)
        if transaction is None:
            return Initialised(_E.INVALID_REQUEST if not transactional_id else _E.INVALID_PRODUCER_ID_MAPPING)
        async with transaction.lock:
            record = transaction.record
            error = rules.end(record, producer, commit=commit, renews=renews)
            if record is None or error is not _E.NONE:
                return Initialised(error)
            if rules.is_ended(record, producer, renews=renews):
                return Initialised(_E.NONE, *record.owner)
            try:
                exhausted = renews and rules.is_exhausted(record)
                new_id = await self._producer_ids.allocate() if exhausted else None
            except MetadataError as failure:
                log.warning("transactional id %r gets no producer id: %s", transactional_id, failure)
                return Initialised(_E.COORDINATOR_NOT_AVAILABLE)
            decided = rules.decided(record, self._clock.now_ms(), new_id, commit=commit, renews=renews)
            error = await self._write_or_refuse(transaction, decided)
            if error is not _E.NONE:
                return Initialised(error)
            if decided.state in rules.COMPLETED:
                self._start_ending(transaction)
        await self._is_ended(transaction)
        return Initialised(_E.NONE, *decided.owner)

    # --- for administrators ------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionRecord | None:
        transaction = self._registry.find(transactional_id)
        return None if transaction is None else transaction.record

    def has_transactions(self) -> bool:
        """Whether any transactional id is known."""
        return any(transaction.record is not None for transaction in self._registry)

    def listed(self) -> list[tuple[str, TransactionRecord]]:
        """Every transactional id and its record."""
        return [
            (transaction.transactional_id, transaction.record)
            for transaction in self._registry
            if transaction.record is not None
        ]

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _write(
        self,
        transaction: Transaction,
        record: TransactionRecord,
        moves: Moves | None = None,
        encoded: bytes | None = None,
    ) -> None:
        """Make `record`, and `moves` in the same step, durable and then known.  Raises MetadataError."""
        assert record.state in rules.MOVES[transaction.state], (transaction, record)
        put = Put(record_path(transaction.transactional_id), encoded or await record.encode())
        if moves is not None:
            await moves.submit(put)
            self._registry.publish(transaction, record)
        else:
            written = self._commits.submit([put], lambda: self._registry.publish(transaction, record))
            await asyncio.shield(written)

    async def _write_or_refuse(self, transaction: Transaction, record: TransactionRecord) -> TransactionError:
        encoded = await record.encode()
        if len(encoded) > RECORD_BYTES_MAX:
            return _E.INVALID_REQUEST
        try:
            await self._write(transaction, record, encoded=encoded)
        except MetadataError as failure:
            log.warning(
                "the server cannot store transactional id %r: %s", transaction.transactional_id, failure
            )
            return _E.COORDINATOR_NOT_AVAILABLE
        return _E.NONE

    # --- ending ------------------------------------------------------------------------------------------------------

    def _start_ending(self, transaction: Transaction) -> None:
        transaction.ending = self._spawn(self._end(transaction), f"end {transaction.transactional_id}")

    async def _end(self, transaction: Transaction) -> None:
        """Bring the transaction from Prepare... to Complete...; no other task changes the record meanwhile."""
        record = transaction.record
        assert record is not None
        commit = record.state is _S.PREPARE_COMMIT
        await write_markers(record, commit, self._find_partition, self._clock)
        while True:
            try:
                await self._complete(transaction, record, commit)
                return
            except (MetadataError, EntryCorrupt) as failure:
                log.warning("transaction of %r waits: %s", transaction.transactional_id, failure)
            await sleep(self._clock, BACK_OFF_MAX_S)

    async def _complete(self, transaction: Transaction, record: TransactionRecord, commit: bool) -> None:
        moves: Moves | None = None
        if commit and record.offsets:
            wanted = {group_id: offsets.values() for group_id, offsets in record.offsets.items()}
            moves = await self._group_offsets.moves(wanted)
        await self._write(transaction, rules.completed(record, self._clock.now_ms()), moves)

    async def _is_ended(self, transaction: Transaction) -> bool:
        """Whether the transaction has ended, after waiting a moment for that."""
        if transaction.ending is not None:
            await wait_for_end(transaction.ending, self._clock)
        return transaction.state not in rules.COMPLETED

    # --- time --------------------------------------------------------------------------------------------------------

    def _is_late(self, transaction: Transaction) -> bool:
        record = transaction.record
        return (
            record is not None
            and record.state is _S.ONGOING
            and self._clock.monotonic() - self._began_s(transaction, record) > record.timeout_ms / 1000
        )

    def _began_s(self, transaction: Transaction, record: TransactionRecord) -> float:
        """When the open transaction began, by the monotonic clock; computed from its record if a start has read it."""
        if transaction.began is None or transaction.began[0] != record.started_ms:
            open_ms = max(self._expiry_now_ms() - record.started_ms, 0)
            transaction.began = (record.started_ms, self._clock.monotonic() - open_ms / 1000)
        return transaction.began[1]

    async def _abort_late(self) -> None:
        late: list[Transaction] = []
        for number, transaction in enumerate(list(self._registry.open), 1):
            if number % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._is_late(transaction):
                late.append(transaction)
        for at in range(
            0, len(late), _ABORTED_AT_ONCE
        ):  # readers wait for all transactions that one client has abandoned
            await asyncio.gather(*map(self._abort, late[at : at + _ABORTED_AT_ONCE]))

    async def _abort(self, transaction: Transaction) -> None:
        async with transaction.lock:
            record = transaction.record
            if record is None or not self._is_late(transaction):
                return
            log.info("transaction of %r timed out", transaction.transactional_id)
            decided = rules.fenced(record, self._clock.now_ms())
            if await self._write_or_refuse(transaction, decided) is _E.NONE:
                self._start_ending(transaction)

    def _is_idle(self, transaction: Transaction, idle_ms: int) -> bool:
        """Whether no transaction is open or ending, and none was for `idle_ms` (negative: it may have ended just
        now).
        """
        record = transaction.record
        return (
            record is not None
            and _S.DEAD in rules.MOVES[record.state]
            and (idle_ms < 0 or self._expiry_now_ms() - record.updated_ms > idle_ms)
        )

    async def _expire(self) -> None:
        idle_ms = self._settings.transactional_id_expiration_ms
        for number, transaction in enumerate(self._registry, 1):
            if number % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._is_idle(transaction, idle_ms) and not await self._forget(transaction, idle_ms):
                return

    async def _make_room(self, owner: Principal | None) -> bool:
        """If there are too many ids, forget those unused for longest; false if none can be forgotten."""
        for _ in range(_FORGOTTEN_FOR_ONE):
            unchanged = self._registry.to_make_room(owner)
            if unchanged is None:
                break
            unused = next(
                (one for one in unchanged if not one.lock.locked() and self._is_idle(one, -1)), None
            )
            if unused is None:
                return False
            # In a task of its own, because the request may be cancelled, and an id that is being deleted must stay
            # locked.
            await asyncio.shield(self._spawn(self._forget(unused), f"forget {unused.transactional_id}"))
        return True

    async def _forget(self, transaction: Transaction, idle_ms: int = -1) -> bool:
        """Delete an id as if it had expired, unless it is used meanwhile; false if that cannot be stored."""
        async with transaction.lock:
            if self._is_idle(transaction, idle_ms):
                gone = [Delete(record_path(transaction.transactional_id))]
                try:
                    await asyncio.shield(self._commits.submit(gone, lambda: None))
                except MetadataError as failure:
                    log.warning("the server cannot remove idle transactional ids now: %s", failure)
                    return False
                self._registry.drop(transaction)
        return True

    def _spawn(self, work: Coroutine[Any, Any, _Result], name: str) -> asyncio.Task[_Result]:
        task = self._tasks.begin(name, work)
        self._upkeep.watch(f"transactions: {name}", task, may_end=True)
        return task
