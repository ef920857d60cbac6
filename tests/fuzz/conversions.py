"""Throw damaged batches at the conversions between the protocols.

    python tests/fuzz/conversions.py --mutations 1000000 --seed 1

Each round damages the records of a Kafka batch or the messages of a Pulsar batch and converts them with the compiled
code, twice, among different neighbours: WireError is the only exception that may come out, nothing outside the arrays
may be written, and what lies outside must not change the result.  What Python makes of the same bytes must be the same.
The whole way from an entry or a batch is taken, too.  A failure prints the seed, the round and the bytes.
"""

import argparse
import faulthandler
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
from kafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from kafka_codec import mutate

from magnetar.base.errors import WireError
from magnetar.wire.convert import engine, kafka_to_pulsar, load, plain, pulsar_to_kafka
from magnetar.wire.kafka.records import HEADER_SIZE
from magnetar.wire.pulsar.entry import read_entry

GUARD = 64
HANG_SECONDS = 60
NOW_MS = 1_700_000_000_000


@dataclass
class Outcome:
    """What a run found."""

    mutations: int = 0
    refused: int = 0
    read: int = 0
    failures: list[str] = field(default_factory=list)


class Guarded:
    """Arrays with a guard on both sides, in place of the engine's own."""

    def __init__(self) -> None:
        self.fill = 0
        self._out: list[Any] = []

    def empty(self, size: int) -> Any:
        whole = numpy.full(size + 2 * GUARD, 0xA5, numpy.uint8)
        self._out.append(whole)
        return whole[GUARD:-GUARD]

    def array(self, data: memoryview) -> Any:
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


def _text(rng: random.Random) -> str:
    return rng.choice(("", "a", "name", "ä€😀", "x;0;null", "x;1;base64", "pulsar-ordering-key", "z" * 200))


def _blob(rng: random.Random) -> bytes | None:
    return rng.choice(
        (None, b"", b"text", b"\xff\xfe", _text(rng).encode(), rng.randbytes(rng.randrange(300)))
    )


def corpus(rng: random.Random) -> list[tuple[bytes, int]]:
    """Well-formed Kafka batches, uncompressed, and how many records each has."""
    batches = []
    for _ in range(60):
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
        count = rng.choice((1, 2, 3, 8))
        for index in range(count):
            headers = [(_text(rng), _blob(rng)) for _ in range(rng.choice((0, 0, 1, 3, 18)))]
            builder.append(index, NOW_MS + rng.randrange(-5, 1 << 20), _blob(rng), _blob(rng), headers)
        batches.append((bytes(builder.build()), count))
    return batches


def _outcome(convert: Callable[[], Any]) -> Any:
    try:
        return convert()
    except WireError:
        return None


def _both_ways(guarded: Guarded, compiled: Callable[[], Any], python: Callable[[], Any]) -> bool:
    results = []
    for fill in (0x00, 0x81):
        guarded.fill = fill
        results.append(_outcome(compiled))
        guarded.check()
    if results[0] != results[1]:
        raise AssertionError("bytes outside the array were read")
    if _outcome(python) != results[0]:
        raise AssertionError("Python and the compiled code disagree")
    return results[0] is not None


def attempt(guarded: Guarded, from_kafka: bool, data: bytes, count: int, slots: int) -> bool:
    """Convert damaged bytes; whether they could be.  Raises whatever is not a WireError."""
    view = memoryview(data)
    if from_kafka:
        return _both_ways(
            guarded,
            lambda: bytes(engine.messages_of(view, count, slots, NOW_MS, -1, 0)),
            lambda: plain.messages_of(view, count, slots, NOW_MS, -1),
        )
    return _both_ways(
        guarded,
        lambda: _as_bytes(engine.records_of(view, count, NOW_MS, 0)),
        lambda: _as_bytes(plain.records_of(view, count, NOW_MS)),
    )


def _as_bytes(records: plain.Records) -> plain.Records:
    return records._replace(data=bytes(records.data))


def _whole(from_kafka: bool, data: bytes) -> None:
    """The way that a stored entry takes, checksums aside."""
    view = memoryview(data)
    if from_kafka:
        _outcome(lambda: kafka_to_pulsar(view))
    else:
        _outcome(lambda: pulsar_to_kafka(read_entry(view, verify=False), 0, 0))


def run(mutations: int, seed: int, *, progress: bool = False) -> Outcome:
    assert load()
    rng = random.Random(seed)
    seeds: list[tuple[bool, bytes, bytes, int]] = []  # from Kafka, the records alone, the whole, count
    for batch, count in corpus(rng):
        entry = bytes(kafka_to_pulsar(memoryview(batch)))
        seeds.append((True, batch[HEADER_SIZE:], batch, count))
        seeds.append((False, bytes(read_entry(memoryview(entry), verify=True).payload), entry, count))
    guarded = Guarded()
    own = engine._empty, engine._array
    engine._empty, engine._array = guarded.empty, guarded.array
    outcome = Outcome()
    started = time.monotonic()
    try:
        for number in range(mutations):
            if number % 10_000 == 0:
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
                if progress and number:
                    rate = number / (time.monotonic() - started)
                    print(
                        f"{number:,} mutations, {rate:,.0f}/s, {len(outcome.failures)} failures", flush=True
                    )
            from_kafka, data, whole, count = rng.choice(seeds)
            _, damaged = mutate(data, rng.choice(seeds)[1], rng)
            slots = count + rng.choice((0, 0, 0, 1, 5))
            try:
                if attempt(guarded, from_kafka, damaged, count, slots):
                    outcome.read += 1
                else:
                    outcome.refused += 1
                _whole(from_kafka, mutate(whole, data, rng)[1])
                guarded.check()
            except Exception as error:  # noqa: BLE001 - any exception is a finding
                way = "from Kafka" if from_kafka else "from Pulsar"
                outcome.failures.append(
                    f"seed {seed} round {number} {way} {count} in {slots}: {error!r}\n  {damaged.hex()}"
                )
                if len(outcome.failures) == 20:
                    break
            outcome.mutations += 1
    finally:
        engine._empty, engine._array = own
        faulthandler.cancel_dump_traceback_later()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw damaged batches at the conversions.")
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    outcome = run(options.mutations, options.seed, progress=True)
    print(f"{outcome.mutations:,} mutations: {outcome.refused:,} refused, {outcome.read:,} read")
    for failure in outcome.failures:
        print(failure)
    return bool(outcome.failures)


if __name__ == "__main__":
    sys.exit(main())
