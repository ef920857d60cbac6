"""What the sessions of one door share: their memory budget, their turns, and their counts."""

from magnetar.base.clock import Clock
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.turn_end import TurnEnd
from magnetar.base.turns import Turns


class Traffic:
    """See the module's text."""

    def __init__(self, memory: MemoryBudget, clock: Clock, turn_end: TurnEnd) -> None:
        self.memory = memory
        self.monotonic = clock.monotonic
        self.turns = Turns(clock.monotonic)
        self.at_turn_end = turn_end.soon
        self.queued_bytes = 0  # of unanswered requests
        self.received_bytes = 0
        self.sent_bytes = 0
