"""Kafka Connect, distributed, and kill -9 of its worker and of the server, again and again.

    python -m tests.soak.connect --kills 20 --seed 1 [--at-least-once]

A source carries a file's lines into a topic, a sink the topic's lines into another file (`tests/integration/connect`).
Every fifth kill, and at the end, the topic and the file are compared with what was written: each line is there, in
order in its partition, and once in the topic, or at least once by `--at-least-once`.

It needs Java and the scripts that fetch Kafka's jars (`MAGNETAR_PEERS`), and is skipped without.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from magnetar.testing.server import MagnetarProcess
from tests.integration.connect.lines import SETTINGS, Broken, Lines
from tests.integration.java_programs import ProgramFailed
from tests.peers import is_here

LINES = 2000  # before each kill
KILL_S_MAX = 2.0
CHECK_EVERY = 5
KINDS = ("worker", "server", "both")


def run(server: MagnetarProcess, lines: Lines, kills: int, seed: int) -> str:
    began = time.monotonic()
    choose = random.Random(seed)
    lines.worker.start()
    lines.connect()
    for kill in range(1, kills + 1):
        before = lines.count
        lines.write(LINES)
        lines.wait_for(before + LINES // 4)
        time.sleep(choose.uniform(0, KILL_S_MAX))  # the random moment: nothing is waited for
        kind = choose.choice(KINDS)
        if kind != "server":
            lines.worker.kill()
        if kind != "worker":
            server.kill()
            server.restart()
        if not lines.worker.running:
            lines.worker.start()
        if kill % CHECK_EVERY == 0:
            lines.finish()
            print(f"  kill {kill}: {lines.count} lines, {time.monotonic() - began:.0f} s", flush=True)
    lines.finish()
    lines.wait_until_running()
    if "Traceback" in server.log:
        raise Broken("a traceback: " + server.log[server.log.index("Traceback") :][:600])
    return f"{kills} kills, {lines.count} lines came, {time.monotonic() - began:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument(
        "--at-least-once", action="store_true", help="without exactly.once.source.support, in one partition"
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    command = f"python -m tests.soak.connect --kills {options.kills} --seed {seed}"
    command += " --at-least-once" * options.at_least_once
    if not is_here("kafka"):
        print(f"skipped {command}: there is no Java, or no script that fetches Kafka", flush=True)
        return 0
    print(command, flush=True)
    try:
        with (
            MagnetarProcess(settings=SETTINGS) as server,
            tempfile.TemporaryDirectory() as folder,
            Lines(server, Path(folder), exactly_once=not options.at_least_once) as lines,
        ):
            print(run(server, lines, options.kills, seed), flush=True)
    except (Broken, ProgramFailed) as broken:
        print(f"FAILED {command}: {broken}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
