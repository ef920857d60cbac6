"""A year of flights through replicators into targets, and kill -9 of worker, server and targets.

    python -m tests.soak.flights --target kafka --flights 336776 --kills 6 --seed 1

Each target has a replicator of its own, all from one topic.  The flights are written in shares.  After each, while the
replicators send, the worker, the server or a target is killed at a random moment and started again; of as many kills as
there are of these each hits another one.  In the end every target must have every flight with its key, its value and
its headers, in order for each key, and once if docs/reference/replicators.md says so.

Kafka and Pulsar need Java and the scripts that fetch them (`MAGNETAR_PEERS`), and are skipped without.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import confluent_kafka as ck

from magnetar.testing.server import MagnetarProcess
from tests.peers import is_here
from tests.soak.flights_history import COUNT, Flight, flights, judged
from tests.soak.flights_targets import PARTITIONS, PEERS, TARGETS, Target
from tests.soak.mixed_history import Broken
from tests.soak.part import say
from tests.spark.pipelines import settings
from tests.spark.replicated import Replicated, replicator

OURS: Final = ("worker", "server")  # what is killed besides targets
KILL_S_MAX: Final = 2.0
BATCHES: Final = 40  # about, of the replicator: kills come between them, and within them
PATIENCE_S: Final = 3600.0


def run(names: Sequence[str], count: int, kills: int, seed: int, folder: Path) -> str:
    """Replicate into the targets of these names; returns what became of it, in one line.

    Raises:
        Broken
    """
    began = time.monotonic()
    choose = random.Random(seed)
    sent = flights(count)
    with ExitStack() as stack:
        targets = {name: stack.enter_context(TARGETS[name](_folder(folder, name))) for name in names}
        server = stack.enter_context(MagnetarProcess(settings=settings()))
        world = Replicated(server)
        topic = world.topic(PARTITIONS)
        for name, target in targets.items():
            config = {**replicator(topic, "", ""), **target.configuration()}
            world.client.create(
                name, "replicator", {**config, "records_per_batch": max(count // BATCHES, 100)}
            )
        writer = ck.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
        victims = in_turn((*OURS, *names), choose)
        for share in _shares(sent, kills + 1):
            write(writer, topic, share)
            if share[-1] is sent[-1]:
                break
            for name in names:
                world.until_state(name, "RUNNING")
            time.sleep(choose.uniform(0, KILL_S_MAX))  # the random moment: nothing is waited for
            kill(next(victims), world, targets, choose)
        world.until(lambda: all(world.backlog(name) == 0 for name in names), PATIENCE_S)
        again = {name: _check(name, sent, target) for name, target in targets.items()}
        if "Traceback" in server.log:
            raise Broken("a traceback: " + server.log[server.log.index("Traceback") :][:600])
        world.close()
    took_s = time.monotonic() - began
    came = ", ".join(f"{number} came again at {name}" for name, number in again.items())
    return f"{count} flights, {kills} kills, {came}, {took_s:.0f} s"


def _folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def _check(name: str, sent: Sequence[Flight], target: Target) -> int:
    """Returns how many records came again; raises Broken."""
    verdict = judged([target.as_found(flight) for flight in sent], target.found())
    try:
        verdict.require(once=target.is_once)
    except Broken as broken:
        raise Broken(f"{name}: {broken}") from None
    return verdict.again


def write(writer: ck.Producer, topic: str, some: Sequence[Flight]) -> None:
    """Send flights; returns when the server has them all."""
    for flight in some:
        while True:
            try:
                writer.produce(topic, flight.value, flight.key, headers=list(flight.headers))
                break
            except BufferError:
                writer.poll(0.1)
    if left := writer.flush(PATIENCE_S):
        raise Broken(f"the server has not taken {left} flights")


def kill(victim: str, world: Replicated, targets: Mapping[str, Target], choose: random.Random) -> None:
    """Kill one of `OURS` or of `targets`, and return when it is there again."""
    if victim == "server":
        world.server.kill()
        world.server.restart()
    elif victim == "worker":
        world.until(lambda: world.client.worker() is not None)
        pid = world.worker_pid
        os.kill(pid, signal.SIGKILL)
        world.until(lambda: world.client.worker() is not None and world.worker_pid != pid)
    else:
        targets[victim].kill()
        time.sleep(choose.uniform(0, KILL_S_MAX))
        targets[victim].start()


def in_turn(victims: Sequence[str], choose: random.Random) -> Iterator[str]:
    """All of them in a random order, again and again."""
    while True:
        yield from choose.sample(victims, len(victims))


def _shares(sent: Sequence[Flight], count: int) -> Iterator[Sequence[Flight]]:
    size = -(-len(sent) // count)
    for first in range(0, len(sent), size):
        yield sent[first : first + size]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", choices=TARGETS, nargs="+", default=["kafka"])
    parser.add_argument("--flights", type=int, default=COUNT)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    names = list(dict.fromkeys(options.target))
    command = (
        f"python -m tests.soak.flights --target {' '.join(names)} --flights {options.flights}"
        f" --kills {options.kills} --seed {seed}"
    )
    if missing := sorted({PEERS[name] for name in names if name in PEERS and not is_here(PEERS[name])}):
        say(f"skipped {command}: there is no Java, or no script that fetches {' and '.join(missing)}")
        return 0
    say(command)
    with tempfile.TemporaryDirectory() as folder:
        try:
            say(run(names, options.flights, options.kills, seed, Path(folder)))
        except (Broken, AssertionError) as broken:
            say(f"FAILED {command}: {broken}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
