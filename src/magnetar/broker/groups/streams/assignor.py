"""Which member gets which task: a pure function of the members, the tasks and the previous assignment.

Every task is active at exactly one member.  A stateful task also has standbys: as many as the group's settings say, but
at most one for each other process.  The members of a process share its disk and never have the same task.

A member keeps its tasks, up to its share.  A task without a member goes to a member that has it as a standby, because
the disk of its process has the task's state.  If there is none, the task goes to the process with the fewest tasks for
each of its members.
Apache Kafka 4.3 assigns in the same order and by the same shares; it knows no other assignor, and no warm-up tasks.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from magnetar.base.pacing import paced
from magnetar.broker.groups.model import Task, Tasks

Assignments: TypeAlias = dict[str, Tasks]

_BY_PARTITION: Final = itemgetter(1, 0)


class Candidate(NamedTuple):
    """A member that can get tasks, and the tasks that it has had."""

    member_id: str
    process_id: str
    before: Tasks


class Work(NamedTuple):
    """The tasks of a subtopology; stateful ones can have standbys."""

    subtopology_id: str
    task_count: int
    is_stateful: bool


class _Share:
    """How many tasks each member may have, so that the members' numbers of tasks differ by at most one.  It counts what
    is left for the members that have not got their share yet.
    """

    __slots__ = ("_members", "_tasks", "most")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.most = self._each()

    def _each(self) -> int:
        return math.ceil(self._tasks / self._members) if self._members else 0

    def given(self, count: int) -> None:
        """Note that a member has this many tasks now."""
        if count == self.most:
            self._members -= 1
            self._tasks -= count
            self.most = self._each()


class _Process:
    """An instance of the application: its members, and the tasks that they have."""

    __slots__ = ("_by_count", "_count", "counts", "process_id", "tasks")

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.counts: dict[str, int] = {}  # by member
        self.tasks: set[Task] = set()
        self._count = 0
        self._by_count: list[tuple[int, str]] = []  # a heap; an item counts only if `counts` confirms it

    def add(self, member_id: str) -> None:
        self.counts[member_id] = 0
        heapq.heappush(self._by_count, (0, member_id))

    def give(self, member_id: str, task: Task) -> None:
        self.tasks.add(task)
        self._count += 1
        self.counts[member_id] += 1
        heapq.heappush(self._by_count, (self.counts[member_id], member_id))

    @property
    def load(self) -> tuple[float, str]:
        """The number of tasks for each member; the id decides the order of processes with equal loads."""
        return self._count / len(self.counts), self.process_id

    def least_loaded(self) -> str:
        while True:
            count, member_id = self._by_count[0]
            if self.counts[member_id] == count:
                return member_id
            heapq.heappop(self._by_count)


class _Assigning:
    """One assignment while it is computed."""

    def __init__(self, candidates: Sequence[Candidate], work: Iterable[Work], standbys: int) -> None:
        self.processes: dict[str, _Process] = {}
        self.process_of: dict[str, _Process] = {}
        self.had_active: dict[Task, str] = {}
        self.had_standby: dict[Task, list[str]] = {}
        self.active: dict[str, set[Task]] = {one.member_id: set() for one in candidates}
        self.standby: dict[str, set[Task]] = {one.member_id: set() for one in candidates}
        for one in candidates:
            process = self.processes.setdefault(one.process_id, _Process(one.process_id))
            process.add(one.member_id)
            self.process_of[one.member_id] = process
            for task in paced(tuple(one.before.active)):
                self.had_active[task] = one.member_id
            for task in paced(tuple(one.before.standby)):
                self.had_standby.setdefault(task, []).append(one.member_id)
        self.tasks = [(one.subtopology_id, index) for one in work for index in range(one.task_count)]
        self.stateful = [
            (one.subtopology_id, index) for one in work if one.is_stateful for index in range(one.task_count)
        ]
        self.standbys = standbys
        self.active_share = _Share(len(self.tasks), len(candidates))
        self.share = _Share(len(self.tasks) + standbys * len(self.stateful), len(candidates))

    def give(self, member_id: str, task: Task, role: Mapping[str, set[Task]]) -> None:
        self.process_of[member_id].give(member_id, task)
        role[member_id].add(task)
        count = self.count_of(member_id)
        if role is self.active:
            self.active_share.given(count)
        self.share.given(count)

    def count_of(self, member_id: str) -> int:
        return self.process_of[member_id].counts[member_id]

    def assign_active(self) -> None:
        """Give each task to the member that had it, else to one that had it as a standby, else to the least loaded
        process.
        """
        left: list[Task] = []
        for task in paced(sorted(self.tasks, key=_BY_PARTITION)):
            member_id = self.had_active.get(task)
            if member_id is not None and self.count_of(member_id) < self.active_share.most:
                self.give(member_id, task, self.active)
            else:
                left.append(task)
        rest: list[Task] = []
        for task in paced(left):
            member_id = self._freest(task)
            if member_id is not None and self.count_of(member_id) < self.active_share.most:
                self.give(member_id, task, self.active)
            else:
                rest.append(task)
        queue = self._by_load()
        for task in paced(sorted(rest)):
            process = self.processes[queue[0][1]]
            self.give(process.least_loaded(), task, self.active)
            heapq.heapreplace(queue, process.load)

    def assign_standby(self) -> None:
        """Give each standby to the member that had the task as active, else to one that had it as a standby, else to
        the least loaded process.
        """
        left: list[Task] = []
        for task in paced(sorted(self.stateful, key=_BY_PARTITION, reverse=True)):
            for given in range(self.standbys):
                member_id = self.had_active.get(task)
                if member_id is None or not self._has_room(member_id, task):
                    member_id = self._freest(task)
                    if member_id is None or not self._has_room(member_id, task):
                        left += [task] * (self.standbys - given)
                        break
                self.give(member_id, task, self.standby)
        queue = self._by_load()
        for task in paced(sorted(left, reverse=True)):
            have_it = []
            while queue and task in self.processes[queue[0][1]].tasks:
                have_it.append(heapq.heappop(queue))
            if queue:
                process = self.processes[queue[0][1]]
                self.give(process.least_loaded(), task, self.standby)
                heapq.heapreplace(queue, process.load)
            for one in have_it:
                heapq.heappush(queue, one)

    def _by_load(self) -> list[tuple[float, str]]:
        """A heap of all processes, the least loaded one first."""
        queue = [process.load for process in self.processes.values()]
        heapq.heapify(queue)
        return queue

    def _has_room(self, member_id: str, task: Task) -> bool:
        return task not in self.process_of[member_id].tasks and self.count_of(member_id) < self.share.most

    def _freest(self, task: Task) -> str | None:
        """The least loaded member that had the task as a standby, if its process does not have the task; else None."""
        free = [one for one in self.had_standby.get(task, ()) if task not in self.process_of[one].tasks]
        return min(free, key=lambda one: (self.process_of[one].load[0], self.count_of(one)), default=None)


def sticky(candidates: Sequence[Candidate], work: Sequence[Work], standbys: int) -> Assignments:
    """The assignment in which each stateful task has `standbys` standbys, if there are processes for them."""
    if not candidates:
        return {}
    assigning = _Assigning(candidates, work, standbys)
    assigning.assign_active()
    if standbys:
        assigning.assign_standby()
    return {
        one.member_id: Tasks(
            frozenset(assigning.active[one.member_id]), frozenset(assigning.standby[one.member_id])
        )
        for one in candidates
    }
