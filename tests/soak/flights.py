"""A year of flights through a replicator into each kind of target, and kill -9 of worker, server and target.

    python -m tests.soak.flights --target kafka --flights 336776 --kills 6 --seed 1

The flights are written in shares.  After each, while the replicator sends, one of the three is killed at a random
moment and started again; of three kills each hits another one.  In the end the target must have every flight with its
key, its value and its headers, in order for each key, and once if docs/reference/replicators.md says so.

Kafka and Pulsar need Java and the scripts that fetch them (`MAGNETAR_PEERS`), and are skipped without.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
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

KINDS: Final = ("worker", "server", "target")
KILL_S_MAX: Final = 2.0
BATCHES: Final = 40  # about, of the replicator: kills come between them, and within them
PATIENCE_S: Final = 3600.0
_NAME: Final = "flights"


def run(target_name: str, count: int, kills: int, seed: int, folder: Path) -> str:
    """Raises Broken."""
    began = time.monotonic()
    choose = random.Random(seed)
    sent = flights(count)
    with TARGETS[target_name](folder) as target, MagnetarProcess(settings=settings()) as server:
        world = Replicated(server)
        topic = world.topic(PARTITIONS)
        config = {**replicator(topic, "", ""), **target.configuration()}
        world.client.create(_NAME, "replicator", {**config, "records_per_batch": max(count // BATCHES, 100)})
        writer = ck.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
        kinds = _kinds(choose)
        for share in _shares(sent, kills + 1):
            write(writer, topic, share)
            if share[-1] is sent[-1]:
                break
            world.until_state(_NAME, "RUNNING")
            time.sleep(choose.uniform(0, KILL_S_MAX))  # the random moment: nothing is waited for
            kill(next(kinds), world, target, choose)
        world.until(lambda: world.backlog(_NAME) == 0, PATIENCE_S)
        verdict = judged([target.as_found(flight) for flight in sent], target.found())
        verdict.require(once=target.is_once)
        if "Traceback" in server.log:
            raise Broken("a traceback: " + server.log[server.log.index("Traceback") :][:600])
        world.close()
    took_s = time.monotonic() - began
    return f"{target_name}: {count} flights, {kills} kills, {verdict.again} came again, {took_s:.0f} s"


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


def kill(kind: str, world: Replicated, target: Target, choose: random.Random) -> None:
    """Kill, and return when it is there again."""
    if kind == "target":
        target.kill()
        time.sleep(choose.uniform(0, KILL_S_MAX))
        target.start()
    elif kind == "server":
        world.server.kill()
        world.server.restart()
    else:
        world.until(lambda: world.client.worker() is not None)
        pid = world.worker_pid
        os.kill(pid, signal.SIGKILL)
        world.until(lambda: world.client.worker() is not None and world.worker_pid != pid)


def _kinds(choose: random.Random) -> Iterator[str]:
    while True:
        yield from choose.sample(KINDS, len(KINDS))


def _shares(sent: Sequence[Flight], count: int) -> Iterator[Sequence[Flight]]:
    size = -(-len(sent) // count)
    for first in range(0, len(sent), size):
        yield sent[first : first + size]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", choices=TARGETS, default="kafka")
    parser.add_argument("--flights", type=int, default=COUNT)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    command = (
        f"python -m tests.soak.flights --target {options.target} --flights {options.flights} --kills {options.kills}"
        f" --seed {seed}"
    )
    if options.target in PEERS and not is_here(PEERS[options.target]):
        say(f"skipped {command}: there is no Java, or no script that fetches {PEERS[options.target]}")
        return 0
    say(command)
    with tempfile.TemporaryDirectory() as folder:
        try:
            say(run(options.target, options.flights, options.kills, seed, Path(folder)))
        except (Broken, AssertionError) as broken:
            say(f"FAILED {command}: {broken}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
