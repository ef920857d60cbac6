"""Answers of which their requests say nothing: a few bytes that ask for all topics, of which there may be many.

The objects of such an answer count as those of a large request (`base/memory_budget.py`), before they are made and
until they have been encoded.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from magnetar.base.errors import WireError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.large import Large


async def counted(context: RequestContext, objects_bytes: int, make: Callable[[], Awaitable[Any]]) -> Large:
    """The response that `make` makes, when there is room for so many bytes of objects.

    Raises:
        WireError: the request itself is a large one, as no client's is that names nothing.
    """
    if context.has_objects:
        raise WireError("a request for everything is longer than it can be")
    memory = context.service.memory
    await memory.take_objects(0, objects_bytes)
    give_back = partial(memory.give_objects, objects_bytes)
    try:
        return Large(await make(), give_back)
    except BaseException:
        give_back()
        raise
