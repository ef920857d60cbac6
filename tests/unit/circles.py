"""What a piece of work leaves in memory that only the cycle collector can free.

A server with a full entry cache never runs a full collection (`server/garbage.py`), so whatever is a circle there stays
until the server ends.
"""

import asyncio
import gc
import weakref
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


async def error_stays(kind: type[Exception], work: Callable[[], Awaitable[object]]) -> bool:
    """Whether the error of this kind that `work` raises is in memory when it was caught."""
    gc.disable()
    try:
        left = await _raised(kind, work)
        await asyncio.sleep(0)  # what has awakened this task has the future with the error
        return left() is not None
    finally:
        gc.enable()


async def _raised(kind: type[Exception], work: Callable[[], Awaitable[object]]) -> "weakref.ref[Exception]":
    try:
        await work()
    except kind as error:
        return weakref.ref(error)
    raise AssertionError(f"no {kind.__name__} was raised")


def _is_ours(one: object) -> bool:
    module = type(one).__module__
    return isinstance(module, str) and module.startswith("magnetar.") and "testing" not in module
