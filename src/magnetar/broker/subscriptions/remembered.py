"""What subscriptions remember of messages that are not acknowledged, and how much that may be.

It is an object for each entry, or part of one, that a dispatcher knows of, and a row for each message id that is known
without a look into the log; messages that are to be delivered much later take a small part of a row each.  Consumers
decide how many there are: by what they do not acknowledge, and by how much they delay.  The limits of unacknowledged
messages are a subscription's, and a client may have any number of those.  So there is a limit for all of them together.

Past it a subscription has no more than `ROWS_EACH`, so that it gets on: a dispatcher that knows of more is given
nothing new to deliver until others have acknowledged, and the oldest message ids are forgotten, and looked up when they
come.
"""

from collections.abc import Callable
from typing import Final

from magnetar.broker.subscriptions.delivered import ENTRIES_MAX, DeliveredEntries
from magnetar.broker.subscriptions.dispatch.model import Dispatcher

ROW_BYTES: Final = 512  # of either kind, with what points to it
ROWS_EACH: Final = 200


class Rows:
    """Those of all subscriptions."""

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max // ROW_BYTES
        self._enough = self._max - (self._max >> 3)  # or each acknowledgement would wake all that wait
        self.count = 0
        self._waiting: set[Callable[[], None]] = set()

    def room(self, mine: int) -> int:
        """How many more a subscription may have, beside its own ones."""
        return max(self._max - self.count, ROWS_EACH - mine, 0)

    def change(self, by: int) -> None:
        self.count += by
        if self._waiting and self.count < self._enough:
            waiting, self._waiting = self._waiting, set()
            for wake in waiting:
                wake()

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` when there is room again."""
        self._waiting.add(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        self._waiting.discard(wake)


class Remembered:
    """Those of one subscription; `wake` makes it read on."""

    __slots__ = ("_all", "_delivered", "_mine", "_wake")

    def __init__(self, all_rows: Rows, delivered: DeliveredEntries, wake: Callable[[], None]) -> None:
        self._all = all_rows
        self._delivered = delivered
        self._wake = wake
        self._mine = 0

    def recount(self, dispatcher: Dispatcher | None) -> None:
        """Something may have changed; without a dispatcher, nothing is to be read."""
        mine = len(self._delivered)
        if dispatcher is None:
            self._all.leave(self._wake)
        else:
            mine += dispatcher.unit_count + dispatcher.delayed_bytes // ROW_BYTES
        if mine != self._mine:
            by, self._mine = mine - self._mine, mine
            self._all.change(by)

    def to_read(self, dispatcher: Dispatcher, wanted: int) -> int:
        """How many entries may be read where the dispatcher wants so many."""
        return self._room_for(
            wanted, dispatcher, dispatcher.unit_count + dispatcher.delayed_bytes // ROW_BYTES
        )

    def to_read_again(self, dispatcher: Dispatcher, wanted: int) -> int:
        """The same of entries whose time has come: what was delayed counts as little as if it were gone already."""
        return self._room_for(wanted, dispatcher, dispatcher.unit_count)

    def _room_for(self, wanted: int, dispatcher: Dispatcher, known: int) -> int:
        self.recount(dispatcher)
        if wanted <= 0 or not known:
            return wanted
        room = self._all.room(known)
        if not room:
            self._all.wait(self._wake)
        return min(wanted, room)

    @property
    def ids_max(self) -> int:
        """How many message ids may be known."""
        known = len(self._delivered)
        return min(ENTRIES_MAX, known + self._all.room(known))
