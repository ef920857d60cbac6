"""What a broker does with the bundles that it owns: a state machine without I/O, clock or coroutines.

The broker owns what the records name it for, from the moment in which it hears of that.  The machine answers what the
view says with actions: `Serve` a bundle, `Stop` serving it, `Drop` it.  The three states of a bundle that is held:

    SERVING --Stop: a wish, or the broker leaves--> STOPPING --stopped()--> STOPPED --the record changes--> not held

Whatever the state, a bundle is held only while its record is the one under which it is served.  A record that changes
in another way means that the broker was deposed, and what it still serves of the bundle is dropped.

What must stay true: the broker serves nothing of a bundle when it offers the bundle's record to others (`handovers`),
and two holds of one bundle never have the same generation.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from magnetar.broker.cluster.bundles import Bundle
from magnetar.broker.cluster.ownership.records import Record, alive
from magnetar.broker.cluster.ownership.view import View
from magnetar.metadata.store import Check, CommitStep


@dataclass(frozen=True, slots=True)
class Hold:
    """A bundle that its owner serves, as one record says."""

    record: Record

    @property
    def bundle(self) -> Bundle:
        return self.record.bundle

    @property
    def generation(self) -> int:
        """The leader epoch of all logs of the bundle."""
        return self.record.generation

    @property
    def checks(self) -> Sequence[Check]:
        """What each commit carries that depends on the ownership: this generation has not ended, and the broker that
        it was given to is alive.
        """
        return (self.record.unchanged, alive(self.record.owner))


@dataclass(frozen=True, slots=True)
class Serve:
    """Open what belongs to the bundle."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Stop:
    """Take no more work for the bundle, finish and close what it has, then say `stopped`."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Drop:
    """Let go at once of what belongs to the bundle: it is another broker's."""

    hold: Hold


Action = Serve | Stop | Drop


class State(Enum):
    SERVING = auto()
    STOPPING = auto()
    STOPPED = auto()


@dataclass(slots=True)
class _Held:
    hold: Hold
    state: State = State.SERVING


class Owner:
    """See the module's text; `view` is learnt elsewhere, and `look_at` says what follows from a change of it."""

    def __init__(self, broker: str, view: View) -> None:
        self.broker = broker
        self._view = view
        self._held: dict[Bundle, _Held] = {}
        self._is_leaving = False

    @property
    def holds(self) -> list[Hold]:
        return [held.hold for held in self._held.values()]

    def serving(self, namespace: str, position: int) -> Hold | None:
        """Under which hold this broker takes work for a position; None: it does not, now."""
        record = self._view.find(namespace, position)
        held = None if record is None else self._held.get(record.bundle)
        return held.hold if held is not None and held.state is State.SERVING else None

    # --- what the view says ------------------------------------------------------------------------------------------

    def look_at(self, bundles: Iterable[Bundle]) -> list[Action]:
        """What to do, at once and in this order, after the records or wishes of these bundles have changed."""
        return [action for bundle in bundles for action in self._look_at(bundle)]

    def _look_at(self, bundle: Bundle) -> list[Action]:
        actions: list[Action] = []
        record = self._view.records.get(bundle)
        held = self._held.get(bundle)
        if held is not None and record != held.hold.record:
            del self._held[bundle]
            if held.state is not State.STOPPED:
                actions.append(Drop(held.hold))
            held = None
        if held is None and record is not None and record.owner == self.broker and not self._is_leaving:
            held = self._held[bundle] = _Held(Hold(record))
            actions.append(Serve(held.hold))
        if held is not None and self._view.wish_for(held.hold.record) is not None:
            actions += self._stop(held)
        return actions

    def _stop(self, held: _Held) -> list[Action]:
        if held.state is not State.SERVING:
            return []
        held.state = State.STOPPING
        return [Stop(held.hold)]

    def leave(self) -> list[Action]:
        """The broker takes nothing more, and stops serving what it has.  The leader gives that to others when the
        broker's session has ended, in one commit.
        """
        self._is_leaving = True
        return [action for held in self._held.values() for action in self._stop(held)]

    def end(self) -> list[Action]:
        """The broker's session has ended: whatever it still has may be another broker's."""
        held, self._held = list(self._held.values()), {}
        self._is_leaving = True
        return [Drop(one.hold) for one in held if one.state is not State.STOPPED]

    # --- letting go --------------------------------------------------------------------------------------------------

    def stopped(self, hold: Hold) -> None:
        """What `Stop` asked for has been done."""
        held = self._held.get(hold.bundle)
        if held is not None and held.hold == hold:
            held.state = State.STOPPED

    def handovers(self) -> list[Sequence[CommitStep]]:
        """A commit for each bundle that the broker has stopped serving.  Their outcome shows in the view."""
        if self._is_leaving:
            return []
        return [
            self._handover(held.hold.record) for held in self._held.values() if held.state is State.STOPPED
        ]

    def _handover(self, record: Record) -> Sequence[CommitStep]:
        wish = self._view.wish_for(record)
        steps: list[CommitStep] = [alive(self.broker)]
        if wish is None:
            return [*steps, record.let_go()]
        steps.append(wish.delete())
        if wish.boundary:
            return [*steps, *record.split(wish.boundary)]
        if wish.to in self._view.alive:
            return [*steps, alive(wish.to), record.pass_to(wish.to)]
        return [*steps, record.let_go()]
