"""What a piece of work leaves in memory that only the cycle collector can free.

A server with a full entry cache never runs a full collection (`server/garbage.py`), so whatever is a circle there stays
until the server ends.
"""

import gc
from collections import Counter
from collections.abc import Awaitable, Callable


async def circles_of(work: Callable[[], Awaitable[object]]) -> Counter[str]:
    """The server's objects, by class, that are left in circles when `work` is done a second time.

    The first time makes what is made once.
    """
    await work()
    gc.freeze()  # what was there before is not looked through, which takes a worker of many tests a second
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await work()
        gc.collect()
        return Counter(type(one).__qualname__ for one in gc.garbage if _is_ours(one))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def _is_ours(one: object) -> bool:
    module = type(one).__module__
    return isinstance(module, str) and module.startswith("magnetar.") and "testing" not in module
