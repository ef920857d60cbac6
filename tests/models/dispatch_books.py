"""What a dispatcher must never do, as books kept beside it in the simplest way that could be right.

Sets of offsets, dictionaries of who holds what: every delivery is compared with them, and after each step they are
compared with the dispatcher's figures.  A broken promise is an AssertionError.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from magnetar.broker.subscriptions.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.subscriptions.dispatch.failover import FailoverDispatcher
from magnetar.broker.subscriptions.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.subscriptions.dispatch.model import (
    Actions,
    ActiveChange,
    Consumer,
    Deliver,
    Dispatcher,
    Rewind,
    Unit,
)
from magnetar.broker.subscriptions.dispatch.multi import (
    LOOK_AHEAD_MAX,
    LOOK_AHEAD_PER_CONSUMER,
    MultiConsumerDispatcher,
)
from magnetar.broker.subscriptions.dispatch.shared import SharedDispatcher

TICK_MS = 10
TOPIC = "persistent://public/default/model"


class Kind(Enum):
    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    FAILOVER_RING = "failover-ring"
    SHARED = "shared"
    KEY_SHARED = "key-shared"
    KEY_SHARED_STICKY = "key-shared-sticky"
    KEY_SHARED_UNORDERED = "key-shared-unordered"

    @property
    def is_multi(self) -> bool:
        return self not in (Kind.EXCLUSIVE, Kind.FAILOVER, Kind.FAILOVER_RING)

    @property
    def has_keys(self) -> bool:
        return self.value.startswith("key-shared")


@dataclass(frozen=True)
class Limits:
    """0: none."""

    per_consumer: int = 0
    per_subscription: int = 0


@dataclass(frozen=True)
class Part:
    """Messages of one entry that are delivered together."""

    base: int
    end: int
    offsets: frozenset[int]
    slot: int
    deliver_at_ms: int
    chunk_id: str | None

    @property
    def key(self) -> tuple[int, int]:
        return (self.base, min(self.offsets))


@dataclass
class Client:
    """What a consumer's client knows: its permits as it counts them."""

    consumer: Consumer
    permits: int = 0
    writable: bool = True
    blocked: bool = False
    parts: dict[tuple[int, int], Part] = field(default_factory=dict)

    @property
    def available(self) -> bool:
        return self.permits > 0 and self.writable and not self.blocked


