"""`make soak`: what `make test` does a few times each, for hours.

    python -m tests.soak --rounds 1000 --minutes 60 [--only NAME ...]

Each part is a command of its own, which prints its seed first and one line at the end.  All parts run, whatever becomes
of the others; the exit code says whether all held.
"""

import argparse
import subprocess
import sys
import time

from tests.crash.server.killing import REPOSITORY

PARTS = {
    "kills": ["tests.crash.server.rounds", "--rounds", "{rounds}"],
    "pulsar-kills": ["tests.crash.server.pulsar_rounds", "--rounds", "{rounds}"],
    "lives": ["tests.crash.server.lives_rounds", "--rounds", "{rounds}"],
    "power": ["tests.crash.power.cuts", "--rounds", "{rounds}"],
    "flips": ["tests.crash.flips.flips", "--rounds", "{rounds}"],
    "compaction": ["tests.soak.compaction"],
    "streams": ["tests.soak.streams"],
    "connect": ["tests.soak.connect"],
    "connect-at-least-once": ["tests.soak.connect", "--at-least-once"],
    "examples": [
        "pytest",
        "-n",
        "2",
        "-m",
        "hypothesis and not spark",
        "--hypothesis-profile",
        "soak",
        "--timeout",
        "7200",
    ],
    "brokers": ["tests.models.cluster", "--seeds", "10000"],
    "owners": ["tests.models.ownership", "--seeds", "10000"],
    "queue": ["tests.soak.mixed_queue"],
    "delayed": ["tests.soak.delayed"],
    "functions": ["tests.soak.functions"],
    "long-tests": ["pytest", "-n", "2", "-m", "soak and not spark"],
    "transactions": ["tests.soak.mixed", "--minutes", "{minutes}"],
    "hostile": ["tests.soak.hostile", "--minutes", "{minutes}"],
    **{
        f"flights-{target}": ["tests.soak.flights", "--target", target]
        for target in ("kafka", "kafka-once", "magnetar", "pulsar", "kinesis", "dynamodb")
    },
    "paying": ["tests.soak.paying", "--minutes", "{minutes}"],
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1000, help="kills and power cuts of each kind")
    parser.add_argument(
        "--minutes", type=int, default=60, help="of mixed transactions, and of hostile clients"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    failed = []
    for name in options.only:
        began = time.monotonic()
        command = [part.format(rounds=options.rounds, minutes=options.minutes) for part in PARTS[name]]
        code = subprocess.run([sys.executable, "-m", *command], cwd=REPOSITORY, check=False).returncode
        print(f"{name}: {'FAILED' if code else 'held'}, {time.monotonic() - began:.0f} s", flush=True)
        if code:
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
