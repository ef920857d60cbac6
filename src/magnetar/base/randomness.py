"""Randomness, as the rest of the server sees it: ids that nothing else has, and numbers that cannot be foreseen.

Below `server/` nothing else draws random numbers or makes UUIDs, so that a simulation that draws from a seed (`seeded`)
meets the same ids each time.
"""

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SYSTEM: Final = random.SystemRandom()
_source: random.Random = _SYSTEM


def new_uuid() -> uuid.UUID:
    """A UUID of version 4."""
    return uuid.UUID(int=_source.getrandbits(128), version=4)


def hex_token(size_bytes: int) -> str:
    """Two hexadecimal digits for each byte."""
    return f"{_source.getrandbits(8 * size_bytes):0{2 * size_bytes}x}"


def bits(count: int) -> int:
    """A whole number from 0 to 2^`count` - 1."""
    return _source.getrandbits(count)


def between(least: int, most: int) -> int:
    """A whole number from `least` to `most`, both included."""
    return _source.randint(least, most)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, what is drawn follows from `seed`: for simulations in one thread, never for a server."""
    global _source
    _source = random.Random(seed)  # noqa: S311  to be foreseen is the point
    try:
        yield
    finally:
        _source = _SYSTEM
