"""The coordinator of Pulsar's transactions: all of this process, each from its client's NEW_TXN until its end.

Each transaction is a producer id, so partitions and markers work as for Kafka's transactions
(`log/pulsar_transactions.py`).  A Pulsar transaction has no transactional id, and a client can have any number open.
Each change is durable before it is answered, and a decision is durable before it is carried out.  So a crash at any
step leaves either an open transaction, which times out, or a decided one, which the next start finishes.

The acknowledgements of a transaction are in its record until it commits, and in `PendingAcks` for the subscriptions.
They become the subscriptions' in the step that removes the record.

A transaction belongs to its client: other clients get the same answer as for one that has ended.

All clients together may have a limited number of open transactions.  A client with a name may have half of those that
the others leave, so that the next client finds some, too, whatever time-outs the others ask for.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.clock import sleep
from magnetar.base.errors import BrokerError, EntryCorrupt, MetadataError
from magnetar.base.tasks import Tasks
from magnetar.base.upkeep import Job
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.security.model import ANONYMOUS
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.pending_acks import PendingAcks
from magnetar.broker.transactions.coordination import Coordination
from magnetar.broker.transactions.endings import wait_for_end
from magnetar.broker.transactions.errors import (
    InvalidTransactionStatus,
    TooManyTransactions,
    TransactionConflict,
    TransactionNotFound,
    TransactionTimeoutTooLong,
)
from magnetar.broker.transactions.markers import BACK_OFF_MAX_S, write_markers
from magnetar.broker.transactions.model import TopicPartition
from magnetar.broker.transactions.pulsar_model import (
    RANGE_BYTES,
    ROOT,
    PulsarStatus,
    PulsarTransaction,
)
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.metadata.store import Delete, Put

log: Final = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 1.0
_ABORTED_AT_ONCE: Final = 100  # transactions whose writes share a commit
_LOOKED_AT_ONCE: Final = 1000  # transactions in one turn of the event loop: there may be fifty thousand
NO_ID: Final = -1

_OPEN: Final = PulsarStatus.OPEN
_NAMELESS: Final = str(ANONYMOUS)  # all clients that did not log in


def _note(written: asyncio.Future[None]) -> None:
    if not written.cancelled() and (failure := written.exception()) is not None:
        log.warning("a transaction's record is not stored yet: %s", failure)


@dataclass(slots=True)
class TransactionCounts:
    """Counts of Pulsar's transactions since the start.  One that times out also counts as aborted."""

    created: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    written: int = 0  # records


def id_text(producer_id: int) -> str:
    """A transaction's id in Pulsar's notation."""
    return f"(0,{producer_id})"


def _not_found(producer_id: int) -> TransactionNotFound:
    return TransactionNotFound(
        f"The transaction with this txdID `{id_text(producer_id)}`not found"
    )  # the record was stored


