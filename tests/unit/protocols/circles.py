"""What only Python's cycle collector can free of our objects.

A server whose entry cache is full never runs a full collection (server/garbage.py), so whatever is a circle there stays
until the server ends.
"""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_behind() -> Iterator[Counter[str]]:
    """What a collection at the end of the block would free, by type; what was there before does not count."""
    left: Counter[str] = Counter()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield left
        gc.collect()
        left.update(type(one).__qualname__ for one in gc.garbage if _is_ours(one))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def _is_ours(one: object) -> bool:
    module = type(one).__module__
    return isinstance(module, str) and module.startswith("magnetar.") and "testing" not in module
