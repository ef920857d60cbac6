"""Decides the next action for a pipeline, from its desired and present state; it uses no Spark and no clock.

A slot is what the worker knows about one pipeline.  It changes as follows; the supervisor carries out an action, and
reports its result by `started`, `stopped`, `failed`::

    IDLE --START--> STARTING --started--> RUNNING --STOP--> STOPPING --stopped--> IDLE
                       |                     |
                       +------ failed -------+--> WAITING --(time is up) START--> STARTING
                                             +--> FAILED   when trying again would not help

The worker tries a failed pipeline again after pauses that double each time.  They are random, so that pipelines that
failed together do not start together; after a longer run, the first pause is the shortest again.  FAILED ends when a
user requests a new run, by start, restart or a new declaration.
"""

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

BACKOFF_S: Final = 1.0
BACKOFF_S_MAX: Final = 60.0
HEALTHY_S: Final = 60.0  # a failure after a longer run is a new one


class Phase(Enum):
    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    WAITING = "waiting"
    FAILED = "failed"


class Action(Enum):
    NOTHING = "nothing"
    START = "start"
    STOP = "stop"
    REST = "rest"  # forget a failure that is not tried again
    FORGET = "forget"  # remove its files


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pipeline in the server's orders."""

    id: str
    run: int
    desired: str


@dataclass(slots=True)
class Slot:
    """What the worker knows about a pipeline.  Times are seconds of the monotonic clock.

    `start_count`, `error_count` and the last error are of all its runs since this worker got it.
    """

    id: str
    run: int = 0
    phase: Phase = Phase.IDLE
    reason: str = ""
    failure_count: int = 0  # in a row
    retry_at: float = 0.0
    running_since: float = 0.0
    start_count: int = 0
    error_count: int = 0
    last_error: str = ""
    last_error_at: float = 0.0


def decide(wanted: Wanted | None, slot: Slot, now: float) -> Action:
    """The next action for a pipeline; `wanted` is None if the server no longer knows it."""
    match slot.phase:
        case Phase.STARTING | Phase.STOPPING:
            return Action.NOTHING  # only one action at a time
        case Phase.RUNNING:
            stays = wanted is not None and wanted.id == slot.id and wanted.desired == "RUNNING"
            return Action.NOTHING if stays and wanted is not None and wanted.run == slot.run else Action.STOP
    if wanted is None or wanted.id != slot.id or wanted.desired == "DELETED":
        return Action.FORGET
    if wanted.desired != "RUNNING":
        return Action.NOTHING if slot.phase is Phase.IDLE else Action.REST
    if slot.phase is Phase.IDLE or wanted.run != slot.run:
        return Action.START
    if slot.phase is Phase.WAITING and now >= slot.retry_at:
        return Action.START
    return Action.NOTHING


def starting(slot: Slot, run: int) -> None:
    """The supervisor begins to carry out START."""
    assert slot.phase in (Phase.IDLE, Phase.WAITING, Phase.FAILED), slot
    if run != slot.run:
        slot.failure_count, slot.reason = 0, ""
    slot.run, slot.phase = run, Phase.STARTING
    slot.start_count += 1


def started(slot: Slot, now: float) -> None:
    assert slot.phase is Phase.STARTING, slot
    slot.phase, slot.running_since = Phase.RUNNING, now


def stopping(slot: Slot) -> None:
    """The supervisor begins to carry out STOP."""
    assert slot.phase is Phase.RUNNING, slot
    slot.phase = Phase.STOPPING


def stopped(slot: Slot) -> None:
    assert slot.phase is Phase.STOPPING, slot
    rest(slot)


def rest(slot: Slot) -> None:
    slot.phase, slot.reason, slot.failure_count = Phase.IDLE, "", 0


def failed(slot: Slot, reason: str, now: float, *, may_help: bool, random_unit: float | None = None) -> None:
    """The pipeline could not start, or ended by itself; `may_help`: whether trying again may help.

    `random_unit` in [0, 1) replaces the draw.
    """
    assert slot.phase in (Phase.STARTING, Phase.RUNNING), slot
    if slot.phase is Phase.RUNNING and now - slot.running_since >= HEALTHY_S:
        slot.failure_count = 0
    slot.failure_count += 1
    slot.error_count += 1
    slot.reason = slot.last_error = reason
    slot.last_error_at = now
    if not may_help:
        slot.phase = Phase.FAILED
        return
    slot.phase = Phase.WAITING
    pause_s = min(BACKOFF_S * 2 ** min(slot.failure_count - 1, 16), BACKOFF_S_MAX)
    draw = random.random() if random_unit is None else random_unit  # noqa: S311  it is no secret
    slot.retry_at = now + pause_s * (0.5 + draw / 2)


_STATES: Final = {
    Phase.IDLE: "STOPPED",
    Phase.STARTING: "STARTING",
    Phase.RUNNING: "RUNNING",
    Phase.STOPPING: "RUNNING",  # until it has
    Phase.WAITING: "FAILED",
    Phase.FAILED: "FAILED",
}


def state_of(slot: Slot) -> str:
    """The state to report; a new run that has not begun is STARTING for the server already."""
    return _STATES[slot.phase]
