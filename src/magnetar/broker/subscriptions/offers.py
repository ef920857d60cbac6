"""What a subscription reads of its log, and what of that it offers to its dispatcher.

Entries that were delayed are read twice: when they are new, and when their time has come.  The second time they are
as the log and the cursor have them by then, so it does not matter what has been acknowledged or compacted meanwhile.
"""

from collections.abc import Sequence
from typing import Protocol

from magnetar.base.clock import Clock
from magnetar.broker.interop.model import Formed
from magnetar.broker.subscriptions import forms
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.delivery_counts import DeliveryCounts
from magnetar.broker.subscriptions.dispatch.model import Actions, Dispatcher, Unit
from magnetar.broker.subscriptions.limits import Pace
from magnetar.broker.subscriptions.model import Counters
from magnetar.broker.subscriptions.remembered import Remembered
from magnetar.ledger.compacted_view import LogView
from magnetar.ledger.cursor import Cursor


class Offering(Protocol):
    """The subscription that reads."""

    @property
    def dispatcher(self) -> Dispatcher | None: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def counts(self) -> DeliveryCounts: ...
    @property
    def pace(self) -> Pace: ...
    @property
    def view(self) -> LogView: ...
    @property
    def shows_rest(self) -> bool: ...
    def advance(self, ranges: Sequence[Range]) -> None: ...
    def carry_out(self, actions: Actions) -> None: ...


class Offers:
    """See the module's text."""

    def __init__(self, owner: Offering, clock: Clock, counters: Counters, remembered: Remembered) -> None:
        self._owner = owner
        self._clock = clock
        self._counters = counters
        self._remembered = remembered

    def wanted(self) -> int:
        """How many entries the dispatcher wants now; asked before every read."""
        dispatcher = self._owner.dispatcher
        if dispatcher is None:
            return 0
        return self._may_read(self._remembered.to_read(dispatcher, dispatcher.wanted()))

    def due(self) -> list[int]:
        """Where entries begin that are to be read again now, ascending."""
        dispatcher = self._owner.dispatcher
        if dispatcher is None or not dispatcher.remembers or not (wanted := dispatcher.wanted_due()):
            return []
        return dispatcher.due(self._may_read(self._remembered.to_read_again(dispatcher, wanted)))

    def _may_read(self, wanted: int) -> int:
        owner = self._owner
        cursor, log_start = owner.cursor, owner.view.log_start
        if wanted > 0 and cursor.mark_delete < log_start:
            # Retention or DeleteRecords has taken what was not acknowledged.
            owner.advance([(cursor.mark_delete, log_start)])
        if wanted > 0 and owner.pace.limits and not owner.pace.may_go_on():
            return 0
        return wanted

    def offer(self, formed: Sequence[Formed]) -> None:
        """Entries that were read, in order."""
        owner, dispatcher = self._owner, self._owner.dispatcher
        if dispatcher is None:
            return
        units = self._units(dispatcher, formed)
        if units:
            owner.carry_out(dispatcher.offer(units, self._clock.now_ms()))

    def offer_due(self, formed: Sequence[Formed], gone: Sequence[Range]) -> None:
        """Entries that were read again, in order; `gone` are the offsets of those that the log no longer has."""
        owner, dispatcher = self._owner, self._owner.dispatcher
        if dispatcher is None:
            return
        units = self._units(dispatcher, formed, gone)
        entries = [(one.entry.base_offset, one.entry.last_offset + 1) for one in formed]
        owner.carry_out(dispatcher.offer_due(units, [*entries, *gone], self._clock.now_ms()))

    def _units(
        self, dispatcher: Dispatcher, formed: Sequence[Formed], gone: Sequence[Range] = ()
    ) -> list[Unit]:
        """What the dispatcher is to have of these; what no consumer is to see is acknowledged, as is what is gone."""
        owner = self._owner
        units, unseen = forms.make_units(formed, owner.cursor, dispatcher.type, shows_rest=owner.shows_rest)
        unseen += gone
        if unseen:
            self._counters.unseen += sum([end - start for start, end in unseen])
            owner.advance(unseen)
        return owner.counts.with_known(units) if units else units
