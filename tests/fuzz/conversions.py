"""Throw damaged batches at the conversions between the protocols.

    python -m tests.fuzz.conversions --mutations 1000000 --seed 1

Each round damages the records of a Kafka batch or the messages of a Pulsar batch and converts them with the compiled
code, twice, among different neighbours: WireError is the only exception that may come out, nothing outside the arrays
may be written, and what lies outside must not change the result.  What Python makes of the same bytes must be the same.
The whole way from an entry or a batch is taken, too.  A failure prints the seed, the round and the bytes.
"""

import random
import sys
from collections.abc import Callable
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder

from magnetar.base.errors import WireError
from magnetar.wire.convert import engine, kafka_to_pulsar, load, plain, pulsar_to_kafka
from magnetar.wire.kafka.records import HEADER_SIZE
from magnetar.wire.pulsar.entry import read_entry
from tests.fuzz.guarded import Guarded, Outcome, agreed, command, rounds
from tests.fuzz.kafka_codec import mutate

NOW_MS = 1_700_000_000_000


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
    return agreed(guarded, lambda: _outcome(compiled), lambda: _outcome(python)) is not None


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
    engine._empty, engine._array = guarded.empty, guarded.readable
    outcome = Outcome()
    try:
        for number in rounds(mutations, outcome, progress=progress):
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
    finally:
        engine._empty, engine._array = own
    return outcome


if __name__ == "__main__":
    sys.exit(command("Throw damaged batches at the conversions.", run))