class Books:
    """One subscription as it should be."""

    def __init__(self, kind: Kind, limits: Limits) -> None:
        self.kind = kind
        self.limits = limits
        self.now_ms = 0
        self.log: list[list[Part]] = []  # entries, each as its parts
        self.end_offset = 0
        self.acked: set[int] = set()
        self.saved: set[int] = set()  # what a kill leaves of `acked`
        self.clients: list[Client] = []
        self.names = 0
        self.deliveries = 0
        self.start_anew()

    def start_anew(self) -> None:
        """A dispatcher that knows nothing."""
        self.dispatcher = self._make()
        self.read_entry = 0  # the next entry to read
        self.in_flight: tuple[int, int] | None = None  # a read that is under way: entries [from, to)
        self.in_flight_due: list[int] = []  # the same of entries that were delayed, by their bases
        self.offered: dict[tuple[int, int], Part] = {}
        self.fresh: set[tuple[int, int]] = set()  # of those: never delivered nor delayed
        self.delayed: set[tuple[int, int]] = set()  # not read again yet
        self.ripe: set[tuple[int, int]] = set()  # of those: a tick has come since they were due
        self.counts: dict[tuple[int, int], int] = {}
        self.expected_base = 0  # one active consumer: everything before it is acknowledged or delivered
        self.subscription_blocked = False
        self.blocked_before = False

    def _make(self) -> Dispatcher:
        most = self.limits.per_subscription
        match self.kind:
            case Kind.EXCLUSIVE:
                return ExclusiveDispatcher()
            case Kind.FAILOVER:
                return FailoverDispatcher(TOPIC, 5)
            case Kind.FAILOVER_RING:
                return FailoverDispatcher(TOPIC, None)
            case Kind.SHARED:
                return SharedDispatcher(unacked_messages_max=most, tick_ms=TICK_MS)
        return KeySharedDispatcher(
            sticky=self.kind is Kind.KEY_SHARED_STICKY,
            allow_out_of_order=self.kind is Kind.KEY_SHARED_UNORDERED,
            unacked_messages_max=most,
            tick_ms=TICK_MS,
        )

    def carry_out(self, actions: Actions) -> None:
        self.blocked_before = self.subscription_blocked
        for action in actions:
            match action:
                case Deliver():
                    client = self._client(action.consumer)
                    assert action.units
                    for unit in action.units:
                        self.delivered(client, unit)
                case ActiveChange():
                    assert action.is_active == (action.consumer is self.dispatcher.active)
                case Rewind():
                    self.forgotten()
        self.check()

    def forgotten(self) -> None:
        """The dispatcher has forgotten everything: it is all read again."""
        self.read_entry = 0
        self.in_flight = None
        self.in_flight_due = []
        self.offered.clear()
        self.fresh.clear()
        self.delayed.clear()
        self.ripe.clear()
        self.counts.clear()
        self.expected_base = 0
        for client in self.clients:
            client.parts.clear()
            client.blocked = False
        self.subscription_blocked = False

    def _client(self, consumer: Consumer) -> Client:
        found = [client for client in self.clients if client.consumer is consumer]
        assert found, f"{consumer} is not attached"
        return found[0]

    def delivered(self, client: Client, unit: Unit) -> None:
        self.deliveries += 1
        part = unit.entry
        assert isinstance(part, Part)
        key = part.key
        left = part.offsets - self.acked
        assert left, f"{part} was acknowledged and is delivered"
        assert unit_offsets(unit) == left, f"{unit_offsets(unit)} instead of {left}"
        assert unit.message_count == len(left)
        assert client.available, f"{client} may not have more"
        client.permits -= part.end - part.base
        if not self.kind.is_multi:
            self._delivered_in_order(client, part)
            return
        assert part.deliver_at_ms <= self.now_ms, "delivered too early"
        assert key in self.offered
        assert key not in self.delayed
        assert unit.redelivery_count == self.counts.get(key, 0)
        assert not any(key in other.parts for other in self.clients), f"{part} is held already"
        if key in self.fresh and part.chunk_id is None:
            # Key_Shared tells what it delivers in one call by consumer, not in the order of its decisions.
            blocked = self.blocked_before if self.kind.has_keys else self.subscription_blocked
            assert not blocked, "something new while too much is unacknowledged"
        if self.kind.has_keys:
            self._delivered_by_key(client, part)
        else:
            holders = self._holders_of_chunk(part)
            assert holders <= {client.consumer.name}, f"chunks of {part.chunk_id} at {holders}"
            if part.chunk_id is None:
                self._delivered_by_priority(client)
                self._delivered_after_replays(part)
        self.fresh.discard(key)
        client.parts[key] = part
        self.settle()

    def _delivered_in_order(self, client: Client, part: Part) -> None:
        assert client.consumer is self.dispatcher.active
        assert client.consumer is self._expected_active()
        assert part.base >= self.expected_base, "out of order, or twice"
        skipped = set(range(self.expected_base, part.base)) - self.acked
        assert not skipped, f"{skipped} skipped"
        self.expected_base = part.end
        self.offered.pop(part.key, None)

    def _expected_active(self) -> Consumer:
        if self.kind is not Kind.FAILOVER:
            active = self.dispatcher.active
            assert isinstance(active, Consumer)
            return active
        level = min(client.consumer.priority_level for client in self.clients)
        first = [client.consumer for client in self.clients if client.consumer.priority_level == level]
        first.sort(key=lambda consumer: consumer.name)
        return first[5 % len(first)]

    def _delivered_by_priority(self, client: Client) -> None:
        level = client.consumer.priority_level
        better = [
            other for other in self.clients if other.available and other.consumer.priority_level < level
        ]
        assert not better, f"{better} were passed over"

    def _delivered_after_replays(self, part: Part) -> None:
        for other in self._waiting():
            if other.chunk_id is None and other.key not in self.fresh and other.key != part.key:
                assert part.key not in self.fresh, f"{other} came back and was passed over"
                assert part.key < other.key, f"{other} came back and is older"

    def _delivered_by_key(self, client: Client, part: Part) -> None:
        assert isinstance(self.dispatcher, KeySharedDispatcher)
        assert self.dispatcher.owner(part.slot) is client.consumer
        if self.kind is Kind.KEY_SHARED_UNORDERED:
            return
        others = [
            other.consumer.name
            for other in self.clients
            if other is not client and any(held.slot == part.slot for held in other.parts.values())
        ]
        assert not others, f"slot {part.slot} is at {others} too"
        older = [
            waiting for waiting in self._waiting() if waiting.slot == part.slot and waiting.key < part.key
        ]
        assert not older, f"{older} of the same slot wait"

    def _holders_of_chunk(self, part: Part) -> set[str]:
        if part.chunk_id is None:
            return set()
        return {
            client.consumer.name
            for client in self.clients
            if any(held.chunk_id == part.chunk_id for held in client.parts.values())
        }

    def _waiting(self) -> list[Part]:
        """What was offered, is due, and no consumer has."""
        held = {key for client in self.clients for key in client.parts}
        return [part for key, part in self.offered.items() if key not in held and key not in self.delayed]

    def _unacked(self, client: Client) -> int:
        return sum(len(part.offsets - self.acked) for part in client.parts.values())

    def settle(self) -> None:
        """Block and unblock by the limits."""
        if not self.kind.is_multi:
            return
        total = 0
        for client in self.clients:
            count = self._unacked(client)
            total += count
            most = self.limits.per_consumer
            client.blocked = most > 0 and (count >= most or (client.blocked and count > most // 2))
        most = self.limits.per_subscription
        blocked = self.subscription_blocked
        self.subscription_blocked = most > 0 and (total >= most or (blocked and total > most // 2))

    def check(self) -> None:
        dispatcher = self.dispatcher
        assert [client.consumer.permits for client in self.clients] == [one.permits for one in self.clients]
        assert set(dispatcher.consumers) == {client.consumer for client in self.clients}
        if isinstance(dispatcher, MultiConsumerDispatcher):
            self._check_multi(dispatcher)
            return
        active = [client for client in self.clients if client.consumer is dispatcher.active]
        assert bool(active) == bool(self.clients)
        if active and active[0].available:
            assert not self._waiting(), "something waits for an available consumer"
            assert dispatcher.wanted() > 0
        else:
            assert dispatcher.wanted() == 0

    def _check_multi(self, dispatcher: MultiConsumerDispatcher) -> None:
        for client in self.clients:
            assert client.consumer.unacked_messages == self._unacked(client)
            assert client.consumer.blocked == client.blocked
            assert {unit.entry.key for unit in client.consumer.held} == set(client.parts)  # type: ignore[attr-defined]
        assert dispatcher.unacked_messages == sum(self._unacked(client) for client in self.clients)
        assert dispatcher.blocked == self.subscription_blocked
        waiting = self._waiting()
        assert dispatcher.waiting_count == len(waiting)
        self._check_delayed(dispatcher)
        for part in waiting:
            assert not self._could_go(part), f"{part} waits, and a consumer could have it"
        available = [client for client in self.clients if client.available]
        ahead = min(LOOK_AHEAD_MAX, LOOK_AHEAD_PER_CONSUMER * len(self.clients)) - len(waiting)
        if not available or self.subscription_blocked or ahead <= 0:
            assert dispatcher.wanted() == 0
        else:
            assert dispatcher.wanted() > 0, "available consumers would starve"
        if not available or ahead <= 0:
            assert dispatcher.wanted_due() == 0
        elif self.ripe:
            assert dispatcher.wanted_due() > 0, "what is due would wait for ever"

    def _check_delayed(self, dispatcher: MultiConsumerDispatcher) -> None:
        left = {key: self.offered[key] for key in self.delayed}
        assert dispatcher.delayed_count == sum(len(part.offsets - self.acked) for part in left.values())
        assert bool(dispatcher.delayed_bytes) == bool(left)
        due = dispatcher.due(1_000)
        assert due == sorted(set(due))
        missing = {base for base, _ in self.ripe} - set(due)
        assert not missing, f"{missing} are due and not shown"
        for base in set(due) - {base for base, _ in self.ripe}:
            # Nothing of it is left: that is known of an entry of one message, and of others when they are read.
            (parts,) = [parts for parts in self.log if parts[0].base == base]
            assert parts[0].end - base > 1
            assert all(part.offsets <= self.acked for part in parts)
        times = [part.deliver_at_ms for key, part in left.items() if key not in self.ripe]
        if times:
            assert dispatcher.next_tick_ms is not None
            assert self.now_ms < dispatcher.next_tick_ms <= -(-min(times) // TICK_MS) * TICK_MS

    def _could_go(self, part: Part) -> bool:
        if self.subscription_blocked and part.key in self.fresh:
            return False
        available = [client.consumer for client in self.clients if client.available]
        if isinstance(self.dispatcher, KeySharedDispatcher):
            owner = self.dispatcher.owner(part.slot)
            if owner not in available:
                return False
            if self.kind is not Kind.KEY_SHARED_UNORDERED and any(
                client.consumer is not owner and held.slot == part.slot
                for client in self.clients
                for held in client.parts.values()
            ):
                return False
            siblings = [other for other in self._waiting() if other.slot == part.slot]
            return min(siblings, key=lambda other: other.key) is part
        if part.chunk_id is not None:
            # It may wait for the one that has, or is to get, other chunks.
            return len(available) == len(self.clients) and bool(available)
        return bool(available)


def unit_offsets(unit: Unit) -> frozenset[int]:
    ranges = ((unit.base_offset, unit.end_offset),) if unit.offsets is None else unit.offsets
    return frozenset(offset for start, stop in ranges for offset in range(start, stop))


def as_ranges(offsets: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Half-open ranges of a set of offsets."""
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return tuple(found)
