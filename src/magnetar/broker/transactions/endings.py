"""How long a request waits for the end of a transaction that it has decided."""

import asyncio
from typing import Any, Final

from magnetar.base.clock import Clock, sleep

# The decision stands already (Kafka answers right after it), but a client that hears of the end only when it is visible
# reads its own writes.
ENDING_WAIT_S: Final = 5.0


async def wait_for_end(ending: "asyncio.Future[Any]", clock: Clock) -> None:
    """Return when that has been done everywhere, or takes long; what became of it is not told here."""
    if not ending.done():
        enough = asyncio.ensure_future(sleep(clock, ENDING_WAIT_S))
        try:
            await asyncio.wait({ending, enough}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            enough.cancel()
