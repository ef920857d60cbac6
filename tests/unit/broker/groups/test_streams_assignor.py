"""The sticky assignor of streams groups on cases by hand and on random ones."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.groups.model import Task, Tasks
from magnetar.broker.groups.streams.assignor import Assignments, Candidate, Work, sticky

NONE = Tasks()
STATELESS, STATEFUL = Work("0", 4, is_stateful=False), Work("1", 4, is_stateful=True)


def tasks(subtopology: str, *indexes: int) -> frozenset[Task]:
    return frozenset((subtopology, index) for index in indexes)


def fresh(**processes: str) -> list[Candidate]:
    """Members that have had nothing, each of its process."""
    return [Candidate(member, process, NONE) for member, process in processes.items()]


def again(assigned: Assignments, **processes: str) -> list[Candidate]:
    return [Candidate(member, process, assigned.get(member, NONE)) for member, process in processes.items()]


def test_new_members_get_equal_parts_of_each_subtopology() -> None:
    assigned = sticky(fresh(a="p", b="q"), [STATELESS, STATEFUL], 0)
    assert assigned == {
        "a": Tasks(tasks("0", 0, 2) | tasks("1", 0, 2)),
        "b": Tasks(tasks("0", 1, 3) | tasks("1", 1, 3)),
    }


def test_only_tasks_with_state_have_standbys_and_those_at_another_process() -> None:
    assigned = sticky(fresh(a="p", b="q"), [STATELESS, STATEFUL], 1)
    assert assigned["a"].standby == tasks("1", 1, 3)
    assert assigned["b"].standby == tasks("1", 0, 2)


def test_two_members_of_one_process_have_no_standbys_for_each_other() -> None:
    assigned = sticky(fresh(a="p", b="p"), [STATEFUL], 1)
    assert [len(one.active) for one in assigned.values()] == [2, 2]
    assert [one.standby for one in assigned.values()] == [frozenset(), frozenset()]


def test_a_task_goes_to_its_standby_when_its_member_is_gone() -> None:
    before = sticky(fresh(a="p", b="q", c="r"), [STATEFUL], 1)
    (lost,) = [member for member, one in before.items() if ("1", 0) in one.active]
    (standby,) = [member for member, one in before.items() if ("1", 0) in one.standby]
    left = {member: member for member in before if member != lost}
    after = sticky(again(before, **left), [STATEFUL], 1)
    assert ("1", 0) in after[standby].active


def test_a_process_with_more_members_gets_more_tasks() -> None:
    assigned = sticky(fresh(a="p", b="q", c="q", d="q"), [STATEFUL], 0)
    assert [len(one.active) for one in assigned.values()] == [1, 1, 1, 1]


def test_nobody_there_is_nothing_assigned() -> None:
    assert sticky([], [STATEFUL], 1) == {}


members = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("pqrs"), min_size=1)
work = st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=4).map(
    lambda rows: [Work(str(place), count, stateful) for place, (count, stateful) in enumerate(rows)]
)


def check(assigned: Assignments, processes: dict[str, str], rows: list[Work], standbys: int) -> None:
    every = sorted((row.subtopology_id, index) for row in rows for index in range(row.task_count))
    assert sorted(task for one in assigned.values() for task in one.active) == every
    most = -(-len(every) // len(processes))
    assert all(len(one.active) <= most for one in assigned.values())
    stateful = {row.subtopology_id for row in rows if row.is_stateful}
    for task in every:
        holders = [member for member, one in assigned.items() if task in (one.active | one.standby)]
        wanted = min(standbys, len(set(processes.values())) - 1) if task[0] in stateful else 0
        assert len(holders) == 1 + wanted, (task, holders)
        assert len({processes[member] for member in holders}) == len(holders), (task, holders)


@given(before=members, after=members, rows=work, standbys=st.integers(0, 2))
def test_every_task_has_one_member_and_its_standbys_whatever_was_before(
    before: dict[str, str], after: dict[str, str], rows: list[Work], standbys: int
) -> None:
    first = sticky(fresh(**before), rows, standbys)
    check(first, before, rows, standbys)
    second = sticky(again(first, **after), rows, standbys)
    check(second, after, rows, standbys)


@given(processes=members, rows=work, standbys=st.integers(0, 2))
def test_active_tasks_stay_where_they_are_when_nothing_has_changed(
    processes: dict[str, str], rows: list[Work], standbys: int
) -> None:
    first = sticky(fresh(**processes), rows, standbys)
    second = sticky(again(first, **processes), rows, standbys)
    assert {member: one.active for member, one in first.items()} == {
        member: one.active for member, one in second.items()
    }


@given(processes=members, rows=work)
def test_a_newcomer_takes_no_more_than_its_share(processes: dict[str, str], rows: list[Work]) -> None:
    first = sticky(fresh(**processes), rows, 0)
    second = sticky(again(first, **processes, new="its own"), rows, 0)
    moved = {task for member, one in first.items() for task in one.active - second[member].active}
    assert moved == second["new"].active
