"""How long a request waits for the end of a transaction that it has decided."""

import asyncio
from typing import Any, Final

from magnetar.base.clock import Clock, wait_at_most

# The decision is already durable, and Kafka answers directly after it.  But a client that gets the answer when the
# end is visible reads its own writes.
ENDING_WAIT_S: Final = 5.0


async def wait_for_end(ending: "asyncio.Future[Any]", clock: Clock) -> None:
    """Return when `ending` is done, or when it takes long.  Raises nothing: the caller must look at `ending` for the
    result.
    """
    if not ending.done():
        await wait_at_most(clock, ENDING_WAIT_S, ending)
