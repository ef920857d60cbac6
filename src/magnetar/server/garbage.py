"""How Python's cycle collector is run in a server that keeps millions of small objects.

The entry cache may hold ten million entries.  They are freed by their reference counts; the collector can only waste
time on them: a full collection walks all of them, for a second, with the event loop standing still.  So:

* what start-up loaded is frozen: never looked at again;
* young garbage (cycles of exceptions and tracebacks) is collected in steps of some milliseconds, seldom;
* full collections happen on a timer, and only while there is little to walk.

Long-lived objects that form cycles (connections and their sessions) are taken apart by hand when they end.
"""

import gc
from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock

YOUNG_OBJECTS: Final = 200_000  # net allocations between two steps: requests in flight come and go below it
STEPS_PER_MIDDLE: Final = 2
NEVER: Final = 1 << 30
FULL_INTERVAL_S: Final = 60.0
FULL_ENTRIES_MAX: Final = 100_000  # some objects each: about 50 ms


def tune_collector(clock: Clock, entry_count: Callable[[], int]) -> None:
    """Set the collector up for a server whose caches hold `entry_count()` entries; call it once, when all is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, STEPS_PER_MIDDLE, NEVER)
    clock.call_later(FULL_INTERVAL_S, _collect_if_cheap, clock, entry_count)


def _collect_if_cheap(clock: Clock, entry_count: Callable[[], int]) -> None:
    if entry_count() <= FULL_ENTRIES_MAX:
        gc.collect()
    clock.call_later(FULL_INTERVAL_S, _collect_if_cheap, clock, entry_count)
