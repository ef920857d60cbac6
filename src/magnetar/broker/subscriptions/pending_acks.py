"""What open transactions of Pulsar's have acknowledged, by subscription and by transaction.

It counts as acknowledged once its transaction commits.  Until then it is not delivered again, and no other transaction
can acknowledge it.  So no two transactions of a subscription have an offset in common.  One set of all these offsets
answers most questions, however many transactions there are.  The coordinator takes a transaction's acknowledgements out
of here when it ends.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.base.event import Event
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey


def no_offsets() -> Cursor:
    """A cursor before every offset: nothing but its ranges."""
    return Cursor(mark_delete=-1)


class _Pending:
    """Of one subscription."""

    __slots__ = ("all", "by_transaction")

    def __init__(self) -> None:
        self.all = no_offsets()
        self.by_transaction: dict[int, Cursor] = {}


class PendingAcks:
    """See the module's text.  Transactions are named by their producer ids.

    `by_key` is empty nearly always: subscriptions look for each unit whether it is.

    `settled` happens with offsets of a subscription for which its transaction has ended: they are acknowledged (True),
    or must be delivered again (False).
    """

    def __init__(self) -> None:
        self.by_key: dict[CursorKey, _Pending] = {}
        self._by_transaction: dict[int, dict[CursorKey, Cursor]] = {}
        self.settled: Final[Event[CursorKey, Sequence[Range], bool]] = Event()

    def left(self, key: CursorKey, ranges: Iterable[Range]) -> list[Range]:
        """What of the ranges no transaction has acknowledged."""
        pending = self.by_key.get(key)
        if pending is None:
            return list(ranges)
        return [one for start, end in ranges for one in pending.all.unacknowledged(start, end)]

    def others_have(self, key: CursorKey, transaction: int, ranges: Sequence[Range]) -> bool:
        """Whether another transaction has acknowledged any of the ranges."""
        pending = self.by_key.get(key)
        if pending is None:
            return False
        mine = pending.by_transaction.get(transaction, _NONE)
        return any(pending.all.unacknowledged(*one) != mine.unacknowledged(*one) for one in ranges)

    def has_any(self, key: CursorKey, transaction: int, ranges: Sequence[Range]) -> bool:
        """Whether the transaction itself has acknowledged any of the ranges."""
        pending = self.by_key.get(key)
        if pending is None:
            return False
        mine = pending.by_transaction.get(transaction, _NONE)
        return any(mine.unacknowledged(*one) != [one] for one in ranges)

    def add(self, key: CursorKey, transaction: int, ranges: Sequence[Range]) -> Cursor:
        """The transaction acknowledges these, too; all that it has acknowledged there, which will grow."""
        pending = self.by_key.setdefault(key, _Pending())
        mine = pending.by_transaction.setdefault(transaction, no_offsets())
        self._by_transaction.setdefault(transaction, {})[key] = mine
        mine.ack_individual(ranges)
        pending.all.ack_individual(ranges)
        return mine

    def transaction_count(self, key: CursorKey) -> int:
        """How many open transactions have acknowledged something of the subscription."""
        pending = self.by_key.get(key)
        return 0 if pending is None else len(pending.by_transaction)

    def of(self, transaction: int) -> dict[CursorKey, list[Range]]:
        """What the transaction has acknowledged."""
        found = self._by_transaction.get(transaction, {})
        return {key: acknowledged.ranges for key, acknowledged in found.items()}

    def end(self, transaction: int) -> None:
        """The transaction has ended."""
        for key, mine in self._by_transaction.pop(transaction, {}).items():
            pending = self.by_key[key]
            del pending.by_transaction[transaction]
            pending.all.take_back(mine.ranges)
            if not pending.by_transaction:
                del self.by_key[key]

    def forget(self, key: CursorKey) -> list[int]:
        """The subscription was deleted; the transactions that had acknowledged something there."""
        pending = self.by_key.pop(key, None)
        if pending is None:
            return []
        for transaction in pending.by_transaction:
            del self._by_transaction[transaction][key]
        return list(pending.by_transaction)


_NONE = no_offsets()  # never changed
