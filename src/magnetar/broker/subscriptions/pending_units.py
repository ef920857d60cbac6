"""What open transactions have acknowledged of one subscription, as its dispatcher counts: in units."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.pending_acks import PendingAcks
from magnetar.ledger.cursor_store import CursorKey


class PendingUnits(NamedTuple):
    """See the module's text."""

    acks: PendingAcks
    key: CursorKey

    def has(self, unit: Unit) -> bool:
        """Whether open transactions have acknowledged all that is left of a unit."""
        return not self.acks.left(self.key, _offsets(unit))

    def count(self, unit: Unit) -> int:
        """How many of the messages that are left of a unit they have acknowledged."""
        left = sum(end - start for start, end in self.acks.left(self.key, _offsets(unit)))
        return max(0, unit.message_count - left)

    def left(self, unit: Unit) -> Sequence[Range] | None:
        """What they have left of a unit; None for all of its entry."""
        offsets = _offsets(unit)
        left = self.acks.left(self.key, offsets)
        return unit.offsets if left == offsets else tuple(left)

    def parted(self, units: Sequence[Unit]) -> tuple[list[Unit], int]:
        """The units but those that they have acknowledged, and the permits that the latter have cost."""
        others = [unit for unit in units if not self.has(unit)]
        permits = sum([unit.permits for unit in units]) - sum([unit.permits for unit in others])
        return others, permits

    def without(
        self, held: Collection[Unit], bases: set[int] | None, entries: set[object] | None
    ) -> tuple[set[int] | None, set[object] | None]:
        """Of what a consumer with these units wants again (None: all) what they have not acknowledged."""
        pending = {unit.entry for unit in held if self.has(unit)}
        if not pending:
            return bases, entries
        if bases is None or entries is None:
            bases, entries = {unit.base_offset for unit in held}, {unit.entry for unit in held}
        return bases, entries - pending


def _offsets(unit: Unit) -> list[Range]:
    return [(unit.base_offset, unit.end_offset)] if unit.offsets is None else list(unit.offsets)
