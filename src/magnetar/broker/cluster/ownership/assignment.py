"""Where bundles without an owner go, and which of the others move: functions of a snapshot.

The weight of a bundle is 1 for being there, and its load in addition, in units of what being there costs.  Where no
loads are known, brokers are thus filled by the number of bundles.  Equal snapshots give equal answers.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.cluster.bundles import Bundle

TOLERANCE: Final = 0.1  # of the mean, by which two brokers may differ before a bundle moves


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Brokers that take bundles, and bundles that such a broker has."""

    brokers: Collection[str]
    owners: Mapping[Bundle, str]
    loads: Mapping[Bundle, float] = field(default_factory=dict)

    def weight(self, bundle: Bundle) -> float:
        return 1.0 + self.loads.get(bundle, 0.0)


class _Filling:
    """How full the brokers are, while bundles are put there."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.weights = dict.fromkeys(sorted(snapshot.brokers), 0.0)
        self.neighbours: Counter[tuple[str, str]] = Counter()
        self.bundles: dict[str, list[Bundle]] = {broker: [] for broker in self.weights}
        for bundle, broker in snapshot.owners.items():
            self.put(bundle, broker)

    def put(self, bundle: Bundle, broker: str) -> None:
        self.weights[broker] += self.snapshot.weight(bundle)
        self.neighbours[broker, bundle.namespace] += 1
        self.bundles[broker].append(bundle)

    def lightest(self, namespace: str) -> str:
        """Of equal ones, the broker that has the fewest bundles of this namespace."""
        return min(
            self.weights,
            key=lambda broker: (self.weights[broker], self.neighbours[broker, namespace], broker),
        )


def homes(snapshot: Snapshot, orphans: Collection[Bundle]) -> dict[Bundle, str]:
    """A broker for each bundle without an owner, the heaviest bundle first; none if there are no brokers."""
    filling = _Filling(snapshot)
    found: dict[Bundle, str] = {}
    if filling.weights:
        for bundle in sorted(orphans, key=lambda one: (-snapshot.weight(one), one)):
            found[bundle] = filling.lightest(bundle.namespace)
            filling.put(bundle, found[bundle])
    return found


def moves(snapshot: Snapshot, count_max: int, fixed: Collection[Bundle] = ()) -> dict[Bundle, str]:
    """At most `count_max` bundles and where they move, so that brokers have about the same weight; those in `fixed`
    stay.  A bundle moves only if its old owner has as much as its new one afterwards, so none moves back.
    """
    filling = _Filling(snapshot)
    found: dict[Bundle, str] = {}
    while len(found) < count_max:
        move = _next_move(filling, {*fixed, *found})
        if move is None:
            break
        bundle, giver, taker = move
        filling.weights[giver] -= snapshot.weight(bundle)
        filling.weights[taker] += snapshot.weight(bundle)
        found[bundle] = taker
    return found


def _next_move(filling: _Filling, fixed: Collection[Bundle]) -> tuple[Bundle, str, str] | None:
    """From the heaviest broker that has a bundle small enough, to the lightest: bundle, giver, taker."""
    weights, weight = filling.weights, filling.snapshot.weight
    if not weights:
        return None
    taker = min(weights, key=lambda broker: (weights[broker], broker))
    tolerated = TOLERANCE * sum(weights.values()) / len(weights)
    for giver in sorted(weights, key=lambda broker: (-weights[broker], broker)):
        gap = weights[giver] - weights[taker]
        if gap <= tolerated:
            return None
        small = [
            bundle for bundle in filling.bundles[giver] if bundle not in fixed and weight(bundle) <= gap / 2
        ]
        if small:
            return max(small, key=lambda bundle: (weight(bundle), bundle)), giver, taker
    return None
