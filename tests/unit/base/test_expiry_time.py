"""The time by which things expire, over a wall clock that is set forward and back."""

import pytest

from magnetar.base.expiry_time import ACCEPT_S, JUMP_MS, ExpiryTime
from magnetar.testing.clock import FakeClock

YEAR_S = 365 * 86_400
DAY_S = 86_400


def run_for(clock: FakeClock, time: ExpiryTime, seconds: float) -> int:
    """The time after `seconds`, looked at every ten of them."""
    for _ in range(round(seconds / 10)):
        clock.advance(10)
        time.now_ms()
    return time.now_ms()


def restarted(clock: FakeClock, time: ExpiryTime, off_s: float) -> ExpiryTime:
    """A process that begins `off_s` seconds, by the wall clock, after the one before it."""
    time.now_ms()
    stored = time.encode()
    clock.step(off_s)
    again = ExpiryTime(clock)
    again.restore(stored)
    return again


def test_it_is_the_wall_clock_s_as_long_as_that_goes_well() -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    for _ in range(1000):
        clock.step(0.005)  # NTP's slewing
        assert run_for(clock, time, 10) == clock.now_ms()
    clock.step(-30)
    assert time.now_ms() == clock.now_ms()
    clock.step(JUMP_MS / 1000 - 1)
    assert time.now_ms() == clock.now_ms()
    assert time.problem is None


def test_a_jump_of_a_year_is_held_and_told_until_the_clock_is_right_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    right_ms = clock.now_ms()
    clock.step(YEAR_S)
    assert time.now_ms() == right_ms
    assert run_for(clock, time, 1800) == right_ms + 1_800_000
    assert "for another 30 minutes" in (time.problem or "")
    assert time.held_ms == YEAR_S * 1000
    assert len(caplog.records) == 1, "once"
    clock.step(-YEAR_S)
    assert time.now_ms() == clock.now_ms() == right_ms + 1_800_000
    assert (time.problem, time.held_ms) == (None, 0)


def test_what_has_stood_for_an_hour_is_taken_for_right_and_a_second_jump_begins_a_new_hour() -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    clock.step(YEAR_S)
    assert run_for(clock, time, ACCEPT_S - 60) < clock.now_ms()
    clock.step(YEAR_S)
    assert run_for(clock, time, ACCEPT_S - 60) < clock.now_ms()
    assert time.problem is not None
    assert run_for(clock, time, 120) == clock.now_ms()
    assert time.problem is None


def test_a_clock_that_is_set_nearly_right_begins_a_new_hour() -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    right_ms = clock.now_ms()
    clock.step(YEAR_S)
    run_for(clock, time, ACCEPT_S - 60)
    clock.step(DAY_S - YEAR_S)
    assert run_for(clock, time, ACCEPT_S - 60) == right_ms + 2 * (int(ACCEPT_S) - 60) * 1000
    assert run_for(clock, time, 120) == clock.now_ms()


def test_a_clock_that_goes_back_is_followed_at_once_and_its_correction_held() -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    clock.step(-YEAR_S)
    back_ms = clock.now_ms()
    assert time.now_ms() == back_ms
    clock.step(YEAR_S)
    assert time.now_ms() == back_ms
    assert run_for(clock, time, ACCEPT_S + 20) == clock.now_ms()


def test_a_start_with_a_clock_a_year_ahead_expires_nothing_for_an_hour_of_running() -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    right_ms = run_for(clock, time, 100)
    time = restarted(clock, time, YEAR_S)
    assert time.now_ms() == right_ms
    assert time.problem is None, "it may just have been off"
    assert time.held_ms
    # Killed and started again and again it still comes to an end.
    for _ in range(3):
        assert run_for(clock, time, 1000) < clock.now_ms() - DAY_S * 1000
        time = restarted(clock, time, 30)
    assert run_for(clock, time, 610) == clock.now_ms()


def test_a_year_ahead_behind_a_day_that_was_nearly_accepted_begins_a_new_hour() -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    time = restarted(clock, time, DAY_S)
    run_for(clock, time, ACCEPT_S - 10)
    time = restarted(clock, time, YEAR_S)
    assert run_for(clock, time, ACCEPT_S - 100) < clock.now_ms() - DAY_S * 1000


def test_short_absences_and_clocks_behind_at_a_start_are_nothing_to_speak_of() -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    for off_s in (10, 3000, -YEAR_S):
        time = restarted(clock, time, off_s)
        assert time.now_ms() == clock.now_ms()
        assert time.held_ms == 0


@pytest.mark.parametrize("stored", [b"", b"{}", b"[1]", b'{"now_ms": "x", "held_ms": 0, "held_s": 0}'])
def test_what_is_stored_may_be_damaged(stored: bytes) -> None:
    clock = FakeClock()
    time = ExpiryTime(clock)
    time.restore(stored)
    assert time.now_ms() == clock.now_ms()
