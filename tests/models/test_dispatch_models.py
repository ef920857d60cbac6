"""The dispatchers hold their contract: hypothesis looks for short ways to break it, walks for long ones."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from .dispatch import Walk
from .dispatch_books import Client, Kind, Limits
from .dispatch_world import World

SLOTS = (1, 9_000, 30_000, 65_535)
few = st.integers(0, 6)


class DispatcherMachine(RuleBasedStateMachine):
    """The moves of a walk, chosen by hypothesis."""

    kind: Kind

    @initialize(per_consumer=st.sampled_from((0, 1, 3)), per_subscription=st.sampled_from((0, 1, 4)))
    def start(self, per_consumer: int, per_subscription: int) -> None:
        self.world = World(self.kind, Limits(per_consumer, per_subscription))

    def client(self, number: int) -> Client:
        return self.world.clients[number % len(self.world.clients)]

    @rule(
        slots=st.lists(st.sampled_from(SLOTS), min_size=1, max_size=4),
        delay_ms=st.sampled_from((0, 0, 0, 15)),
        entries=st.integers(1, 4),
    )
    def publish(self, slots: list[int], delay_ms: int, entries: int) -> None:
        for _ in range(entries):
            self.world.publish(len(slots), slots, delay_ms)

    @rule(chunk_id=st.sampled_from("xy"), chunks=st.integers(1, 3))
    def publish_chunks(self, chunk_id: str, chunks: int) -> None:
        for _ in range(chunks):
            self.world.publish(1, SLOTS[:1], 0, chunk_id)

    @rule()
    def read(self) -> None:
        self.world.start_read()
        self.world.end_read()

    @rule()
    def start_read(self) -> None:
        self.world.start_read()

    @precondition(lambda self: len(self.world.clients) < 4)
    @rule(level=st.integers(0, 1), permits=few, quarter=st.integers(0, 3))
    def join(self, level: int, permits: int, quarter: int) -> None:
        ranges: tuple[tuple[int, int], ...] = ()
        if self.kind is Kind.KEY_SHARED_STICKY:
            ranges = ((quarter * 16_384, quarter * 16_384 + 16_383),)
            if any(client.consumer.hash_ranges == ranges for client in self.world.clients):
                return
        before = len(self.world.clients)
        self.world.join(level, None, ranges)
        if len(self.world.clients) > before:
            self.world.flow(self.world.clients[-1], permits)

    @precondition(lambda self: self.world.clients)
    @rule(number=few)
    def leave(self, number: int) -> None:
        self.world.leave(self.client(number))

    @precondition(lambda self: self.world.clients)
    @rule(number=few, permits=st.integers(-1, 20))
    def flow(self, number: int, permits: int) -> None:
        self.world.flow(self.client(number), permits)

    @precondition(lambda self: self.world.clients)
    @rule(number=few)
    def writable(self, number: int) -> None:
        client = self.client(number)
        self.world.set_writable(client, not client.writable)

    @precondition(lambda self: self.world.end_offset)
    @rule(start=st.integers(0, 100), count=st.integers(1, 8))
    def ack(self, start: int, count: int) -> None:
        start %= self.world.end_offset
        self.world.ack(range(start, min(self.world.end_offset, start + count)))

    @precondition(lambda self: self.world.clients)
    @rule(number=few, skip=few)
    def ack_delivered(self, number: int, skip: int) -> None:
        parts = list(self.client(number).parts.values())
        self.world.ack(offset for part in parts[skip:] for offset in part.offsets)

    @precondition(lambda self: self.world.clients)
    @rule(number=few, skip=few)
    def nack(self, number: int, skip: int) -> None:
        client = self.client(number)
        self.world.nack(client, sorted({base for base, _ in client.parts})[skip:])

    @precondition(lambda self: self.world.clients)
    @rule(number=few)
    def nack_all(self, number: int) -> None:
        self.world.nack(self.client(number), None)

    @rule(duration_ms=st.integers(1, 25))
    def advance(self, duration_ms: int) -> None:
        self.world.advance(duration_ms)

    @rule(offset=st.integers(0, 100))
    def seek(self, offset: int) -> None:
        self.world.seek(offset % (self.world.end_offset + 1))

    @rule()
    def save(self) -> None:
        self.world.save()

    @rule()
    def kill(self) -> None:
        self.world.kill()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()


def machine_for(kind: Kind) -> Any:
    machine = type(f"Machine_{kind.name}", (DispatcherMachine,), {"kind": kind})
    case = machine.TestCase  # type: ignore[attr-defined]
    case.settings = settings(stateful_step_count=40)
    return case


TestExclusive = machine_for(Kind.EXCLUSIVE)
TestFailover = machine_for(Kind.FAILOVER)
TestFailoverRing = machine_for(Kind.FAILOVER_RING)
TestShared = machine_for(Kind.SHARED)
TestKeyShared = machine_for(Kind.KEY_SHARED)
TestKeySharedSticky = machine_for(Kind.KEY_SHARED_STICKY)
TestKeySharedUnordered = machine_for(Kind.KEY_SHARED_UNORDERED)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", Kind)
def test_a_walk_breaks_nothing(kind: Kind, seed: int) -> None:
    assert Walk(kind, seed).run()["deliveries"]


# Rounds that once failed.  A change of the walk makes other rounds of them: what they found has a test by name, too.
KEPT = [(Kind.KEY_SHARED_UNORDERED, 60_157)]


@pytest.mark.parametrize(("kind", "seed"), KEPT)
def test_what_a_walk_once_broke_stays_whole(kind: Kind, seed: int) -> None:
    assert Walk(kind, seed).run()["deliveries"]


def test_a_walk_goes_the_same_way_again() -> None:
    assert Walk(Kind.SHARED, 3).run() == Walk(Kind.SHARED, 3).run()


Break = Callable[[World], None]


def delivers_twice(world: World) -> None:
    (client,) = world.clients
    (unit,) = client.consumer.held
    world.delivered(client, unit)


def delivers_the_acknowledged(world: World) -> None:
    (client,) = world.clients
    (unit,) = client.consumer.held
    world.ack(range(1))
    world.delivered(client, unit)


@pytest.mark.parametrize("broken", [delivers_twice, delivers_the_acknowledged])
def test_the_model_sees_a_broken_promise(broken: Break) -> None:
    world = World(Kind.SHARED, Limits())
    world.publish(1, [1])
    world.join()
    world.flow(world.clients[0], 10)
    world.start_read()
    world.end_read()
    with pytest.raises(AssertionError, match=r"acknowledged and is delivered|is held already"):
        broken(world)
