"""What the sessions of one door share: the memory that they may use, the turns that they take, what they count."""

import asyncio
from collections.abc import Callable
from typing import Any

from magnetar.base.clock import Clock
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.turns import Turns


class Traffic:
    """See the module's text."""

    def __init__(self, memory: MemoryBudget, clock: Clock) -> None:
        self.memory = memory
        self.monotonic = clock.monotonic
        self.turns = Turns(clock.monotonic)
        self.call_soon: Callable[..., Any] = asyncio.get_running_loop().call_soon
        self.queued_bytes = 0  # of requests that are not answered
        self.received_bytes = 0
        self.sent_bytes = 0
