"""What the broker that leads decides: commits that follow from its view.

Each broker has a `Leader`, and only that of the first broker alive, by name, decides anything.  Two brokers may both
believe to be the first for a while.  That does no harm, because each commit expects the versions from which it follows:
of two that differ, one fails.

The leader gives bundles to brokers that are alive, if their owners are not.  It asks the owner (a wish) if a bundle is
to move.  If the owner does not do in time what is wished, it loses the bundle.  That is safe at any moment, as its logs
are fenced and its commits refused; it costs clients some requests, and the new owner a recovery.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from magnetar.broker.cluster.bundles import Bundle
from magnetar.broker.cluster.ownership.assignment import Snapshot, homes, moves
from magnetar.broker.cluster.ownership.records import Record, Wish, alive
from magnetar.broker.cluster.ownership.view import View
from magnetar.metadata.store import CommitStep

PATIENCE_S: Final = 5.0  # with an owner that is to let a bundle go
MOVES_MAX: Final = 8  # wishes at a time, because a bundle takes no work while it moves
BUNDLES_PER_COMMIT: Final = 500

Loads = Callable[[], Mapping[Bundle, float]]


@dataclass(frozen=True, slots=True)
class _Seen:
    wish: Wish
    since_s: float


class Leader:
    """See the module's text."""

    def __init__(self, broker: str, view: View, loads: Loads) -> None:
        self.broker = broker
        self._view = view
        self._loads = loads
        self._seen: dict[Bundle, _Seen] = {}

    def decide(self, now_s: float) -> list[Sequence[CommitStep]]:
        """Commits that do not depend on one another.  Their outcome shows in the view."""
        if self._view.leader != self.broker:
            self._seen.clear()
            return []
        self._look_at_wishes(now_s)
        return [*self._assign(), *self._depose(now_s), *self._tidy(), *self._balance()]

    def _look_at_wishes(self, now_s: float) -> None:
        before, self._seen = self._seen, {}
        for bundle, wish in self._view.wishes.items():
            seen = before.get(bundle)
            self._seen[bundle] = seen if seen is not None and seen.wish == wish else _Seen(wish, now_s)

    # --- bundles whose owners are gone -------------------------------------------------------------------------------

    def _assign(self) -> list[Sequence[CommitStep]]:
        view = self._view
        orphans = [bundle for bundle, record in view.records.items() if record.owner not in view.alive]
        given = iter(homes(self._snapshot(), orphans).items()) if orphans else iter(())
        commits: list[Sequence[CommitStep]] = []
        while some := list(islice(given, BUNDLES_PER_COMMIT)):
            steps: list[CommitStep] = [
                alive(broker) for broker in sorted({self.broker, *dict(some).values()})
            ]
            for bundle, broker in some:
                steps += self._give(view.records[bundle], broker)
            commits.append(steps)
        return commits

    def _give(self, record: Record, broker: str) -> list[CommitStep]:
        wish = self._view.wishes.get(record.bundle)
        return [record.pass_to(broker), *([] if wish is None else [wish.delete()])]

    def _snapshot(self) -> Snapshot:
        """Where bundles are, or will be when they have moved."""
        view = self._view
        owners: dict[Bundle, str] = {}
        for bundle, record in view.records.items():
            if record.owner in view.alive:
                wish = view.wish_for(record)
                owners[bundle] = wish.to if wish is not None and wish.to in view.alive else record.owner
        return Snapshot(view.alive, owners, self._loads())

    # --- wishes ------------------------------------------------------------------------------------------------------

    def _depose(self, now_s: float) -> list[Sequence[CommitStep]]:
        """Take bundles from owners that do not let them go."""
        view = self._view
        commits: list[Sequence[CommitStep]] = []
        for bundle, seen in self._seen.items():
            record = view.records.get(bundle)
            if record is None or view.wish_for(record) is None or record.owner not in view.alive:
                continue
            if now_s - seen.since_s >= PATIENCE_S:
                steps: list[CommitStep] = [alive(self.broker), seen.wish.delete()]
                if seen.wish.to in view.alive:
                    commits.append([*steps, alive(seen.wish.to), record.pass_to(seen.wish.to)])
                else:
                    commits.append([*steps, record.let_go()])
        return commits

    def _tidy(self) -> list[Sequence[CommitStep]]:
        """Remove wishes whose generation is over."""
        view = self._view
        return [
            [alive(self.broker), wish.delete()]
            for bundle, wish in view.wishes.items()
            if bundle not in view.records or wish.generation < view.records[bundle].generation
        ]

    # --- balance -----------------------------------------------------------------------------------------------------

    def _balance(self) -> list[Sequence[CommitStep]]:
        view = self._view
        snapshot = self._snapshot()
        if len(snapshot.owners) < len(view.records):
            return []  # first all bundles get an owner
        chosen = moves(snapshot, MOVES_MAX - len(view.wishes), view.wishes)
        return [
            [alive(self.broker), alive(to), *ask(view.records[bundle], to)] for bundle, to in chosen.items()
        ]


def ask(record: Record, to: str = "", boundary: int = 0) -> list[CommitStep]:
    """Steps that ask the owner of a record to let the bundle go.  They fail if the record has changed, or if something
    else is wished of the owner already.
    """
    assert not boundary or record.bundle.low < boundary < record.bundle.high, (record, boundary)
    return [record.unchanged, Wish(record.bundle, record.generation, to, boundary).put()]
