"""How Python's cycle collector is run in a server that keeps millions of small objects.

The entry cache may hold ten million entries of four objects each.  They are freed by their reference counts; the
collector can only waste time on them, 0.2 to 0.75 us for each object that it walks, with the event loop standing still.
So:

* while a server starts, the collector stands still: nearly all that is made then stays, and to walk it again and again
  was an eighth of the start;
* what start-up loaded is frozen: never looked at again;
* what is young is walked once, in steps of half a millisecond, and then left alone: nearly all garbage that forms
  cycles (exceptions and their tracebacks) is as young as that;
* full collections happen on a timer, and only while they are short.

Long-lived objects that form cycles (connections and their sessions) are taken apart by hand when they end.
"""

import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

Every: TypeAlias = Callable[[float, str, Callable[[], Coroutine[Any, Any, object]]], object]
"""`Upkeep.every`: nothing else of ours is imported here, as what a start imports is to come while the collector stands
still.
"""

YOUNG_OBJECTS: Final = 4_000  # net allocations between two steps
NEVER: Final = 1 << 30
FULL_INTERVAL_S: Final = 60.0
FULL_ENTRIES_MAX: Final = 2_000  # 6 ms; 40,000 took 120 to 250 ms, each minute


@contextmanager
def paused() -> Iterator[None]:
    """The collector stands still inside, until `tune_collector` sets it going."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def tune_collector(every: Every, entry_count: Callable[[], int]) -> None:
    """Set the collector up for a server whose caches hold `entry_count()` entries; call it once, when all is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, NEVER, NEVER)
    gc.enable()

    async def collect_if_cheap() -> None:
        if entry_count() <= FULL_ENTRIES_MAX:
            gc.collect()

    every(FULL_INTERVAL_S, "memory", collect_if_cheap)
