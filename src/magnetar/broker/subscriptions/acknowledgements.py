"""The acknowledgements of one subscription's consumers: message ids, and the offsets that these mean.

An id of a recently delivered entry is known here (`delivered.py`); any other is looked up in the log.  An ack set
shows that the subscription's consumers acknowledge message by message, which is stored with the cursor.
"""

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.ack_turns import AckTurns
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.delivered import DeliveredEntries, Located
from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed
from magnetar.broker.subscriptions.forms import Forms
from magnetar.broker.subscriptions.model import AckedId, SubscriptionType
from magnetar.broker.subscriptions.positions import all_located, located
from magnetar.ledger.compacted_view import LogView
from magnetar.ledger.cursor import Cursor

USES_ACK_SETS: Final = "pulsar.ack.sets"  # a property of the cursor
_SHARED: Final = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)  # without cumulative acknowledgements


class AcknowledgedSubscription(Protocol):
    """The subscription whose messages they are."""

    @property
    def is_durable(self) -> bool: ...
    @property
    def type(self) -> SubscriptionType | None: ...
    @property
    def partition(self) -> Partition: ...
    @property
    def view(self) -> LogView: ...
    @property
    def cursor(self) -> Cursor: ...
    def advance(self, ranges: Sequence[Range], member: SubscribedConsumer | None = None) -> None: ...
    def recount(self) -> None: ...


class Acknowledgements(AckTurns):
    """See the module's text."""

    def __init__(self, owner: AcknowledgedSubscription, forms: Forms) -> None:
        super().__init__()
        self.delivered = DeliveredEntries()
        self._owner = owner
        self._forms = forms

    async def offsets_of(self, ids: Iterable[AckedId], *, cumulative: bool) -> list[Range]:
        """The offsets that a transaction acknowledges by these ids.

        Raises:
            SubscriptionNotAllowed: the subscription's position is not stored, or it has no cumulative
                acknowledgements.
            MessageGone, StorageError: one of the ids cannot be found.  Without it the transaction would commit what
                was made of a message that comes again.
        """
        if not self._owner.is_durable:
            raise SubscriptionNotAllowed("A reader does not acknowledge in transactions")
        if cumulative and self._owner.type in _SHARED:
            raise SubscriptionNotAllowed("A shared subscription has no cumulative acknowledgements")
        known, unknown = self.delivered.acknowledged(ids)
        if unknown:
            known += await all_located(self._owner.partition, self._owner.view, unknown, self._forms)
        return self._ranges(known, cumulative)

    def _take(
        self, member: SubscribedConsumer, ids: Sequence[AckedId], cumulative: bool
    ) -> Coroutine[Any, Any, int] | None:
        if cumulative and member.spec.type in _SHARED:  # its subscription has no type once it has left
            return None
        known, unknown = self.delivered.acknowledged(ids)
        if known:
            self._acknowledge(member, known, cumulative)
        return self._take_later(self._cuts, member, unknown, cumulative) if unknown else None

    async def _take_later(
        self, cuts: int, member: SubscribedConsumer, ids: Sequence[AckedId], cumulative: bool
    ) -> int:
        """Acknowledge what this does not remember: delivered long ago, or before a restart."""
        owner = self._owner
        found, lost = await located(owner.partition, owner.view, ids, self._forms, owner)
        self._check_goes_on(cuts)
        if found:
            self._acknowledge(member, found, cumulative)
        return lost

    def _acknowledge(self, member: SubscribedConsumer, found: Sequence[Located], cumulative: bool) -> None:
        self._owner.advance(self._ranges(found, cumulative), member)
        self.delivered.forget(found, self._owner.cursor.mark_delete)
        self._owner.recount()

    def _ranges(self, found: Sequence[Located], cumulative: bool) -> list[Range]:
        """The offsets that these acknowledge."""
        cursor = self._owner.cursor
        ranges: list[Range] = []
        for acked, base, acknowledged in found:
            if cumulative and cursor.mark_delete < base:
                ranges.append((cursor.mark_delete, base))
            if acked.ack_set:
                cursor.properties.setdefault(USES_ACK_SETS, "")
            ranges += acknowledged
        return ranges
