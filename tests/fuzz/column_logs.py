"""Throw damaged logs at the decoder of columns, and columns that lie at the encoder.

    python -m tests.fuzz.column_logs --mutations 1000000 --seed 1

Each round damages entries of a stored log, most of the time under a checksum that holds, and decodes it with the
compiled code, twice, among different neighbours: EntryCorrupt is the only exception that may come out, nothing outside
the arrays may be written, and what lies outside must not change the result.  What Python makes of the same bytes must
be the same.  What comes out is damaged in turn, and encoded: ValueError is the only exception there.  A failure prints
the seed, the round and the bytes.
"""

import contextlib
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from crc32c import crc32c

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.entry_format import EntryPrefix
from magnetar.wire.columns import (
    Columns,
    Producer,
    Wanted,
    Window,
    buffers,
    decoding,
    encoding,
    engine,
    load,
    plain,
)
from magnetar.wire.columns.layout import TABLE_WIDTH
from magnetar.wire.columns.model import BinaryColumn, Decoded
from magnetar.wire.convert import kafka_to_pulsar
from magnetar.wire.convert.codecs import PULSAR_OF, compress_for_kafka, compress_for_pulsar
from magnetar.wire.kafka.records import HEADER_SIZE, assign_offset
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata
from magnetar.wire.stored import RECORD, RECORD_REST
from tests.fuzz.conversions import NOW_MS, corpus
from tests.fuzz.guarded import Guarded, Outcome, agreed, command, rounds
from tests.fuzz.kafka_codec import mutate

BYTES_MAX = 64 << 20
HEADERS = Wanted(headers=True)
ENTRIES_PER_LOG = 3


def _pulsar(rng: random.Random) -> bytes:
    """An entry of one message, as a producer sends it that does not batch; now and then a chunk."""
    codec = rng.choice((0, 0, 1, 2, 3, 4))
    value = rng.randbytes(rng.randrange(60)) * rng.choice((1, 4))
    metadata = MessageMetadata(producer_name="p", sequence_id=rng.randrange(9), publish_time=NOW_MS)
    metadata.compression = PULSAR_OF[codec]  # type: ignore[assignment]
    metadata.uncompressed_size = len(value)
    if rng.random() < 0.6:
        metadata.partition_key = rng.choice(("", "key", "aGVsbG8=", "?"))
        metadata.partition_key_b64_encoded = rng.random() < 0.5
    if rng.random() < 0.3:
        metadata.ordering_key = b"order"
    for _ in range(rng.choice((0, 0, 1, 3))):
        metadata.properties.add(
            key=rng.choice(("a", "a;0;null", "b;0;base64")), value=rng.choice(("", "eHg=", "v"))
        )
    if rng.random() < 0.3:
        metadata.event_time = NOW_MS - 5
    if rng.random() < 0.2:
        metadata.null_value = True
    payload = bytes(compress_for_pulsar(memoryview(value), PULSAR_OF[codec])) if value else b""
    if rng.random() < 0.2:
        metadata.uuid = "u"
        metadata.num_chunks_from_msg = 2
        metadata.chunk_id = rng.randrange(2)
        metadata.total_chunk_msg_size = 2 * len(payload)
    return frame_entry(metadata, payload)


def seeds_of(rng: random.Random) -> list[tuple[bool, bytes, int]]:
    """(whether it is Pulsar's, what a client sent, its messages)."""
    seeds = []
    for batch, count in corpus(rng):
        seeds.append((False, batch, count))
        codec = rng.randrange(1, 5)
        records = bytes(compress_for_kafka(memoryview(batch[HEADER_SIZE:]), codec))
        packed = bytearray(batch[:HEADER_SIZE] + records)
        packed[22] |= codec
        packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
        seeds.append((False, bytes(packed), count))
        seeds.append((True, bytes(kafka_to_pulsar(memoryview(batch))), count))
        seeds.append((True, bytes(kafka_to_pulsar(memoryview(packed))), count))
        seeds.append((True, _pulsar(rng), 1))
    return seeds


def damaged(rng: random.Random, seeds: list[tuple[bool, bytes, int]]) -> bytes:
    """A log of some entries, of which at least one is damaged."""
    prefixes = EntryPrefix()
    parts = []
    offset = 0
    hit = rng.randrange(ENTRIES_PER_LOG)
    for number in range(ENTRIES_PER_LOG):
        is_pulsar, sent, count = rng.choice(seeds)
        payload = bytearray(sent)
        last_offset = offset + count - 1
        if not is_pulsar:
            assign_offset(memoryview(payload), offset, 0)
        way = rng.random() if number == hit else 1.0
        if way < 0.5:  # the messages alone: what describes them stays whole
            at = _messages_at(is_pulsar, payload)
            payload[at:] = mutate(bytes(payload[at:]), rng.choice(seeds)[1], rng)[1]
            if not is_pulsar:
                payload[8:12] = (len(payload) - 12).to_bytes(4, "big")
        elif way < 0.9:
            payload = bytearray(mutate(bytes(payload), rng.choice(seeds)[1], rng)[1])
        prefix = (
            prefixes.pulsar(NOW_MS, last_offset, count)
            if is_pulsar
            else prefixes.kafka(NOW_MS, last_offset, count)
        )
        body = prefix + payload
        if way < 1.0 and rng.random() < 0.1:
            body = mutate(body, sent, rng)[1]
        rest = RECORD_REST.pack(1, number, last_offset, NOW_MS)
        parts.append(
            RECORD.pack(len(body), crc32c(body, crc32c(rest)), 1, number, last_offset, NOW_MS) + body
        )
        offset = last_offset + 1
    log = b"".join(parts)
    return mutate(log, log, rng)[1] if rng.random() < 0.05 else log


