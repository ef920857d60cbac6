"""A wall clock that is set forward, or back, while share consumers hold records and fetch sessions are open: nothing
ends before its time, or lasts longer.
"""

from typing import Any

import pytest

from magnetar.broker.security.model import ANONYMOUS
from magnetar.protocols.kafka.fetch_sessions import EVICT_IDLE_S, FetchSessions
from magnetar.testing.clock import FakeClock
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.unit.protocols.kafka.share_queue import ACCEPT, Queue, Run, short_locks

DAY_S = 86_400
STEPS = [-400 * DAY_S, -DAY_S, -3600, 3600, DAY_S, 400 * DAY_S]


def step(client: Any, monkeypatch: pytest.MonkeyPatch, step_s: int) -> None:
    clock = client.broker.clock
    now_ms = clock.now_ms
    monkeypatch.setattr(type(clock), "now_ms", lambda _: now_ms() + 1000 * step_s)


@pytest.mark.parametrize("step_s", STEPS)
def test_locks_of_share_consumers_hold_over_a_step_of_the_clock(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(6)
        assert await queue.fetch("a") == [(0, 5, 1)]
        step(client, monkeypatch, step_s)
        assert await queue.fetch("b", max_wait_ms=200) == [], "they are a's"
        assert await queue.acknowledge("a", [(0, 5, [ACCEPT])]) == ErrorCode.NONE

    with_broker(scenario, groups=short_locks(3_600_000))


@pytest.mark.parametrize("step_s", STEPS)
def test_locks_of_share_consumers_end_in_their_time_after_a_step_of_the_clock(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        assert await queue.fetch("a") == [(0, 2, 1)]
        step(client, monkeypatch, step_s)
        assert await queue.fetch("b", max_wait_ms=10_000) == [(0, 2, 2)]
        assert await queue.acknowledge("a", [(0, 2, [ACCEPT])]) == ErrorCode.INVALID_RECORD_STATE

    with_broker(scenario, groups=short_locks(100))


@pytest.mark.parametrize("step_s", STEPS)
def test_fetch_sessions_are_given_up_for_their_idle_time_whatever_the_clock_says(step_s: int) -> None:
    clock = FakeClock()
    sessions = FetchSessions(clock, 2)

    def request(session_id: int = 0, epoch: int = 0) -> FetchRequest:
        topics = [] if session_id else [FetchTopic("t", partitions=[FetchPartition(0)])]
        return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)

    def plan(session_id: int = 0, epoch: int = 0) -> Any:
        return sessions.plan(request(session_id, epoch), by_id=False, owner=ANONYMOUS)

    first, second = plan().session_id, plan().session_id
    assert first
    assert second
    clock.step(step_s)
    assert plan().session_id == 0, "both are in use"
    assert plan(first, 1).error == ErrorCode.NONE
    clock.advance(EVICT_IDLE_S - 1)
    clock.step(-step_s)
    assert plan(first, 2).error == ErrorCode.NONE
    assert plan().session_id == 0
    clock.advance(1)
    assert plan().session_id
    assert plan(second, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert plan(first, 3).error == ErrorCode.NONE
