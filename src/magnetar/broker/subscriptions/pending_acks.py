"""What open transactions of Pulsar's have acknowledged, by subscription and by transaction.

It counts as acknowledged once its transaction commits.  Until then it is not delivered again, and no other transaction
can acknowledge it.  The coordinator takes a transaction's acknowledgements out of here when it ends.
"""

from collections.abc import Iterable, Sequence

from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey


def _no_offsets() -> Cursor:
    """A cursor before every offset: nothing but its ranges."""
    return Cursor(mark_delete=-1)


class PendingAcks:
    """See the module's text.  Transactions are named by their producer ids.

    `by_key` is empty nearly always: subscriptions look for each unit whether it is.
    """

    def __init__(self) -> None:
        self.by_key: dict[CursorKey, dict[int, Cursor]] = {}
        self._by_transaction: dict[int, dict[CursorKey, Cursor]] = {}

    def left(self, key: CursorKey, ranges: Iterable[Range]) -> list[Range]:
        """What of the ranges no transaction has acknowledged."""
        left = list(ranges)
        for acknowledged in self.by_key.get(key, {}).values():
            left = [one for start, end in left for one in acknowledged.unacknowledged(start, end)]
        return left

    def others_have(self, key: CursorKey, transaction: int, ranges: Sequence[Range]) -> bool:
        """Whether another transaction has acknowledged any of the ranges."""
        return any(
            other != transaction and _overlaps(acknowledged, ranges)
            for other, acknowledged in self.by_key.get(key, {}).items()
        )

    def has_any(self, key: CursorKey, transaction: int, ranges: Sequence[Range]) -> bool:
        """Whether the transaction itself has acknowledged any of the ranges."""
        mine = self.by_key.get(key, {}).get(transaction)
        return mine is not None and _overlaps(mine, ranges)

    def add(self, key: CursorKey, transaction: int, ranges: Iterable[Range]) -> None:
        acknowledged = self.by_key.setdefault(key, {}).setdefault(transaction, _no_offsets())
        self._by_transaction.setdefault(transaction, {})[key] = acknowledged
        acknowledged.ack_individual(ranges)

    def of(self, transaction: int) -> dict[CursorKey, list[Range]]:
        """What the transaction has acknowledged."""
        found = self._by_transaction.get(transaction, {})
        return {key: acknowledged.ranges for key, acknowledged in found.items()}

    def take(self, transaction: int) -> None:
        """The transaction has ended."""
        for key in self._by_transaction.pop(transaction, {}):
            self._drop(key, transaction)

    def forget(self, key: CursorKey) -> None:
        """The subscription was deleted."""
        for transaction in list(self.by_key.get(key, ())):
            del self._by_transaction[transaction][key]
            self._drop(key, transaction)

    def _drop(self, key: CursorKey, transaction: int) -> None:
        transactions = self.by_key[key]
        del transactions[transaction]
        if not transactions:
            del self.by_key[key]


def _overlaps(acknowledged: Cursor, ranges: Sequence[Range]) -> bool:
    return any(acknowledged.unacknowledged(start, end) != [(start, end)] for start, end in ranges)
