"""What a session's parts stand on, without a socket and without an event loop."""

from collections.abc import Callable
from typing import Any, cast

from magnetar.protocols.door import Buffer
from magnetar.protocols.traffic import Traffic


class Memory:
    """As much of a `MemoryBudget` as the parts use; a test says when it serves those that it holds."""

    def __init__(self, bytes_max: int = 1 << 30) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.is_lenient = False  # as when nearly all of it is requests that were received
        self.is_crowded = False
        self.held: list[Any] = []
        self.for_room: list[Callable[[], None]] = []

    @property
    def is_over(self) -> bool:
        return self.used > self.bytes_max and not self.is_lenient

    def take(self, size: int) -> None:
        self.used += size

    def give(self, size: int) -> None:
        self.used -= size

    def take_answer(self, size: int) -> None:
        self.take(size)

    def give_answer(self, size: int) -> None:
        self.give(size)

    def hold(self, session: Any) -> None:
        if session not in self.held:
            self.held.append(session)

    def let_go(self, session: Any) -> None:
        if session in self.held:
            self.held.remove(session)

    def response_bytes_max(self) -> int:
        return max((self.bytes_max // 4 * 3 - self.used) // 4, 0)

    def tell_when_room(self, callback: Callable[[], None]) -> None:
        self.for_room.append(callback)

    def tell_no_more(self, callback: Callable[[], None]) -> None:
        self.for_room = [one for one in self.for_room if one != callback]

    def serve(self) -> None:
        held, self.held = self.held, []
        for session in held:
            session.resume_if_possible()


class Waiting:
    """Calls that wait for a turn, or for the end of this one."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.left_s = 0.0
        self.ended_passes = 0

    def end_pass(self) -> None:
        self.ended_passes += 1

    def wait(self, call: Callable[[], None], leads_to_s: float = 0.0) -> None:
        self.calls.append(call)

    def have(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Connection:
    """A peer that notes what is asked of it, and what its session's parts share."""

    def __init__(self, memory_bytes_max: int = 1 << 30) -> None:
        self.memory = Memory(memory_bytes_max)
        self.turns = Waiting()
        self.ends = Waiting()  # of the turn of the event loop
        self.at_turn_end = self.ends.wait
        self.queued_bytes = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.is_read = True
        self.is_closed = False
        self.is_gone = False  # its client
        self.writes: list[list[bytes]] = []
        self.when_sent: Callable[[], None] | None = None

    @property
    def traffic(self) -> Traffic:
        return cast("Traffic", self)

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def has_hung_up(self) -> bool:
        return self.is_gone

    def send(self, parts: list[Buffer]) -> None:
        assert not self.is_closed
        self.writes.append([bytes(part) for part in parts])
        if self.when_sent is not None:
            self.when_sent()

    def close(self) -> None:
        self.is_closed = True
