"""A part of `make soak` that draws from a seed, as a command."""

import argparse
import random
import traceback
from collections.abc import Callable, Mapping

from tests.soak import planted
from tests.soak.mixed_history import Broken

Run = Callable[[argparse.Namespace, int], str]


def say(line: str) -> None:
    """Print at once what a part tells of its progress."""
    print(line, flush=True)


def main(
    module: str, text: str | None, numbers: Mapping[str, float], run: Run, *, has_bugs: bool = False
) -> int:
    """Print the command that does the same again, then what `run` says at its end; 1 if it fails.

    `run` gets the options and the seed.  `numbers` are options with their defaults, whose types they have; with
    `has_bugs` there is `planted`, the name of a bug that the server has, or nothing.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    if has_bugs:
        parser.add_argument("--planted", choices=planted.BUGS, default="", help="a bug that the server has")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    said = "".join(f" --{name} {getattr(options, name):.10g}" for name in numbers)
    command = f"python -m {module}{said} --seed {seed}"
    if has_bugs and options.planted:
        command += f" --planted {options.planted}"
    say(command)
    try:
        say(run(options, seed))
    except Exception as failure:  # noqa: BLE001 - whatever it was, the line with the seed must come out
        if not isinstance(failure, Broken):
            traceback.print_exc()
        say(f"FAILED {command}: {failure}")
        return 1
    return 0