class PulsarTransactions:
    """See the module's text.  `load` first; `close` last."""

    def __init__(self, shared: Coordination, cursors: CursorStore, pending: PendingAcks) -> None:
        self._clock = shared.times.clock
        self._metadata = shared.metadata
        self._commits = shared.commits
        self._producer_ids = shared.producer_ids
        self._find_partition = shared.find_partition
        self._cursors = cursors
        self.pending = pending
        self._open_max = shared.settings.pulsar_open_max
        self._timeout_max_ms = shared.settings.pulsar_transaction_max_timeout_ms
        self._upkeep = shared.times.upkeep
        self._expiry_now_ms = shared.times.expiry.now_ms
        self.counts = TransactionCounts()
        self.last_id = NO_ID  # the greatest known producer id of a transaction
        self.recovered_ms = (0, 0)  # when it began and when it ended to read the stored records
        self._by_id: dict[int, PulsarTransaction] = {}
        self._open_of: Counter[str] = Counter()  # by owner
        self._tasks = Tasks(log)
        self._job: Job | None = None
        cursors.dropped.hear(self.subscriptions_dropped)

    async def load(self) -> None:
        """Read what is stored, and go on with what was decided.  Raises MetadataError."""
        began_ms = self._clock.now_ms()
        now_ms, now_s = self._expiry_now_ms(), self._clock.monotonic()
        for path, stored in await self._metadata.scan(ROOT):
            try:
                transaction = PulsarTransaction.decode(path, stored.value, now_ms, now_s)
            except EntryCorrupt as damage:
                log.error("the transaction at %s is not known any more: %s", path, damage)
                continue
            self._by_id[transaction.producer_id] = transaction
            self._open_of[transaction.owner] += 1
            self.last_id = max(self.last_id, transaction.producer_id)
            await self._load_acks(transaction)
            if not transaction.is_open:
                self._start_ending(transaction)
        self.recovered_ms = began_ms, self._clock.now_ms()
        self._job = self._upkeep.every(CHECK_INTERVAL_S, "late transactions of Pulsar's", self._abort_late)

    async def _load_acks(self, transaction: PulsarTransaction) -> None:
        """Take over a stored transaction's acknowledgements, except those of subscriptions or topics that were
        dropped since.
        """
        for key, (topic_id, acknowledged) in list(transaction.acks.items()):
            if self._is_there(key, topic_id):
                mine = self.pending.add(key, transaction.producer_id, acknowledged.ranges)
                transaction.acks[key] = topic_id, mine
            else:
                del transaction.acks[key]
                transaction.changes += 1
        await self._store(transaction)

    def _is_there(self, key: CursorKey, topic_id: str) -> bool:
        try:
            return self._cursors.identity(key.topic) == topic_id and self._cursors.get(key) is not None
        except EntryCorrupt:
            return True  # so that an operator can repair them
        except BrokerError:
            return False

    async def close(self) -> None:
        """Stop; what is decided and not ended is ended after the next start."""
        if self._job is not None:
            await self._job.stop()
        self._tasks.cancel()
        await self._tasks.ended()

    # --- requests ----------------------------------------------------------------------------------------------------

    async def begin(self, owner: str, timeout_ms: int) -> int:
        """Begin a transaction; returns its producer id.

        Raises:
            TransactionTimeoutTooLong, TooManyTransactions, MetadataError
        """
        if timeout_ms > self._timeout_max_ms:
            # A client that dies holds back readers of the topics that it wrote to for as long as that.
            raise TransactionTimeoutTooLong(
                f"A time-out of {timeout_ms} ms is longer than a transaction may have:"
                f" pulsar.transaction.max.timeout.ms is {self._timeout_max_ms}"
            )
        self._check_room(owner)
        producer_id = await self._producer_ids.allocate()
        self._check_room(owner)  # others may have begun theirs meanwhile
        began_s = self._clock.monotonic()
        transaction = PulsarTransaction(producer_id, owner, timeout_ms, self._expiry_now_ms(), began_s)
        self._by_id[producer_id] = transaction
        self._open_of[owner] += 1
        try:
            await self._store(transaction)
        except BaseException:
            # Its client never learns of it.  Where the write went through after all it times out after the next start.
            if self._by_id.pop(producer_id, None) is not None:
                self._count_out(owner)
            raise
        self.last_id = max(self.last_id, producer_id)
        self.counts.created += 1
        return producer_id

    def _check_room(self, owner: str) -> None:
        if len(self._by_id) >= self._open_max:
            raise TooManyTransactions(f"{self._open_max} transactions are open, which is the most")
        own = self._open_of[owner]
        left = self._open_max - (len(self._by_id) - own)
        if owner != _NAMELESS and own >= (left + 1) // 2:
            raise TooManyTransactions(f"{own} transactions of this client are open, which is the most")

    def _count_out(self, owner: str) -> None:
        self._open_of[owner] -= 1
        if not self._open_of[owner]:
            del self._open_of[owner]

    async def add_partitions(
        self, producer_id: int, owner: str, partitions: Collection[TopicPartition]
    ) -> None:
        """Let the transaction write to `partitions`.

        Raises:
            TransactionNotFound, InvalidTransactionStatus, TooManyTransactions, MetadataError
        """
        transaction = self._open_one(producer_id, owner)
        new = set(partitions) - transaction.partitions
        if new:
            if not transaction.has_room(sum(len(json.dumps(one)) + 1 for one in new)):
                raise TooManyTransactions("The transaction has more partitions than fit into its record")
            transaction.partitions |= new
            transaction.changes += 1
        await self._store(transaction)

    async def acknowledge(
        self, producer_id: int, owner: str, key: CursorKey, ranges: Sequence[Range], *, cumulative: bool
    ) -> None:
        """Store these offsets of a subscription until the transaction commits, which acknowledges them.

        Raises:
            TransactionNotFound, InvalidTransactionStatus, TooManyTransactions, MetadataError, UnknownTopic
            TransactionConflict: some are acknowledged already, in any transaction or without one.
        """
        transaction = self._open_one(producer_id, owner)
        if not ranges:
            return
        cursor = self._cursors.get(key)
        found = [[] if cursor is None else cursor.unacknowledged(*one) for one in ranges]
        left = [one for each in found for one in each]
        if cumulative:  # it may continue from its own position
            is_taken = not self.pending.left(key, left)
        else:
            is_taken = not all(found) or self.pending.has_any(key, producer_id, left)
        if is_taken or self.pending.others_have(key, producer_id, left):
            raise TransactionConflict(
                f"The transaction {id_text(producer_id)} acknowledges what is acknowledged already"
            )
        topic_id = self._cursors.identity(key.topic)
        row_bytes = 0 if key in transaction.acks else len(json.dumps([*key, topic_id, []])) + 1
        if not transaction.has_room(row_bytes + RANGE_BYTES * len(left)):
            raise TooManyTransactions("The transaction acknowledges more than fits into its record")
        transaction.acks[key] = topic_id, self.pending.add(key, producer_id, left)
        transaction.changes += 1
        await self._store(transaction)

    async def end(self, producer_id: int, owner: str, *, commit: bool) -> None:
        """Commit or abort.  Returns when that is done; if that takes long, when it is decided.

        Raises:
            TransactionNotFound
            InvalidTransactionStatus: the opposite was decided.
            MetadataError: the transaction is still open.
        """
        await self._decide(self._owned(producer_id, owner), commit=commit)

    # --- for administrators ------------------------------------------------------------------------------------------

    @property
    def all(self) -> list[PulsarTransaction]:
        """All transactions that have not ended."""
        return list(self._by_id.values())

    @property
    def low_water_mark(self) -> int:
        """The producer id up to which all transactions have ended."""
        return min(self._by_id, default=self.last_id + 1) - 1

    def find(self, producer_id: int) -> PulsarTransaction:
        """The transaction, whichever client began it.  Raises TransactionNotFound."""
        transaction = self._by_id.get(producer_id)
        if transaction is None:
            raise _not_found(producer_id)
        return transaction

    async def abort(self, producer_id: int) -> None:
        """Abort as `end` does, whichever client began the transaction."""
        await self._decide(self.find(producer_id), commit=False)

    # --- what clients may do -----------------------------------------------------------------------------------------

    def may_write(self, owner: str, topic: str, index: int, producer_id: int) -> bool:
        """Whether this client may append to the partition in the transaction."""
        transaction = self._by_id.get(producer_id)
        return transaction is not None and transaction.owner == owner and transaction.may_write(topic, index)

    def check_open(self, producer_id: int, owner: str) -> None:
        """Raise TransactionNotFound or InvalidTransactionStatus unless the client's transaction is open."""
        self._open_one(producer_id, owner)

    def _owned(self, producer_id: int, owner: str) -> PulsarTransaction:
        transaction = self.find(producer_id)
        if transaction.owner != owner:
            raise _not_found(producer_id)
        return transaction

    def _open_one(self, producer_id: int, owner: str) -> PulsarTransaction:
        transaction = self._owned(producer_id, owner)
        if not transaction.is_open:
            raise InvalidTransactionStatus(
                f"The transaction {id_text(producer_id)} is {transaction.status.value}, not OPEN"
            )
        return transaction

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _store(self, transaction: PulsarTransaction) -> None:
        """Return when the transaction's present state is durable; of requests that wait together one writes for all."""
        wanted = transaction.changes
        async with transaction.lock:
            if transaction.stored_changes < wanted and transaction.producer_id in self._by_id:
                await self._write(transaction)

    async def _write(self, transaction: PulsarTransaction) -> None:
        """Store the record; the caller holds the transaction's lock."""
        await asyncio.shield(self._submit(transaction))

    def _submit(self, transaction: PulsarTransaction) -> asyncio.Future[None]:
        changes, partitions = transaction.changes, frozenset(transaction.partitions)
        puts = [Put(transaction.path, transaction.encode())]
        self.counts.written += 1
        return self._commits.submit(puts, lambda: transaction.stored(changes, partitions))

    # --- ending ------------------------------------------------------------------------------------------------------

    async def _decide(self, transaction: PulsarTransaction, *, commit: bool) -> None:
        wanted = PulsarStatus.COMMITTING if commit else PulsarStatus.ABORTING
        await self._turn(transaction, wanted)
        if transaction.status is not wanted:
            raise InvalidTransactionStatus(
                f"The transaction {id_text(transaction.producer_id)} is {transaction.status.value},"
                f" it cannot become {wanted.value}"
            )
        assert transaction.ending is not None
        await wait_for_end(transaction.ending, self._clock)

    async def _turn(self, transaction: PulsarTransaction, wanted: PulsarStatus) -> None:
        """Decide how the transaction ends, unless that is decided already."""
        async with transaction.lock:
            if not transaction.is_open:
                return
            # In memory at once, so that later requests no longer belong to it.
            transaction.status = wanted
            transaction.changes += 1
            try:
                await self._write(transaction)
            except MetadataError:
                transaction.status = _OPEN
                raise
            self._start_ending(transaction)

    def _start_ending(self, transaction: PulsarTransaction) -> None:
        name = f"end {id_text(transaction.producer_id)}"
        transaction.ending = self._tasks.begin(name, self._end(transaction))
        self._upkeep.watch(f"transactions: {name}", transaction.ending, may_end=True)

    async def _end(self, transaction: PulsarTransaction) -> None:
        """Carry out the decision everywhere, then remove the transaction."""
        commit = transaction.status is PulsarStatus.COMMITTING
        await write_markers(transaction, commit, self._find_partition, self._clock)
        while True:
            try:
                async with transaction.lock:
                    await self._forget(transaction, commit=commit)
                return
            except (MetadataError, EntryCorrupt, UnknownTopic) as failure:
                log.warning("transaction %s waits: %s", id_text(transaction.producer_id), failure)
            await sleep(self._clock, BACK_OFF_MAX_S)

    async def _forget(self, transaction: PulsarTransaction, *, commit: bool) -> None:
        """Remove the record; if the transaction commits, the same step acknowledges its messages."""
        cursors: dict[CursorKey, Cursor] = {}
        acks = self.pending.of(transaction.producer_id)
        if commit:
            for key, ranges in acks.items():
                # For consumers at once, because it is decided: whatever else stores their position will include it.
                self.pending.settled.happened(key, ranges, True)
                newest = self._cursors.newest(key)
                if newest is not None:
                    cursors[key] = newest.copy()
                    cursors[key].ack_individual(ranges)
        transaction.is_leaving = True
        try:
            await self._cursors.submit(cursors, [Delete(transaction.path)])
        except BaseException:
            transaction.is_leaving = False
            raise
        del self._by_id[transaction.producer_id]
        self._count_out(transaction.owner)
        if commit:
            self.counts.committed += 1
        else:
            self.counts.aborted += 1
        acks = self.pending.of(transaction.producer_id)  # without subscriptions that were deleted meanwhile
        self.pending.end(transaction.producer_id)
        if not commit:
            for key, ranges in acks.items():
                self.pending.settled.happened(key, ranges, False)

    def subscriptions_dropped(self, keys: Collection[CursorKey]) -> None:
        """Remove the acknowledgements of deleted subscriptions from all transactions and their records, because new
        subscriptions may get the same names at once.
        """
        changed: set[int] = set()
        for key in keys:
            for producer_id in self.pending.forget(key):
                del self._by_id[producer_id].acks[key]
                changed.add(producer_id)
        for producer_id in sorted(changed):
            transaction = self._by_id[producer_id]
            transaction.changes += 1
            if not transaction.is_leaving:
                # This write starts before any later one; if it fails, the next write or the next start does the same.
                self._submit(transaction).add_done_callback(_note)

    # --- time --------------------------------------------------------------------------------------------------------

    async def _abort_late(self) -> None:
        late: list[PulsarTransaction] = []
        for number, transaction in enumerate(list(self._by_id.values()), 1):
            if number % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            open_s = self._clock.monotonic() - transaction.began_s
            if transaction.is_open and open_s > transaction.timeout_ms / 1000:
                late.append(transaction)
        for at in range(
            0, len(late), _ABORTED_AT_ONCE
        ):  # readers wait for all transactions that one client has abandoned
            await asyncio.gather(*map(self._abort, late[at : at + _ABORTED_AT_ONCE]))

    async def _abort(self, transaction: PulsarTransaction) -> None:
        log.info("transaction %s timed out", id_text(transaction.producer_id))
        try:
            await self._turn(transaction, PulsarStatus.ABORTING)
        except MetadataError as failure:
            log.warning("transaction %s stays open: %s", id_text(transaction.producer_id), failure)
            return
        self.counts.timed_out += 1
