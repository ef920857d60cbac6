"""Runs the group: two members, a SIGKILL for one of them, and its return."""

import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from demo import consumer
from demo.consumer import Assigned, Batch, Failed, Go, Report, Stop
from demo.stage import DemoFailed

JOIN_SECONDS_MAX = 60.0
SILENCE_SECONDS_MAX = 45.0
STEADY = "consumer 1"
VICTIM = "consumer 2"
RETURNED = "consumer 2 (back)"


class GroupFailed(DemoFailed):
    """The group did not get anywhere; the text is one sentence."""


@dataclass
class Story:
    """What happened; times in seconds from the moment the members began to read."""

    read: list[tuple[str, Batch]] = field(default_factory=list)
    killed_at: float = 0.0
    killed_clock: float = 0.0  # the same moment as `Batch.sent_at` counts
    killed_after: int = 0  # flights that the victim had read
    taken_over_at: float = 0.0  # when the group first gave its partitions to another member
    done_at: float = 0.0


@dataclass
class _Member:
    name: str
    process: BaseProcess
    pipe: Connection
    partitions: tuple[int, ...] = ()

    def tell(self, order: Go | Stop) -> None:
        self.pipe.send(order)


class Group:
    """Use as a context manager: members that still run at its end are killed, by their own handle."""

    def __init__(self, bootstrap: str, topic: str, flights: int, on_progress: Callable[[int], None]) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.flights = flights
        self.on_progress = on_progress
        self.name = f"{topic}-readers"
        self.members: list[_Member] = []
        self.story = Story()
        self.rows: set[int] = set()
        self.began = 0.0

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.process.kill()
            member.process.join()
            member.pipe.close()

    def run(self, say: Callable[[str], None]) -> Story:
        """Until every flight was read at least once; raises GroupFailed when nothing moves any more."""
        for name in (STEADY, VICTIM):
            self._start(name, wait_for_go=True)
        self._until(
            lambda: all(each.partitions for each in self.members),
            JOIN_SECONDS_MAX,
            "both members in the group",
        )
        victim = self.members[1]
        self.began = time.monotonic()
        for member in self.members:
            member.tell(Go())
        # Half of the victim's share: its partitions are half read, and so are those of the other.
        self._until(
            lambda: self._read_by(VICTIM) >= self.flights // 4, SILENCE_SECONDS_MAX, "flights for the victim"
        )
        self._kill(victim)
        say(
            f"killed {VICTIM} (SIGKILL) after it had read {self.story.killed_after:,} flights; it starts again at once"
        )
        self._start(RETURNED, wait_for_go=False)
        self._until(self._taken_over, SILENCE_SECONDS_MAX, "the killed member's partitions to move")
        self.story.taken_over_at = time.monotonic() - self.began
        self._until(lambda: len(self.rows) >= self.flights, SILENCE_SECONDS_MAX, "the remaining flights")
        self.story.done_at = time.monotonic() - self.began
        self._stop()
        return self.story

    def _start(self, name: str, *, wait_for_go: bool) -> None:
        context = multiprocessing.get_context("spawn")  # a forked librdkafka is a broken one
        ours, theirs = context.Pipe()
        process = context.Process(
            target=consumer.main,
            args=(self.bootstrap, self.topic, self.name, name, theirs, wait_for_go),
            daemon=True,
        )
        # Ctrl-C reaches every process of the terminal: the parent decides.  The child inherits the mask and keeps it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.members.append(_Member(name, process, ours))

    def _kill(self, member: _Member) -> None:
        member.process.kill()
        member.process.join()
        self.story.killed_clock = time.monotonic()
        self.story.killed_at = self.story.killed_clock - self.began
        while self._receive(member):  # what it had written before it died was read
            pass
        self.story.killed_after = self._read_by(member.name)

    def _stop(self) -> None:
        for member in self.members:
            member.tell(Stop())
        for member in list(self.members):
            while self._receive(member):  # until its pipe ends: what it still read counts
                pass

    def _until(self, reached: Callable[[], bool], seconds_max: float, what: str) -> None:
        """Serves the members until `reached`; gives up after `seconds_max` in which no member said anything."""
        deadline = time.monotonic() + seconds_max
        while not reached():
            left = deadline - time.monotonic()
            ready = wait([member.pipe for member in self.members], timeout=max(left, 0.0))
            if not ready:
                raise GroupFailed(f"waited {seconds_max:.0f} s in vain for {what}")
            for member in [member for member in self.members if member.pipe in ready]:
                if not self._receive(member):
                    raise GroupFailed(f"{member.name} has ended by itself")
            deadline = time.monotonic() + seconds_max

    def _receive(self, member: _Member) -> bool:
        """One report of a member; False at the end of its pipe, and the member is forgotten."""
        try:
            report: Report = member.pipe.recv()
        except (EOFError, OSError):  # a record that was cut by the kill was not read
            member.pipe.close()
            member.process.join()
            self.members.remove(member)
            return False
        match report:
            case Assigned(partitions):
                member.partitions = partitions
            case Failed(reason):
                raise GroupFailed(f"{member.name}: {reason}")
            case Batch():
                self.story.read.append((member.name, report))
                self.rows.update(report.rows)
                self.on_progress(len(self.rows))
        return True

    def _read_by(self, name: str) -> int:
        return sum(len(batch) for member, batch in self.story.read if member == name)

    def _taken_over(self) -> bool:
        """The returned member has partitions, or all flights came without its help."""
        return bool(self.members[-1].partitions) or len(self.rows) >= self.flights