def _messages_at(is_pulsar: bool, payload: bytearray) -> int:
    return 10 + int.from_bytes(payload[6:10], "big") if is_pulsar else HEADER_SIZE


def facts_of(decoded: Decoded) -> Any:
    """All of it, in a form that can be compared."""
    columns = decoded.columns
    key, value, pairs = columns.key, columns.value, columns.headers
    assert pairs is not None
    return (
        decoded.consumed, decoded.last_offset, decoded.needs_assembly, decoded.undecodable, columns.count,
        *(_values(column) for column in (key, value, pairs.names, pairs.values)), pairs.offsets.tolist(),
        *(numbers.tolist() for numbers in (columns.offset, columns.timestamp_us, columns.timestamp_type)),  # type: ignore[union-attr]
    )  # fmt: skip


def _values(column: BinaryColumn | None) -> list[bytes | None]:
    assert column is not None
    return [column[at] for at in range(len(column))]


def _outcome(decode: Callable[[], Decoded]) -> Any:
    try:
        return facts_of(decode())
    except EntryCorrupt as error:
        return str(error)


def attempt(guarded: Guarded, data: bytes, window: Window) -> Any:
    """Decode damaged bytes; what came out.  Raises whatever is not an EntryCorrupt."""

    def compiled() -> Any:
        decoding._kept.table = numpy.empty((0, TABLE_WIDTH), numpy.int64)  # guarded, too
        decoding._kept.headers.pairs_per_row = 0.0  # so that headers have too little room at first
        return _outcome(lambda: decoding.decode(engine._compiled.modules, data, HEADERS, window, BYTES_MAX))

    return agreed(guarded, compiled, lambda: _outcome(lambda: plain.decode(data, HEADERS, window, BYTES_MAX)))


def lie(guarded: Guarded, columns: Columns, rng: random.Random) -> None:
    """Encode columns after one of their arrays was damaged."""
    pairs = columns.headers
    assert columns.key is not None
    assert columns.value is not None
    assert pairs is not None
    column = rng.choice((columns.key, columns.value, pairs.names, pairs.values))
    arrays = (column.offsets, pairs.offsets)
    array = rng.choice(arrays).copy()
    if len(array):
        array[rng.randrange(len(array))] = rng.choice((-1, 0, 1, 1 << 20, (1 << 31) - 1, -(1 << 31)))
    if rng.random() < 0.5:
        column.offsets = array[: len(column.offsets)] if len(array) >= len(column.offsets) else column.offsets
    else:
        pairs.offsets = array[: len(pairs.offsets)] if len(array) >= len(pairs.offsets) else pairs.offsets
    rows = numpy.arange(columns.count)
    limits = (rng.choice((0, 3)), rows, rng.choice((100, 1 << 20)), rng.choice((1, 100)), Producer(), 0)
    with contextlib.suppress(ValueError):
        encoding.encode(engine._compiled.modules["compiled_encode"], columns, *limits)
    guarded.check()


def run(mutations: int, seed: int, *, progress: bool = False) -> Outcome:
    assert load()
    rng = random.Random(seed)
    seeds = seeds_of(rng)
    guarded = Guarded()
    patch = pytest.MonkeyPatch()
    for module in (decoding, buffers, encoding):
        patch.setattr(module, "fresh", guarded.fresh)
    patch.setattr(decoding, "readable", guarded.readable)
    outcome = Outcome()
    try:
        for number in rounds(mutations, outcome, progress=progress):
            data = damaged(rng, seeds)
            window = (
                Window()
                if rng.random() < 0.7
                else Window(rng.randrange(9), rng.randrange(20), committed=True)
            )
            try:
                result = attempt(guarded, data, window)
                if isinstance(result, str) or result[3]:
                    outcome.refused += 1
                else:
                    outcome.read += 1
                if not isinstance(result, str) and rng.random() < 0.3:
                    lie(
                        guarded,
                        decoding.decode(engine._compiled.modules, data, HEADERS, window, BYTES_MAX).columns,
                        rng,
                    )
                    guarded.check()
            except Exception as error:  # noqa: BLE001 - any exception is a finding
                outcome.failures.append(f"seed {seed} round {number} {window}: {error!r}\n  {data.hex()}")
    finally:
        patch.undo()
        decoding._kept.headers.pairs_per_row = 1.0
    return outcome


if __name__ == "__main__":
    sys.exit(command("Throw damaged logs at the decoder of columns.", run))
