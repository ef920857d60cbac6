"""Pulsar's `ack_set` <-> ranges of offsets.

An ack_set says which messages of one entry are acknowledged.  It consists of 64-bit words, with the first message in
the lowest bit of the first word.  Bit 1 = still unacknowledged, 0 = acknowledged; words past the end are 0.  An empty
one stands for no ack_set at all, that is for the whole entry.  Message i of an entry has offset `base + i`, so sets of
bits are ranges of offsets.

To find what is acknowledged takes time linear in the words that a client has sent, up to `RUNS_MAX` separate runs in
one entry.  Clients send all of an entry's bits each time.  So a run that is left out comes again with the next set, and
in the end all of it is one run.  The rest here takes time linear in the number of messages.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import Final

Range = tuple[int, int]  # half-open
RUNS_MAX: Final = 4096
"""Of acknowledged messages between others, that are taken from one ack_set: clients' batches have 1,000 messages."""


_WORD_BITS: Final = 64
_WORD_MASK: Final = (1 << _WORD_BITS) - 1
_ONES: Final = re.compile(b"1+")
_word_to_bytes: Final = Struct("<Q").pack


def acknowledged_ranges(ack_set: Sequence[int], base: int, count: int) -> list[Range]:
    """The ranges of the entry's `count` offsets from `base` on that `ack_set` says are acknowledged, ascending.

    They are the first `RUNS_MAX` and the last one.  Words may be signed or unsigned; bits past `count` are ignored.
    """
    words = ack_set[: (count + _WORD_BITS - 1) // _WORD_BITS]
    left = int.from_bytes(b"".join([_word_to_bytes(word & _WORD_MASK) for word in words]), "little")
    sent = min(count, len(words) * _WORD_BITS)
    # As text, where the regular expression engine finds the runs: an integer of a million bits is slow to take apart.
    acknowledged = format(~left & ((1 << sent) - 1), f"0{sent}b").encode()[::-1]
    runs = islice(_ONES.finditer(acknowledged), RUNS_MAX)
    found = [(base + match.start(), base + match.end()) for match in runs]
    if sent < count:  # words that were not sent are 0
        start = found.pop()[0] if found and found[-1][1] == base + sent else base + sent
        found.append((start, base + count))
    return found


def intersection(some: Sequence[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """The ranges of offsets that are in both; all ascending."""
    found: list[Range] = []
    left = right = 0
    while left < len(some) and right < len(others):
        start = max(some[left][0], others[right][0])
        end = min(some[left][1], others[right][1])
        if start < end:
            found.append((start, end))
        if some[left][1] < others[right][1]:
            left += 1
        else:
            right += 1
    return tuple(found)


def positions_in(ranges: Iterable[Range], part: Sequence[Range]) -> list[Range]:
    """Where offsets of `part` are among all of its offsets, counted from 0; `ranges` lie within it."""
    counts: list[Range] = []
    for start, end in ranges:
        before = 0
        for low, high in part:
            if low <= start and end <= high:
                counts.append((before + start - low, before + end - low))
                break
            before += high - low
    return counts


def ack_set_of(unacknowledged: Iterable[Range], base: int, count: int) -> list[int]:
    """The ack_set (signed words) of an entry of `count` offsets from `base` on, of which these ranges are left.

    `unacknowledged` lies within the entry.
    """
    bits = bytearray(b"0" * count)
    for start, end in unacknowledged:
        bits[count - (end - base) : count - (start - base)] = b"1" * (end - start)
    word_count = (count + _WORD_BITS - 1) // _WORD_BITS
    packed = int(bits, 2).to_bytes(word_count * 8, "little")
    return list(Struct(f"<{word_count}q").unpack(packed))
