"""What the fuzzers of compiled code share: arrays with guards, rounds that are counted and watched, a command."""

import argparse
import faulthandler
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy

GUARD = 64
HANG_SECONDS = 60
FAILURES_MAX = 20


@dataclass
class Outcome:
    """What a run found."""

    mutations: int = 0
    refused: int = 0
    read: int = 0
    failures: list[str] = field(default_factory=list)


class Run(Protocol):
    def __call__(self, mutations: int, seed: int, *, progress: bool = False) -> Outcome: ...


class Guarded:
    """Arrays with a guard on both sides, in place of those that the compiled code is given."""

    def __init__(self) -> None:
        self.fill = 0
        self._out: list[Any] = []

    def empty(self, size: int) -> Any:
        return self.fresh(size, numpy.uint8)

    def fresh(self, count: int, kind: Any) -> Any:
        """To be written."""
        size = count * numpy.dtype(kind).itemsize
        whole = numpy.full(size + 2 * GUARD, 0xA5, numpy.uint8)
        self._out.append(whole)
        return whole[GUARD : GUARD + size].view(kind)

    def readable(self, data: memoryview) -> Any:
        """Among neighbours that are all `fill`."""
        whole = numpy.full(len(data) + 2 * GUARD, self.fill, numpy.uint8)
        array = whole[GUARD:-GUARD]
        array[:] = data
        array.flags.writeable = False
        return array

    def check(self) -> None:
        for whole in self._out:
            if (whole[:GUARD] != 0xA5).any() or (whole[-GUARD:] != 0xA5).any():
                raise AssertionError("bytes outside the array were written")
        self._out.clear()


def agreed(guarded: Guarded, compiled: Callable[[], Any], python: Callable[[], Any]) -> Any:
    """What comes out of the compiled code, whatever lies outside, and of Python."""
    results = []
    for fill in (0x00, 0x81):
        guarded.fill = fill
        results.append(compiled())
        guarded.check()
    if results[0] != results[1]:
        raise AssertionError("bytes outside the array were read")
    if python() != results[0]:
        raise AssertionError("Python and the compiled code disagree")
    return results[0]


def rounds(mutations: int, outcome: Outcome, *, progress: bool) -> Iterator[int]:
    """The numbers of the rounds, until there are enough failures; one that hangs ends the process."""
    started = time.monotonic()
    try:
        for number in range(mutations):
            if number % 1_000 == 0:
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            if progress and number and number % 10_000 == 0:
                rate = number / (time.monotonic() - started)
                print(f"{number:,} mutations, {rate:,.0f}/s, {len(outcome.failures)} failures", flush=True)
            yield number
            if len(outcome.failures) == FAILURES_MAX:
                return
            outcome.mutations += 1
    finally:
        faulthandler.cancel_dump_traceback_later()


def command(description: str, run: Run) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    outcome = run(options.mutations, options.seed, progress=True)
    print(f"{outcome.mutations:,} mutations: {outcome.refused:,} refused, {outcome.read:,} read")
    for failure in outcome.failures:
        print(failure)
    return bool(outcome.failures)
