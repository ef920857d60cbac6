"""A random walk through the world of a dispatcher.

    python -m tests.models.dispatch --rounds 10000 --seed 1 [--kind key-shared] [--steps 300]

Each round is a seed of its own: a failure prints the command that runs just that round again.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable

from .dispatch_books import Client, Kind, Limits
from .dispatch_world import World

STEPS = 150
RANGES_MAX = 3


class Walk:
    """One round: everything about it follows from its seed."""

    def __init__(self, kind: Kind, seed: int, steps: int = STEPS) -> None:
        self.rng = rng = random.Random(f"{kind.value} {seed}")
        self.steps = steps
        limits = Limits(rng.choice((0, 0, 0, 2, 7, 30)), rng.choice((0, 0, 0, 3, 20, 60)))
        self.world = World(kind, limits)
        self.slots = [rng.randrange(1, 65_536) for _ in range(rng.choice((1, 2, 5, 40)))]
        self.batch_max = rng.choice((1, 1, 4, 12))
        self.has_delays = rng.random() < 0.4
        self.has_chunks = rng.random() < 0.4
        self.levels = rng.choice((1, 1, 3))
        self.names = rng.choice((None, None, ("same",), ("a", "b", "c")))
        self.clients_max = rng.choice((1, 2, 4, 8))
        self.permits_max = rng.choice((1, 10, 60, 500))
        self.chunk_number = 0
        self.taken: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        moves: list[tuple[float, Callable[[], None]]] = [
            (6, self.publish),
            (8, self.read),
            (self.rng.choice((2, 5)), self.join),
            (self.rng.choice((0.2, 1.5, 4)), self.leave),
            (6, self.flow),
            (1, self.writable),
            (7, self.ack_delivered),
            (1, self.ack_part),
            (self.rng.choice((0, 0.4)), self.ack_anything),
            (2, self.nack),
            (0.7, self.nack_all),
            (2, self.advance),
            (self.rng.choice((0, 0.2)), self.seek),
            (0.5, self.world.save),
            (self.rng.choice((0, 0.2)), self.world.kill),
        ]
        calls = [call for _, call in moves]
        weights = [weight for weight, _ in moves]
        for _ in range(self.steps):
            (call,) = self.rng.choices(calls, weights)
            call()
            self.taken[call.__name__] += 1
        self.world.drain()
        self.taken["deliveries"] += self.world.deliveries
        return self.taken

    def client(self) -> Client | None:
        return self.rng.choice(self.world.clients) if self.world.clients else None

    def publish(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((1, 1, 3, 30))):
            delay = rng.randrange(1, 80) if self.has_delays and rng.random() < 0.5 else 0
            if self.has_chunks and rng.random() < 0.5:
                self.chunk_number += rng.random() < 0.15
                self.world.publish(1, [rng.choice(self.slots)], delay, f"chunked-{self.chunk_number}")
            else:
                messages = rng.randint(1, self.batch_max)
                self.world.publish(messages, [rng.choice(self.slots) for _ in range(messages)], delay)

    def read(self) -> None:
        self.world.start_read()
        if self.rng.random() < 0.6:
            self.world.end_read()

    def join(self) -> None:
        world, rng = self.world, self.rng
        if len(world.clients) >= self.clients_max:
            return
        ranges: tuple[tuple[int, int], ...] = ()
        if world.kind is Kind.KEY_SHARED_STICKY:
            free = self.free_ranges()
            if not free:
                return
            ranges = tuple(rng.sample(free, rng.randint(1, min(len(free), RANGES_MAX))))
        name = rng.choice(self.names) if self.names else None
        before = len(world.clients)
        world.join(rng.randrange(self.levels), name, ranges)
        if len(world.clients) > before and rng.random() < 0.7:
            world.flow(world.clients[-1], rng.randint(1, self.permits_max))

    def free_ranges(self) -> list[tuple[int, int]]:
        """Sixteenths of the slots that no consumer has declared."""
        taken = {limits for client in self.world.clients for limits in client.consumer.hash_ranges}
        whole = [(low, low + 4_095) for low in range(0, 65_536, 4_096)]
        return [limits for limits in whole if limits not in taken]

    def leave(self) -> None:
        if client := self.client():
            self.world.leave(client)

    def flow(self) -> None:
        if client := self.client():
            self.world.flow(client, self.rng.choice((-1, 0, 1, self.rng.randint(1, self.permits_max))))

    def writable(self) -> None:
        if client := self.client():
            self.world.set_writable(client, not client.writable)

    def ack_delivered(self) -> None:
        """What a consumer holds, or a prefix of the log where one consumer has all."""
        world, rng = self.world, self.rng
        if not world.kind.is_multi:
            ahead = rng.choice((0, 0, 0, 5, 40))  # acknowledged elsewhere before it was delivered
            last = min(world.end_offset, world.expected_base + ahead)
            world.ack(range(rng.randint(0, last), last) if rng.random() < 0.5 else range(last))
            return
        if (client := self.client()) and client.parts:
            chosen = rng.sample(list(client.parts.values()), rng.randint(1, len(client.parts)))
            world.ack(offset for part in chosen for offset in part.offsets)

    def ack_part(self) -> None:
        """Some messages of a batch."""
        if (client := self.client()) and client.parts:
            part = self.rng.choice(list(client.parts.values()))
            self.world.ack(offset for offset in part.offsets if self.rng.random() < 0.5)

    def ack_anything(self) -> None:
        """Any stretch of the log, delivered or not: what another door, a skip or a time to live does."""
        end = self.world.end_offset
        if end:
            start = self.rng.randrange(end)
            self.world.ack(range(start, min(end, start + self.rng.randint(1, 20))))

    def nack(self) -> None:
        if client := self.client():
            bases = sorted({key[0] for key in client.parts})
            chosen = self.rng.sample(bases, self.rng.randint(0, len(bases)))
            self.world.nack(client, [*chosen, *chosen[:1], self.rng.randrange(self.world.end_offset + 2)])

    def nack_all(self) -> None:
        if client := self.client():
            self.world.nack(client, None)

    def advance(self) -> None:
        self.world.advance(self.rng.randint(1, 40))

    def seek(self) -> None:
        self.world.seek(self.rng.randint(0, self.world.end_offset))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.dispatch", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--kind", choices=[kind.value for kind in Kind])
    options = parser.parse_args(arguments)
    kinds = [Kind(options.kind)] if options.kind else list(Kind)
    started = time.monotonic()
    taken: Counter[str] = Counter()
    for number in range(options.rounds):
        seed = options.seed + number // len(kinds)
        kind = kinds[number % len(kinds)]
        try:
            taken += Walk(kind, seed, options.steps).run()
        except AssertionError:
            again = f"--rounds 1 --seed {seed} --steps {options.steps} --kind {kind.value}"
            print(f"failed: python -m tests.models.dispatch {again}", file=sys.stderr)
            raise
    print(f"{options.rounds} rounds in {time.monotonic() - started:.1f} s: {dict(taken)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
