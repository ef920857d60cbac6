"""The states of a managed ledger: whether it takes appends, and if not, why."""

from enum import Enum, auto


class State(Enum):
    IDLE = auto()  # no writer: the next append opens one
    OPENING = auto()  # a first writer is on its way; appends queue
    WRITING = auto()
    FAILED = auto()  # an append failed; refuses appends until its ledger is sealed
    LOST = auto()  # another broker has taken the log over
    CLOSED = auto()
    REFUSED = auto()  # ledgers of the chain are missing
