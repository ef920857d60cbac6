import itertools
from typing import Any

import pytest

from magnetar.pipelines.worker import decisions
from magnetar.pipelines.worker.decisions import (
    BACKOFF_S_MAX,
    HEALTHY_S,
    Action,
    Phase,
    Slot,
    Wanted,
    decide,
)

NOW = 1000.0
RUN = Wanted("1", 1, "RUNNING")
AGAIN = Wanted("1", 2, "RUNNING")
STOP = Wanted("1", 1, "STOPPED")
DELETE = Wanted("1", 1, "DELETED")
OTHER = Wanted("2", 1, "RUNNING")
NOTHING, START, ENDED, REST, FORGET = Action.NOTHING, Action.START, Action.STOP, Action.REST, Action.FORGET

# What is wanted:          RUN      AGAIN    STOP     DELETE   OTHER    gone
TABLE: dict[Phase, list[Action]] = {
    Phase.IDLE: [START, START, NOTHING, FORGET, FORGET, FORGET],
    Phase.STARTING: [NOTHING] * 6,
    Phase.RUNNING: [NOTHING, ENDED, ENDED, ENDED, ENDED, ENDED],
    Phase.STOPPING: [NOTHING] * 6,
    Phase.WAITING: [NOTHING, START, REST, FORGET, FORGET, FORGET],
    Phase.FAILED: [NOTHING, START, REST, FORGET, FORGET, FORGET],
}
CASES = [
    (phase, wanted, action)
    for phase, row in TABLE.items()
    for wanted, action in zip((RUN, AGAIN, STOP, DELETE, OTHER, None), row, strict=True)
]


@pytest.mark.parametrize(("phase", "wanted", "action"), CASES)
def test_every_pair_of_what_is_and_what_is_wanted_has_one_answer(
    phase: Phase, wanted: Wanted | None, action: Action
) -> None:
    assert decide(wanted, Slot("1", 1, phase, retry_at=NOW + 1), NOW) is action


def test_what_waits_starts_when_its_time_has_come() -> None:
    slot = Slot("1", 1, Phase.WAITING, retry_at=NOW)
    assert decide(RUN, slot, NOW - 0.01) is NOTHING
    assert decide(RUN, slot, NOW) is START


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(
    ("move", "allowed"),
    [
        (lambda slot: decisions.starting(slot, 1), {Phase.IDLE, Phase.WAITING, Phase.FAILED}),
        (lambda slot: decisions.started(slot, NOW), {Phase.STARTING}),
        (lambda slot: decisions.stopping(slot), {Phase.RUNNING}),
        (lambda slot: decisions.stopped(slot), {Phase.STOPPING}),
        (lambda slot: decisions.failed(slot, "x", NOW, may_help=True), {Phase.STARTING, Phase.RUNNING}),
    ],
    ids=["starting", "started", "stopping", "stopped", "failed"],
)
def test_no_move_is_made_from_a_phase_that_does_not_have_it(
    phase: Phase, move: Any, allowed: set[Phase]
) -> None:
    slot = Slot("1", 1, phase)
    if phase in allowed:
        move(slot)
        assert slot.phase is not phase
    else:
        with pytest.raises(AssertionError):
            move(slot)


def fail(slot: Slot, now: float, unit: float = 0.0) -> float:
    """Let a start fail; the pause until the next one."""
    decisions.starting(slot, slot.run)
    decisions.failed(slot, "trouble", now, may_help=True, random_unit=unit)
    return slot.retry_at - now


def test_pauses_double_up_to_a_limit_and_are_drawn_from_their_upper_half() -> None:
    slot = Slot("1", 1)
    pauses = [fail(slot, NOW) for _ in range(20)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses[-1] == BACKOFF_S_MAX / 2
    assert all(second >= first for first, second in itertools.pairwise(pauses))
    assert BACKOFF_S_MAX * 0.99 < fail(slot, NOW, unit=0.999) <= BACKOFF_S_MAX


def test_one_that_ran_for_a_while_begins_with_the_shortest_pause() -> None:
    slot = Slot("1", 1)
    for _ in range(5):
        fail(slot, NOW)
    for ran_s, count in ((HEALTHY_S - 1, 6), (HEALTHY_S, 1)):
        decisions.starting(slot, 1)
        decisions.started(slot, NOW)
        decisions.failed(slot, "trouble", NOW + ran_s, may_help=True)
        assert slot.failure_count == count


def test_what_cannot_be_helped_is_not_tried_again_until_a_new_run_is_asked_for() -> None:
    slot = Slot("1", 1)
    decisions.starting(slot, 1)
    decisions.failed(slot, "no such option", NOW, may_help=False)
    assert (slot.phase, slot.reason) == (Phase.FAILED, "no such option")
    assert decide(RUN, slot, NOW + 1e6) is NOTHING
    decisions.starting(slot, 2)
    assert (slot.run, slot.reason, slot.failure_count) == (2, "", 0)


def test_failures_are_reported_as_such_also_while_they_are_about_to_be_tried_again() -> None:
    assert {phase: decisions.state_of(Slot("1", 1, phase)) for phase in Phase} == {
        Phase.IDLE: "STOPPED",
        Phase.STARTING: "STARTING",
        Phase.RUNNING: "RUNNING",
        Phase.STOPPING: "RUNNING",
        Phase.WAITING: "FAILED",
        Phase.FAILED: "FAILED",
    }
