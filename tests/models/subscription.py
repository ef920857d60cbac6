"""A random walk through the life of a subscription: broker, cursor, shell and dispatcher together.

    python -m tests.models.subscription --rounds 1000 --seed 1 [--kind shared]

Each round is a seed of its own: a failure prints the command that runs just that round again.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from magnetar.broker.subscriptions.model import SubscriptionType

from .subscription_world import Client, World

STEPS = 120


class Walk:
    """One round: everything about it follows from its seed."""

    def __init__(self, kind: SubscriptionType, seed: int, steps: int = STEPS) -> None:
        self.rng = rng = random.Random(f"{kind.name} {seed}")
        self.steps = steps
        self.world = World(
            kind, entry_cache_bytes=rng.choice((1 << 20, 1_000, 3_000)), uses_ack_sets=rng.random() < 0.5
        )
        self.keys = [f"key-{number}" for number in range(rng.choice((1, 3, 30)))]
        self.batch_max = rng.choice((1, 5, 70))
        self.has_delays = rng.random() < 0.3
        self.clients_max = 1 if kind is SubscriptionType.EXCLUSIVE else rng.choice((1, 2, 4))
        self.permits_max = rng.choice((1, 10, 500))
        self.size_max = rng.choice((0, 500))
        self.taken: Counter[str] = Counter()

    async def run(self) -> Counter[str]:
        world, rng = self.world, self.rng
        await world.start()
        moves: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (6, self.publish),
            (3, self.join),
            (rng.choice((0.3, 1.5)), self.leave),
            (6, self.flow),
            (2, self.writable),
            (7, self.ack),
            (3, self.ack_part),
            (0.3, self.ack_nonsense),
            (2, self.nack),
            (1, self.nack_all),
            (2, self.advance),
            (rng.choice((0, 0.3)), self.skip),
            (rng.choice((0, 0.3)), self.seek),
            (rng.choice((0, 0.4)), self.kill),
        ]
        calls = [call for _, call in moves]
        weights = [weight for weight, _ in moves]
        hurry = rng.choice((1.0, 0.4))  # how often what can happen has happened before the next move
        for _ in range(self.steps):
            (call,) = rng.choices(calls, weights)
            self.taken[call.__name__] += 1
            await call()
            if rng.random() < hurry:
                await world.settle()
        await world.settle()
        await world.drain()
        await world.stop()
        self.taken["deliveries"] += world.deliveries
        return self.taken

    def client(self) -> Client | None:
        return self.rng.choice(self.world.clients) if self.world.clients else None

    async def publish(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((1, 3, 20))):
            delay_ms = rng.randrange(1, 5_000) if self.has_delays and rng.random() < 0.4 else 0
            await self.world.publish(
                rng.randint(1, self.batch_max), rng.choice(self.keys), delay_ms, rng.randint(0, self.size_max)
            )

    async def join(self) -> None:
        if len(self.world.clients) < self.clients_max:
            client = await self.world.join()
            if self.rng.random() < 0.7:
                self.world.flow(client, self.rng.randint(1, self.permits_max))

    async def leave(self) -> None:
        if client := self.client():
            await self.world.leave(client)

    async def flow(self) -> None:
        if client := self.client():
            self.world.flow(client, self.rng.randint(1, self.permits_max))

    async def writable(self) -> None:
        if client := self.client():
            self.world.set_writable(client, not client.is_writable)

    async def ack(self) -> None:
        client = self.client()
        if client is None or not client.has:
            return
        held = sorted(client.has.values(), key=lambda one: one.number)
        if not self.world.is_multi and self.rng.random() < 0.6:
            await self.world.ack_up_to(client, self.rng.choice(held))
        else:
            await self.world.ack(client, self.rng.sample(held, self.rng.randint(1, len(held))))

    async def ack_part(self) -> None:
        if self.world.uses_ack_sets and (client := self.client()) and client.has:
            one = self.rng.choice(list(client.has.values()))
            await self.world.ack_part(
                client, one, {offset for offset in one.offsets if self.rng.random() < 0.5}
            )

    async def ack_nonsense(self) -> None:
        if client := self.client():
            await self.world.ack_nonsense(client)

    async def nack(self) -> None:
        if (client := self.client()) and client.has:
            held = list(client.has.values())
            self.world.nack(client, self.rng.sample(held, self.rng.randint(1, len(held))))

    async def nack_all(self) -> None:
        if client := self.client():
            self.world.nack(client, None)

    async def advance(self) -> None:
        await self.world.advance(self.rng.choice((0.1, 1.0, 3.0)))

    async def skip(self) -> None:
        self.world.skip_to(self.rng.randint(0, self.world.end_offset))

    async def seek(self) -> None:
        if self.world.entries:
            await self.world.seek(self.rng.choice(self.world.entries))

    async def kill(self) -> None:
        await self.world.kill()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.subscription", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--kind", choices=[kind.name.lower() for kind in SubscriptionType])
    options = parser.parse_args(arguments)
    kinds = [SubscriptionType[options.kind.upper()]] if options.kind else list(SubscriptionType)
    started = time.monotonic()
    taken: Counter[str] = Counter()
    for number in range(options.rounds):
        seed = options.seed + number // len(kinds)
        kind = kinds[number % len(kinds)]
        try:
            taken += asyncio.run(Walk(kind, seed, options.steps).run())
        except BaseException:
            again = f"--rounds 1 --seed {seed} --steps {options.steps} --kind {kind.name.lower()}"
            print(f"failed: python -m tests.models.subscription {again}", file=sys.stderr)
            raise
    print(f"{options.rounds} rounds in {time.monotonic() - started:.1f} s: {dict(taken)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
