"""When Python's cycle collector runs in a server that keeps millions of small objects.

The entry cache may hold ten million entries of four objects each.  Reference counts free them; the collector only
wastes time on them, 0.2 to 0.75 us for each object that it visits, while the event loop waits.  So:

* the collector is off while a server starts: nearly all objects of that time stay, and visiting them again and again
  took an eighth of the start;
* the objects of the start are frozen: the collector never visits them.  It is not run before: of half a million
  objects, with fifty thousand topics, it found 276 to free, while clients waited for 0.2 to 0.3 s;
* the collector visits young objects once, in steps of half a millisecond, and then leaves them alone.  Nearly all
  garbage that forms cycles (exceptions and their tracebacks) is as young as that;
* full collections run on a timer, and only while there are few objects to visit.  If there are many that are no
  entries (the topics that clients have made since), they are frozen, too.  To count them visits each of them, 55 ms for
  a million, so the allocator's blocks are counted first: it knows their number by pool, 0.4 ms for two million.

Our code breaks the cycles of long-lived objects (connections, their sessions, subscriptions) when they end.
"""

import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

Every: TypeAlias = Callable[[float, str, Callable[[], Coroutine[Any, Any, object]]], object]
"""The type of `Upkeep.every`.  This module imports none of our modules, because a start imports them while the
collector is off.
"""

YOUNG_OBJECTS: Final = 4_000  # net allocations between two steps
NEVER: Final = 1 << 30
FULL_INTERVAL_S: Final = 60.0
FULL_ENTRIES_MAX: Final = 2_000  # a collection takes 6 ms; with 40,000 entries it took 120 to 250 ms
FULL_OBJECTS_MAX: Final = 30_000  # a collection takes 20 ms
NEW_BLOCKS_MAX: Final = 250_000  # an object has one or more, so counting as many objects takes 14 ms


@contextmanager
def paused() -> Iterator[None]:
    """Turn the collector off within the block, until `tune_collector` turns it on."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def tune_collector(every: Every, entry_count: Callable[[], int]) -> None:
    """Set the collector up for a server whose caches have `entry_count()` entries; call it once, after everything is
    loaded.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, NEVER, NEVER)
    gc.enable()
    frozen_blocks = sys.getallocatedblocks()  # at most, as some of them are freed later

    async def collect_if_cheap() -> None:
        nonlocal frozen_blocks
        if entry_count() > FULL_ENTRIES_MAX:
            return
        blocks = sys.getallocatedblocks()
        frozen_blocks = min(frozen_blocks, blocks)
        # Those that are frozen are not among `get_objects`.
        if blocks - frozen_blocks > NEW_BLOCKS_MAX or len(gc.get_objects()) > FULL_OBJECTS_MAX:
            gc.freeze()
            frozen_blocks = blocks
        else:
            gc.collect()

    every(FULL_INTERVAL_S, "memory", collect_if_cheap)
