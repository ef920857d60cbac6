"""The limits on what a subscription hands out: its own, and that of its partition with all that read it; and how many
subscriptions a topic may have.

A subscription's own limit outlives its consumers: a consumer that comes back still has to wait for what the
subscription owes.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import Policies
from magnetar.broker.quotas.dispatch_limit import DispatchLimit, PartitionLimit
from magnetar.broker.quotas.rate_limit import KeptLimits
from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed
from magnetar.ledger.cursor_store import CursorKey
from magnetar.ledger.entry import Entry

Limits = tuple[PartitionLimit, ...]
T = TypeVar("T")


class SubscriptionLimits:
    """See the module's text.  They go by `policies_of`, which other code of this room asks for everything else."""

    def __init__(self, clock: Clock, policies_of: Callable[[TopicName], Policies]) -> None:
        self.policies_of: Final = policies_of
        # By log and subscription: another topic that is made of the same name has another log, and owes nothing.
        self._own = KeptLimits(DispatchLimit, clock)

    def of(self, partition: Partition, subscription: str) -> Limits:
        """Those that a subscription of the partition is under now."""
        both = self.own(partition, subscription), partition.dispatch_limit
        return tuple(limit for limit in both if limit is not None)

    def own(self, partition: Partition, subscription: str) -> DispatchLimit | None:
        """The one that is the subscription's alone."""
        policies = self.policies_of(partition.topic.name)
        rate = policies.subscription_dispatch_rates.get(subscription, policies.subscription_dispatch_rate)
        return self._own.at((partition.log.name, subscription), rate)

    def check_count(self, partition: Partition, names: Callable[[], Collection[str]]) -> None:
        """Raise SubscriptionNotAllowed if the partition may not have all of these subscriptions; `names` finds them."""
        topic = partition.topic.name
        limit = self.policies_of(topic).subscriptions_max
        if limit and len(names()) > limit:
            raise SubscriptionNotAllowed(
                f"Exceed the maximum number of subscriptions of the topic: {topic.full}"
            )


class Pace:
    """How fast one subscription hands out: as its limits let it.  `go_on` is called when they do again."""

    __slots__ = ("_go_on", "_key", "_turns", "limits")

    def __init__(self, key: CursorKey, go_on: Callable[[], None]) -> None:
        self._key = key
        self._go_on = go_on
        self.limits: Limits = ()
        self._turns = 0

    def change(self, limits: Limits) -> None:
        """From now on these are its limits."""
        if limits != self.limits:
            self.leave()
            self.limits = limits
            self._go_on()

    def may_go_on(self) -> bool:
        """Whether more may be read to be handed out; otherwise `go_on` is called when that is so."""
        for limit in self.limits:
            if not limit.admits(self._key):
                limit.wait(self._key, self._go_on)
                self.pass_turns()  # with the other limit's
                return False
        return True

    def pass_turns(self) -> None:
        """There is nothing to hand out now: turns that it has are others'."""
        for limit in self.limits:
            limit.pass_turn(self._key)

    def fitting(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The first ones of these, as many as may be handed out."""
        return entries[: min(limit.fitting(entries) for limit in self.limits)]

    def used(self, messages: int, size: int) -> None:
        """So much was handed out."""
        for limit in self.limits:
            limit.used(messages, size)

    def by_turns(self, waiting: list[T]) -> list[T]:
        """These, each time with another one first: what may go out may be enough for no more."""
        self._turns += 1
        first = self._turns % max(len(waiting), 1)
        return waiting[first:] + waiting[:first]

    def leave(self) -> None:
        """Wait no longer: `go_on` is not called any more."""
        for limit in self.limits:
            limit.leave(self._key)

    def end(self) -> None:
        """Leave, and forget whose pace it is."""
        self.leave()
        self._go_on = _end


def _end() -> None:
    """Nothing goes on."""
