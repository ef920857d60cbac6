"""Throw damaged messages at the Kafka readers.

    python -m tests.fuzz.kafka_codec --mutations 5000000 --seed 1

Each round takes a well-formed message of some API and version, damages it (bytes changed, lengths forged,
pieces cut, repeated or taken from another message) and reads it.  WireError is the only exception that may
come out.  What can still be read must be writable, to bytes that read as the same message again.  Memory must
not grow: a forged length allocates nothing.  A failure prints the seed, the message and its bytes.
"""

import argparse
import faulthandler
import random
import resource
import struct
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from magnetar.base.errors import WireError
from magnetar.wire.kafka.header import decode_request_header
from tests.fuzz.kafka_instances import Case, cases

SEEDS_PER_CASE = 6
GROWTH_BYTES_MAX = 64 << 20
HANG_SECONDS = 60
FORGED = [
    *(struct.pack(">b", value) for value in (-128, -2, -1, 0, 1, 127)),
    *(struct.pack(">h", value) for value in (-32768, -2, -1, 0, 255, 32767)),
    *(struct.pack(">i", value) for value in (-(1 << 31), -2, -1, 0, 65536, (1 << 31) - 1)),
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x10",
    b"\xff\xff\xff\xff\xff\x01",
    b"\x80\x00",
]


@dataclass
class Outcome:
    """What a run found."""

    mutations: int = 0
    refused: int = 0
    read: int = 0
    growth_bytes: int = 0
    failures: list[str] = field(default_factory=list)
    by_kind: Counter[str] = field(default_factory=Counter)


def mutate(data: bytes, other: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A damaged copy of `data`, and how it was damaged; `other` lends pieces."""
    out = bytearray(data)
    kind = rng.choice(
        ("flip", "flip", "forge", "forge", "insert", "cut", "truncate", "repeat", "splice", "extend")
    )
    at = rng.randrange(len(out) + 1)
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 2, 8))):
            if out:
                out[rng.randrange(len(out))] = rng.randrange(256)
    elif kind == "forge":
        forged = rng.choice(FORGED)
        out[at : at + (len(forged) if rng.random() < 0.7 else 1)] = forged
    elif kind == "insert":
        out[at:at] = rng.randbytes(rng.randrange(1, 9))
    elif kind == "cut":
        del out[at : at + rng.randrange(1, 9)]
    elif kind == "truncate":
        del out[at:]
    elif kind == "repeat":
        out[at:at] = out[at : at + rng.randrange(1, 65)]
    elif kind == "splice":
        out[at:] = other[rng.randrange(len(other) + 1) :]
    else:
        out += rng.randbytes(rng.randrange(1, 65))
    return kind, bytes(out)


def attempt(case: Case, data: bytes) -> bool:
    """Read `data`; whether it was a message after all.  Raises whatever is not a WireError."""
    try:
        message = case.decode(data)
    except WireError:
        return False
    again = case.encode(message)
    # Compared as bytes: a float that is not a number is not equal to itself.
    if case.encode(case.decode(again)) != again:
        raise AssertionError("what was read is not what is read after writing it")
    return True


def resident_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(mutations: int, seed: int, *, progress: bool = False) -> Outcome:
    rng = random.Random(seed)
    corpus = [(case, case.encode(case.instance(rng))) for case in cases() for _ in range(SEEDS_PER_CASE)]
    outcome = Outcome()
    started, peak = time.monotonic(), resident_peak_bytes()
    for round_number in range(mutations):
        if round_number % 100_000 == 0:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            if progress and round_number:
                rate = round_number / (time.monotonic() - started)
                print(
                    f"{round_number:,} mutations, {rate:,.0f}/s, {len(outcome.failures)} failures", flush=True
                )
        case, data = rng.choice(corpus)
        kind, damaged = mutate(data, rng.choice(corpus)[1], rng)
        if rng.random() < 0.3:
            second, damaged = mutate(damaged, data, rng)
            kind += "+" + second
        outcome.by_kind[kind] += 1
        try:
            if attempt(case, damaged):
                outcome.read += 1
            else:
                outcome.refused += 1
            with suppress(WireError):
                decode_request_header(memoryview(damaged))
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            outcome.failures.append(
                f"seed {seed} round {round_number} {case} {kind}: {error!r}\n  {damaged.hex()}"
            )
            if len(outcome.failures) == 20:
                break
    faulthandler.cancel_dump_traceback_later()
    outcome.mutations = sum(outcome.by_kind.values())
    outcome.growth_bytes = resident_peak_bytes() - peak
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw damaged messages at the Kafka readers.")
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    outcome = run(options.mutations, options.seed, progress=True)
    for failure in outcome.failures:
        print(failure, file=sys.stderr)
    grew = outcome.growth_bytes > GROWTH_BYTES_MAX
    print(
        f"kafka codec fuzz, seed {options.seed}: {outcome.mutations:,} mutations "
        f"in {time.monotonic() - started:.0f} s; "
        f"{outcome.refused:,} refused, {outcome.read:,} still messages, {len(outcome.failures)} failures; "
        f"memory grew by {outcome.growth_bytes / (1 << 20):.1f} MiB"
    )
    return 1 if outcome.failures or grew else 0


if __name__ == "__main__":
    sys.exit(main())
