"""A connection's life on the socket's side: clients that are let in, and clients that say nothing."""

import asyncio
import logging
from typing import Any

import pytest

from magnetar.base.memory_budget import MemoryBudget
from magnetar.server.connection import Connection, ConnectionLimits
from magnetar.server.listeners import Connections
from magnetar.server.loop_watch import INTERVAL_S, QUIET_INTERVAL_S, LoopWatch
from magnetar.testing.clock import FakeClock
from tests.unit.server.tls_world import admitting


class Transport:
    def __init__(self) -> None:
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 1234) if name in ("peername", "sockname") else None

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def abort(self) -> None:
        self.aborted = True


class Session:
    def get_buffer(self) -> memoryview:
        return memoryview(bytearray(10))

    def received(self, count: int) -> None: ...

    def peer_is_slow(self, slow: bool) -> None: ...

    def closed(self) -> None: ...

    def finish(self) -> None: ...


def connect(connections: Connections) -> tuple[Connection, Transport]:
    connection = connections.factory("PLAINTEXT", lambda connection, number: Session())()
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def made(clock: FakeClock, **limits: Any) -> Connections:
    return Connections(ConnectionLimits(**limits), clock, MemoryBudget(1 << 20, clock), admitting(clock))


def test_a_client_that_sends_nothing_is_closed_and_one_that_has_spoken_may_be_silent() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        connections = made(clock, first_word_s_max=30, idle_s_max=600)
        _, silent = connect(connections)
        talker, spoke = connect(connections)
        clock.advance(20)
        talker.buffer_updated(1)
        clock.advance(11)
        assert silent.aborted
        clock.advance(500)
        assert not spoke.aborted
        clock.advance(200)
        assert spoke.aborted

    asyncio.run(scenario())


def test_without_an_idle_limit_only_the_first_word_is_waited_for() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        connections = made(clock, first_word_s_max=30, idle_s_max=0)
        _, silent = connect(connections)
        talker, spoke = connect(connections)
        talker.buffer_updated(1)
        clock.advance(31)
        clock.advance(1_000_000)
        assert (silent.aborted, spoke.aborted) == (True, False)

    asyncio.run(scenario())


def test_refusals_are_counted_and_said_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        connections = made(clock, connections_max=2)
        for _ in range(2):
            assert not connect(connections)[1].aborted
        for _ in range(50):
            assert connect(connections)[1].aborted
        assert connections.refused_count == 50
        clock.advance(11)
        connect(connections)
        assert len(connections) == 2

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert len(caplog.records) == 2
    assert "49 more were refused" in caplog.text


def test_what_timers_are_late_by_is_how_long_the_loop_was_held() -> None:
    clock = FakeClock()
    watch = LoopWatch(clock, clock.monotonic)
    clock.advance(INTERVAL_S)
    watch._due_s -= 0.3  # other work held the loop for so long
    clock.advance(INTERVAL_S)
    assert sum(watch.stalls.counts) == 2
    assert 0.29 < watch.longest_s < 0.31


def test_a_loop_that_does_next_to_nothing_is_looked_at_rarely() -> None:
    clock = FakeClock()
    worked_s = 0.0
    watch = LoopWatch(clock, lambda: worked_s)
    clock.advance(INTERVAL_S)
    for _ in range(40):
        clock.advance(QUIET_INTERVAL_S / 10)
    assert sum(watch.stalls.counts) == 5

    worked_s = 1.0
    clock.advance(QUIET_INTERVAL_S)
    for _ in range(10):
        worked_s += INTERVAL_S
        clock.advance(INTERVAL_S)
    assert sum(watch.stalls.counts) == 16
