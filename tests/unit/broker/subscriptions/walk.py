"""A random walk through the life of one subscription: shell, dispatcher, cursor and stores together, over kills.

    python -m tests.unit.broker.subscriptions.walk --rounds 2000 --seed 1 [--kind SHARED] [--steps 150]

What must hold at every step and at the end:

* nothing is delivered that was acknowledged, but whole entries to clients without ack sets;
* of several consumers never two hold the same message;
* the mark-delete is never ahead of what was acknowledged, and what a kill leaves was acknowledged;
* in the end every message was acknowledged or comes again: none is lost.

Each round is a seed of its own: a failure prints the command that runs just that round again.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from typing import Any

from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.ack_sets import ack_set_of, acknowledged_ranges
from magnetar.broker.subscriptions.model import Delivery, SubscriptionType
from magnetar.broker.subscriptions.subscription import Subscription

from .driver import Client, World, settle

STEPS = 120
CLIENTS_MAX = 4
Position = tuple[int, int]
SEVERAL = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


class Walk:
    """One round: everything about it follows from its seed."""

    def __init__(self, kind: SubscriptionType, seed: int, steps: int = STEPS) -> None:
        self.rng = rng = random.Random(f"{kind.name} {seed}")
        self.kind = kind
        self.steps = steps
        self.uses_ack_sets = rng.random() < 0.5
        self.world = World(entry_cache_bytes=rng.choice((0, 4_000, 1 << 28)))
        self.clients: list[Client] = []
        self.seen: dict[Client, int] = {}  # how many of a client's deliveries were looked at
        self.held: dict[
            Client, dict[int, set[int]]
        ] = {}  # client -> base offset -> offsets it has unacknowledged
        self.entries: dict[Position, range] = {}
        self.acknowledged: set[int] = set()
        self.markers: set[int] = set()
        self.end = 0
        self.joined = 0
        self.taken: Counter[str] = Counter()

    async def run(self) -> Counter[str]:
        world = self.world
        await world.start()
        await self.join()
        actions = {
            self.publish: 12, self.join: 4, self.leave: 3, self.flow: 10, self.acknowledge: 14, self.cumulative: 3,
            self.negative: 4, self.negative_all: 2, self.seek: 1, self.slow: 3, self.advance: 4, self.crash: 1,
            self.commit: 1, self.fail_a_write: 1,
        }  # fmt: skip
        for _ in range(self.steps):
            (step,) = self.rng.choices(list(actions), list(actions.values()))
            self.taken[step.__name__] += 1
            await step()
            await settle()
            self.look()
        await self.finish()
        await world.stop()
        return self.taken

    # --- steps -------------------------------------------------------------------------------------------------------

    async def publish(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            count = self.rng.choice((1, 1, 3, 8))
            fields: dict[str, Any] = {"partition_key": f"k{self.rng.randrange(6)}"}
            if self.rng.random() < 0.1:
                fields["deliver_at_time"] = self.world.clock.now_ms() + self.rng.randrange(20_000)
            is_marker = self.rng.random() < 0.1
            if is_marker:
                fields["marker_type"] = 10
            await self.world.publish(1, count, **fields)
            offsets = range(self.end, self.end + count)
            self.end += count
            assert self.world.partition.log.high_watermark == self.end
            if is_marker:
                self.markers.update(offsets)
            else:
                self.entries[await self.world.position_at(offsets.start)] = offsets

    async def join(self) -> None:
        limit = CLIENTS_MAX if self.kind is not SubscriptionType.EXCLUSIVE else 1
        if len(self.clients) < limit:
            self.joined += 1
            client = await self.world.sub(
                kind=self.kind, consumer=f"c{self.joined}", permits=self.rng.randrange(20)
            )
            self.clients.append(client)
            self.seen[client] = 0
            self.held[client] = {}
            # The broker has learnt it from an earlier consumer, or learns it now.
            if self.uses_ack_sets:
                self.world.cursor().properties["pulsar.ack.sets"] = ""

    async def leave(self) -> None:
        if self.clients:
            client = self.forget(self.rng.choice(self.clients))
            await client.leave()

    def forget(self, client: Client) -> Client:
        self.clients.remove(client)
        del self.held[client]
        return client

    async def flow(self) -> None:
        if self.clients:
            self.rng.choice(self.clients).flow(self.rng.randint(1, 30))

    async def acknowledge(self) -> None:
        """One or a few of what a client holds; with ack sets, a part of it."""
        if not self.clients:
            return
        client = self.rng.choice(self.clients)
        held = self.held[client]
        for base in self.rng.sample(sorted(held), min(len(held), self.rng.randint(1, 5))):
            position = self.position(base)
            entry = self.entries[position]
            if self.uses_ack_sets and len(entry) > 1 and self.rng.random() < 0.5:
                done = set(self.rng.sample(list(entry), self.rng.randint(1, len(entry) - 1)))
                left = [(offset, offset + 1) for offset in entry if offset not in done]
                later = client.ack((*position, ack_set_of(left, entry.start, len(entry))))
            else:
                done = set(entry)
                later = client.ack(position, position)
            self.acknowledged |= done
            if later is not None:
                await later

    async def cumulative(self) -> None:
        if self.kind in SEVERAL or not self.clients:
            return
        client = self.rng.choice(self.clients)
        if self.held[client]:
            base = self.rng.choice(sorted(self.held[client]))
            entry = self.entries[self.position(base)]
            # What Pulsar's consumer was never given (delivered to another before) counts as well: that is the contract.
            self.acknowledged |= set(range(entry.stop))
            later = client.ack(self.position(base), cumulative=True)
            if later is not None:
                await later

    async def negative(self) -> None:
        if self.clients:
            client = self.rng.choice(self.clients)
            held = self.held[client]
            chosen = self.rng.sample(sorted(held), min(len(held), self.rng.randint(1, 4)))
            if chosen and self.kind in SEVERAL:
                for base in chosen:
                    del held[base]
                client.nack(*map(self.position, chosen))

    async def negative_all(self) -> None:
        if self.clients:
            client = self.rng.choice(self.clients)
            self.held[client].clear()
            client.nack()

    async def seek(self) -> None:
        if not self.clients or not self.entries:
            return
        client = self.rng.choice(self.clients)
        position = self.rng.choice(sorted(self.entries))
        subscription = client.member.subscription
        assert isinstance(subscription, Subscription)
        await self.world.broker.subscriptions.seek(
            subscription, positions.offset_of(self.world.partition.log, *position)
        )
        self.acknowledged = set(range(self.entries[position].start))
        assert all(client.is_closed for client in self.clients)
        for client in list(self.clients):
            self.forget(client)

    async def slow(self) -> None:
        if self.clients:
            client = self.rng.choice(self.clients)
            client.writable(not client.is_writable)

    async def advance(self) -> None:
        await self.world.advance(self.rng.choice((0.1, 1.0, 7.0)))

    async def crash(self) -> None:
        for client in list(self.clients):
            self.forget(client)
        await self.world.crash()
        await settle()
        cursor = self.world.broker.cursors.get(self.world.key)
        assert cursor is not None, "a subscription that was made is there"
        kept = {offset for offset in range(self.end) if cursor.is_acknowledged(offset)}
        strange = kept - self.acknowledged - self.markers
        assert not strange, f"acknowledged by no consumer: {strange}"
        self.acknowledged = kept

    async def commit(self) -> None:
        """A Kafka commit while no consumer is connected."""
        cursor = self.world.broker.cursors.get(self.world.key)
        if self.clients or cursor is None:
            return
        cursor = cursor.copy()
        offset = self.rng.randint(0, self.end)
        if offset < cursor.mark_delete:
            self.acknowledged.clear()
        self.acknowledged |= set(range(offset))
        cursor.commit(offset)
        await self.world.broker.cursors.commit({self.world.key: cursor})

    async def fail_a_write(self) -> None:
        self.world.metadata.fail_next = 1
        await self.world.advance(1.0)
        self.world.metadata.fail_next = 0

    # --- looking -----------------------------------------------------------------------------------------------------

    def position(self, base: int) -> Position:
        return next(position for position, entry in self.entries.items() if entry.start == base)

    def look(self) -> None:
        """Take note of what was delivered since, and hold it to the contract."""
        for client in self.clients:
            for delivery in client.got[self.seen[client] :]:
                self.delivered(client, delivery)
            self.seen[client] = len(client.got)
        cursor = self.world.broker.cursors.get(self.world.key)
        assert cursor is not None
        for offset in range(cursor.mark_delete):
            assert offset in self.acknowledged | self.markers, (
                f"mark-delete {cursor.mark_delete} is ahead of {offset}"
            )

    def delivered(self, client: Client, delivery: Delivery) -> None:
        entry = self.entries[delivery.ledger_id, delivery.entry_id]
        offsets = set(entry)
        if delivery.ack_set:
            hidden = acknowledged_ranges(delivery.ack_set, entry.start, len(entry))
            offsets -= {offset for start, end in hidden for offset in range(start, end)}
        assert offsets - self.acknowledged, f"{entry} was acknowledged, and {client.name} gets it"
        if self.kind in SEVERAL:
            for other in self.clients:
                twice = self.held[other].get(entry.start, set()) - self.acknowledged
                assert not (twice & offsets), f"{entry} is at {other.name} and at {client.name}"
        self.held[client][entry.start] = offsets

    async def finish(self) -> None:
        """With one consumer that takes and acknowledges everything nothing may be left."""
        for client in list(self.clients):
            await self.forget(client).leave()
        self.world.metadata.fail_next = 0
        await self.world.advance(30.0)
        client = await self.world.sub(kind=self.kind, consumer="last", permits=100_000)
        for _ in range(3):
            await self.world.advance(30.0)
        came = {
            offset
            for delivery in client.got
            for offset in self.entries[delivery.ledger_id, delivery.entry_id]
        }
        missing = set(range(self.end)) - came - self.acknowledged - self.markers
        assert not missing, f"lost: {sorted(missing)}"
        later = client.ack(*client.positions)
        if later is not None:
            await later
        assert self.world.cursor().mark_delete == self.end, "what was delivered and acknowledged is done"
        await client.leave()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--kind", choices=[kind.name for kind in SubscriptionType])
    options = parser.parse_args(arguments)
    kinds = [SubscriptionType[options.kind]] if options.kind else list(SubscriptionType)
    started = time.monotonic()
    taken: Counter[str] = Counter()
    for number in range(options.rounds):
        seed, kind = options.seed + number // len(kinds), kinds[number % len(kinds)]
        try:
            taken += asyncio.run(Walk(kind, seed, options.steps).run())
        except BaseException:
            again = f"--rounds 1 --seed {seed} --steps {options.steps} --kind {kind.name}"
            print(f"failed: python -m {__spec__.name} {again}", file=sys.stderr)
            raise
    print(f"{options.rounds} rounds in {time.monotonic() - started:.1f} s: {dict(taken)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
