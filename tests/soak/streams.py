"""Kafka Streams with exactly_once_v2, and kill -9 of it and of the server, again and again.

    python -m tests.soak.streams --kills 40 --seed 1

The application keeps running sums in a state store with a compacted changelog (`tests/integration/streams`).  While it
works, it is killed, or the server, or both, or both and what the application has on disk is removed: then it restores
its store from what compaction has left of the changelog.  Every fifth kill, and at the end, all committed sums are
compared with the amounts that were written: one for each, in order, none lost and none counted twice.

It needs Java and the scripts that fetch Kafka's jars (`MAGNETAR_PEERS`), and is skipped without.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_programs import ProgramFailed
from tests.integration.streams.running_sums import SETTINGS, Broken, RunningSums
from tests.peers import is_here

AMOUNTS = 400  # before each kill
KILL_S_MAX = 2.0
CHECK_EVERY = 5
PROTOCOLS = ("classic", "streams")
KINDS = ("application", "server", "both", "both and its state")


def run(server: MagnetarProcess, folder: Path, kills: int, seed: int) -> str:
    began = time.monotonic()
    choose = random.Random(seed)
    protocol = choose.choice(PROTOCOLS)
    print(f"  by the {protocol} protocol", flush=True)
    with RunningSums(server, folder, seed, protocol) as sums:
        application = sums.application
        application.start()
        for kill in range(1, kills + 1):
            before = sums.read_count
            sums.write(AMOUNTS)
            sums.wait_for(before + AMOUNTS // 4)
            time.sleep(choose.uniform(0, KILL_S_MAX))  # the random moment: nothing is waited for
            kind = choose.choice(KINDS)
            if kind != "server":
                application.kill()
            if kind != "application":
                server.kill()
            if kind == KINDS[-1]:
                sums.forget_state()
            if not server.running:
                server.restart()
            if not application.running:
                application.start()
            if kill % CHECK_EVERY == 0:
                sums.finish()
                print(f"  kill {kill}: {sums.read_count} sums, {time.monotonic() - began:.0f} s", flush=True)
        sums.finish()
        left = sums.wait_until_compacted()
        if "Traceback" in server.log:
            raise Broken("a traceback: " + server.log[server.log.index("Traceback") :][:600])
        return (
            f"{kills} kills, {sums.read_count} sums exact, {left} records left in the changelog,"
            f" {time.monotonic() - began:.0f} s"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    command = f"python -m tests.soak.streams --kills {options.kills} --seed {seed}"
    if not is_here("kafka"):
        print(f"skipped {command}: there is no Java, or no script that fetches Kafka", flush=True)
        return 0
    print(command, flush=True)
    try:
        with MagnetarProcess(settings=SETTINGS) as server, tempfile.TemporaryDirectory() as folder:
            print(run(server, Path(folder), options.kills, seed), flush=True)
    except (Broken, ProgramFailed) as broken:
        print(f"FAILED {command}: {broken}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
