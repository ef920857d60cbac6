"""The transactional ids in memory, each in its last durable state, and the questions that memory answers at once.

A record is replaced as a whole, under the lock of its id, once its successor is durable.

An id belongs to the principal that asked for it first since the start.  One principal has a share of all ids
(`base/shares.py`); otherwise it could take the places of all others.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from magnetar.base.errors import EntryCorrupt
from magnetar.base.shares import Shares
from magnetar.broker.security.model import Principal
from magnetar.broker.transactions.model import TopicPartition, TransactionRecord, TransactionState
from magnetar.broker.transactions.paths import ROOT
from magnetar.metadata.path_parts import unescape
from magnetar.metadata.store import MetadataStore

log: Final = logging.getLogger(__name__)

_LOOKED_AT_MAX: Final = 1000  # of one owner's ids, for one that could be forgotten


@dataclass(slots=True, eq=False)
class Transaction:
    """One transactional id; a task that decides about it holds `lock` while it reads and replaces the record."""

    transactional_id: str
    record: TransactionRecord | None = None  # None: not stored yet, or no longer
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ending: asyncio.Task[object] | None = None  # writes the markers of a decided transaction
    began: tuple[int, float] | None = (
        None  # `started_ms` of the open transaction, and the monotonic clock then
    )
    is_dropped: bool = False  # a request that waited must look the id up again
    owner: Principal | None = None  # None: not known, or clients need not log in

    @property
    def state(self) -> TransactionState:
        return TransactionState.DEAD if self.record is None else self.record.state


class TransactionRegistry:
    """See the module's text.  There are `ids_max` ids, or nearly so."""

    def __init__(self, ids_max: int) -> None:
        self._places = Shares(ids_max)
        self._by_owner: dict[Principal, OrderedDict[str, Transaction]] = {}  # in the same order as the next
        self._by_id: OrderedDict[str, Transaction] = OrderedDict()  # the one that changed last comes last
        self._by_producer: dict[int, Transaction] = {}
        self._by_group: dict[str, set[Transaction]] = {}  # transactions with offsets of the group
        self.open: set[Transaction] = set()  # the Ongoing ones, which can time out

    async def load(self, metadata: MetadataStore) -> None:
        """Read the stored records.  A damaged one is logged and left out.  Raises MetadataError."""
        for path, stored in await metadata.scan(ROOT):
            transactional_id = unescape(path[len(ROOT) :])
            try:
                record = TransactionRecord.decode(stored.value)
            except EntryCorrupt as damage:
                log.error(
                    "the server leaves out transactional id %r, because its record is damaged: %s",
                    transactional_id,
                    damage,
                )
                continue
            self.publish(self.slot(transactional_id), record)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def to_make_room(self, owner: Principal | None) -> Iterator[Transaction] | None:
        """If there are too many ids, the transactions of which one has to go, beginning with the one that has not
        changed for longest.  They are the owner's, if it has more than its share, otherwise all.  None if there are not
        too many.

        The caller must not change any while it iterates.
        """
        if self._places.room(owner) >= 0:
            return None
        if owner is not None and self._places.room(owner) < self._places.room(None):
            return islice(self._by_owner[owner].values(), _LOOKED_AT_MAX)
        return iter(self._by_id.values())

    def find(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def slot(self, transactional_id: str) -> Transaction:
        """The id's transaction, which is created if there is none."""
        found = self._by_id.get(transactional_id)
        if found is None:
            found = self._by_id[transactional_id] = Transaction(transactional_id)
            self._places.take(None)
        return found

    def own(self, transaction: Transaction, owner: Principal | None) -> None:
        """The id is this principal's from now on, if it has no owner yet."""
        if owner is not None and transaction.owner is None:
            self._places.give(None)
            self._places.take(owner)
            transaction.owner = owner
            self._by_owner.setdefault(owner, OrderedDict())[transaction.transactional_id] = transaction

    def drop(self, transaction: Transaction) -> None:
        self._unlink(transaction)
        transaction.record = None
        transaction.is_dropped = True
        del self._by_id[transaction.transactional_id]
        owner = transaction.owner
        self._places.give(owner)
        if owner is not None:
            own = self._by_owner[owner]
            del own[transaction.transactional_id]
            if not own:
                del self._by_owner[owner]

    def publish(self, transaction: Transaction, record: TransactionRecord) -> None:
        """Answer from `record` from now on, because it is durable."""
        self._unlink(transaction)
        transaction.record = record
        self._by_id.move_to_end(transaction.transactional_id)
        if transaction.owner is not None:
            self._by_owner[transaction.owner].move_to_end(transaction.transactional_id)
        self._by_producer[record.producer_id] = transaction
        if record.state is TransactionState.ONGOING:
            self.open.add(transaction)
        else:
            transaction.began = None
        for group in record.offsets:
            self._by_group.setdefault(group, set()).add(transaction)

    def _unlink(self, transaction: Transaction) -> None:
        record = transaction.record
        if record is None:
            return
        del self._by_producer[record.producer_id]
        self.open.discard(transaction)
        for group in record.offsets:
            holders = self._by_group[group]
            holders.discard(transaction)
            if not holders:
                del self._by_group[group]

    # questions

    def is_in_transaction(
        self, producer_id: int, epoch: int, topic: str, partition: int, transactional_id: str | None
    ) -> bool:
        """Whether the partition is in the producer's open transaction, and that belongs to `transactional_id`.

        Producer ids are consecutive numbers, which any client can guess: the right to write depends on the
        transactional id.
        """
        transaction = self._by_producer.get(producer_id)
        record = None if transaction is None else transaction.record
        return (
            transaction is not None
            and record is not None
            and transaction.transactional_id == transactional_id
            and record.epoch == epoch
            and record.state is TransactionState.ONGOING
            and (topic, partition) in record.partitions
        )

    def pending_offsets(self, group_id: str) -> set[TopicPartition]:
        return {
            key
            for transaction in self._by_group.get(group_id, ())
            if transaction.record is not None
            for key in transaction.record.offsets[group_id]
        }
