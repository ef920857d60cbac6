"""What subscriptions remember of messages that are not acknowledged, and how much that may be.

This memory is an object for each entry, or part of one, that a dispatcher knows of.  It is also a row for each message
id that is known without a look into the log.  Messages that are to be delivered much later take a small part of a row
each.  Consumers decide how many there are: by what they do not acknowledge, and by how much they delay.  The limits of
unacknowledged messages are a subscription's, and a client may have any number of those.  So there is a limit for all of
them together.

Past it a subscription keeps no more than `ROWS_EACH`, so that it can continue.  A dispatcher that knows of more gets
nothing new to deliver until consumers have acknowledged some.  The oldest message ids are forgotten, and looked up when
a client sends them.
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
        self.waiting: set[Callable[[], None]] = set()  # called when there is room again

    def room(self, mine: int) -> int:
        """How many more a subscription may have, beside its own ones."""
        return max(self._max - self.count, ROWS_EACH - mine, 0)

    def wake_if_enough(self) -> None:
        """There may be fewer than before: let those go on that wait."""
        if self.count < self._enough:
            waiting, self.waiting = self.waiting, set()
            for wake in waiting:
                wake()


class Remembered:
    """Those of one subscription; `wake` makes it read on.

    Each entry that goes out, and each acknowledgement, is counted: so that calls nothing that it need not call.
    """

    __slots__ = ("_all", "_ids", "_mine", "_wake")

    def __init__(self, all_rows: Rows, delivered: DeliveredEntries, wake: Callable[[], None]) -> None:
        self._all = all_rows
        self._ids = delivered.known
        self._wake = wake
        self._mine = 0

    def recount(self, dispatcher: Dispatcher | None) -> None:
        """Something may have changed; without a dispatcher, nothing is to be read."""
        rows = self._all
        mine = len(self._ids)
        if dispatcher is None:
            rows.waiting.discard(self._wake)
        elif dispatcher.remembers:
            mine += dispatcher.rows(ROW_BYTES)
        if mine != self._mine:
            rows.count += mine - self._mine
            self._mine = mine
            if rows.waiting:
                rows.wake_if_enough()

    def to_read(self, dispatcher: Dispatcher, wanted: int) -> int:
        """How many entries may be read where the dispatcher wants so many."""
        if wanted <= 0 or not dispatcher.remembers:
            return wanted
        return self._room_for(wanted, dispatcher, dispatcher.rows(ROW_BYTES))

    def to_read_again(self, dispatcher: Dispatcher, wanted: int) -> int:
        """The same of entries whose time has come: what was delayed counts as little as if it were gone already."""
        return self._room_for(wanted, dispatcher, dispatcher.unit_count)

    def _room_for(self, wanted: int, dispatcher: Dispatcher, known: int) -> int:
        self.recount(dispatcher)
        if not known:
            return wanted
        room = self._all.room(known)
        if not room:
            self._all.waiting.add(self._wake)
        return min(wanted, room)

    @property
    def ids_max(self) -> int:
        """How many message ids may be known."""
        known = len(self._ids)
        return min(ENTRIES_MAX, known + self._all.room(known))
