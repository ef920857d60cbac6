"""Throw damaged frames at the Pulsar readers.

    python -m tests.fuzz.pulsar_frames --mutations 5000000 --seed 1

Each round takes what a real client sent (tests/unit/wire/pulsar/golden) or an entry of ours, damages it (bytes changed,
lengths forged, pieces cut, repeated or taken from another one) and reads it: the command, the entry behind it, its
batch. WireError is the only exception that may come out, and no count of messages may exceed what its bytes can hold.
A failure prints the seed and the bytes.
"""

import argparse
import random
import struct
import sys
from collections import Counter
from pathlib import Path

from magnetar.base.errors import WireError
from magnetar.wire.pulsar.commands import read_command
from magnetar.wire.pulsar.entry import (
    BATCH_MESSAGES_MAX,
    broker_metadata,
    frame_entry,
    read_batch,
    read_entry,
    split_broker_metadata,
)
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata

GOLDEN = Path(__file__).parents[1] / "unit" / "wire" / "pulsar" / "golden" / "pulsar-client-3.13.0.bin"
FORGED = [
    *(struct.pack(">I", value) for value in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)),
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x0e\x01",
    b"\x0e\x02",
]


def frames() -> list[bytes]:
    """The frames of the recording, without their sizes, and stored entries of our own."""
    left = GOLDEN.read_bytes()
    found = []
    while left:
        (size,) = struct.unpack_from(">I", left)
        found.append(left[4 : 4 + size])
        left = left[4 + size :]
    single = SingleMessageMetadata(payload_size=3, partition_key="key").SerializeToString()
    message = struct.pack(">I", len(single)) + single + b"abc"
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=4, highest_sequence_id=4
    )
    found.append(broker_metadata(5, 6) + frame_entry(metadata, message * 4))
    return found


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A damaged copy of `data`; `other` lends pieces."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                out[at : at + 1] = bytes((rng.randrange(256),))
            case 1:
                piece = rng.choice(FORGED)
                out[at : at + len(piece)] = piece
            case 2:
                del out[at : at + rng.randrange(1, 9)]
            case 3:
                del out[at:]
            case 4:
                out[at:at] = out[at : at + rng.randrange(1, 30)]
            case 5:
                start = rng.randrange(len(other))
                out[at:at] = other[start : start + rng.randrange(1, 60)]
    return bytes(out)


def attempt(data: bytes) -> bool:
    """Read `data` every way there is; whether anything could be read."""
    could = False
    entries = [memoryview(data)]
    try:
        _, _, entry = read_command(memoryview(data))
        could = True
        entries.append(entry)
    except WireError:
        pass
    for one in entries:
        try:
            _, entry = split_broker_metadata(one)
            view = read_entry(entry, verify=False)
            could = True
            assert 1 <= view.num_messages <= BATCH_MESSAGES_MAX, view.num_messages
            if view.is_batch:
                for message in read_batch(view.payload, view.num_messages):
                    assert len(message.payload) <= len(data)
        except WireError:
            pass
    return could


def run(mutations: int, seed: int) -> Counter[bool]:
    """How many damaged frames could be read (True) and could not."""
    rng = random.Random(seed)
    originals = frames()
    outcomes: Counter[bool] = Counter()
    for _ in range(mutations):
        data = mutate(rng.choice(originals), rng.choice(originals), rng)
        try:
            outcomes[attempt(data)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}: {data.hex()}")
            raise
    return outcomes


def main() -> int:
    arguments = argparse.ArgumentParser(description="Throw damaged frames at the Pulsar readers.")
    arguments.add_argument("--mutations", type=int, default=1_000_000)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = arguments.parse_args()
    outcomes = run(given.mutations, given.seed)
    print(f"seed {given.seed}: {outcomes[False]} refused, {outcomes[True]} read")
    return 0


if __name__ == "__main__":
    sys.exit(main())
