"""A part of `make soak` that lasts for minutes and draws from a seed, as a command."""

import argparse
import random
from collections.abc import Callable


def main(module: str, text: str | None, minutes: float, run: Callable[[float, int], str]) -> int:
    """Print the command that does the same again, then what `run` says at its end; 1 if it fails.

    `run` is given the minutes (`minutes` by default) and the seed.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    command = f"python -m {module} --minutes {options.minutes:g} --seed {seed}"
    print(command, flush=True)
    try:
        print(run(options.minutes, seed), flush=True)
    except Exception as failure:  # noqa: BLE001 - whatever it was, the line with the seed must come out
        print(f"FAILED {command}: {failure}", flush=True)
        return 1
    return 0
