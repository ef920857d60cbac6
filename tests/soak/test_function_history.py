"""What the check of a function's outputs finds, and what it lets through."""

from collections.abc import Callable

import pytest

from tests.soak.function_history import check_at_least_once, check_once, output_of
from tests.soak.mixed_history import Broken

GIVEN = [b"m%d" % number for number in range(6)]


def outputs() -> list[bytes]:
    return [output_of(one) for one in GIVEN]


def test_one_output_for_each_message_in_order_is_right() -> None:
    check_once(GIVEN, outputs())
    check_once([], [])


def test_message_that_was_sent_twice_has_two_outputs() -> None:
    check_once([*GIVEN, b"m0"], [*outputs(), b"<m0>"])


def lose(made: list[bytes]) -> None:
    del made[2]


def double(made: list[bytes]) -> None:
    made.insert(3, made[2])


def make_one_up(made: list[bytes]) -> None:
    made.append(b"<m9>")


def swap(made: list[bytes]) -> None:
    made[1], made[2] = made[2], made[1]


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (lose, "1 faults: the output b'<m2>' is lost"),
        (double, "1 faults: the output b'<m2>' is there 2 times"),
        (make_one_up, "1 faults: the output b'<m9>' has no message"),
        (swap, "1 faults: the output b'<m2>' stands where b'<m1>' should be"),
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[list[bytes]], None], why: str) -> None:
    made = outputs()
    plant(made)
    with pytest.raises(Broken, match=why):
        check_once(GIVEN, made)


def test_an_output_may_be_there_again_and_later_if_that_is_all_that_is_promised() -> None:
    check_at_least_once(GIVEN, [*reversed(outputs()), *outputs()])


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (lose, "1 faults: the output b'<m2>' is lost"),
        (make_one_up, "1 faults: the output b'<m9>' has no message"),
    ],
)
def test_a_bug_is_found_if_less_is_promised(plant: Callable[[list[bytes]], None], why: str) -> None:
    made = outputs()
    plant(made)
    with pytest.raises(Broken, match=why):
        check_at_least_once(GIVEN, made)
