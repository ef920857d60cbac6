"""What the check of replicated flights finds, and what it lets through."""

from collections.abc import Callable

import pytest

from tests.soak.flights_history import Flight, Found, judged
from tests.soak.mixed_history import Broken

SENT = [
    Flight(number, b"k%d" % (number % 2), b"v%d" % number, (("number", b"%d" % number), ("origin", b"JFK")))
    for number in range(10)
]


def as_found() -> list[Found]:
    return [(one.key, one.value, one.headers) for one in SENT]


def test_records_as_they_were_sent_are_right_also_when_they_come_again_in_order() -> None:
    judged(SENT, as_found()).require(once=True)
    found = as_found()
    again = judged(SENT, found[:6] + found[2:])
    again.require()
    assert again.again == 4
    with pytest.raises(Broken, match="4 records came again"):
        again.require(once=True)


def test_the_order_of_different_keys_is_free() -> None:
    judged(SENT, sorted(as_found(), key=lambda one: one[0] or b"")).require(once=True)


def lose(found: list[Found]) -> None:
    del found[4]


def lose_the_last_of_a_key(found: list[Found]) -> None:
    del found[9]


def swap(found: list[Found]) -> None:
    found[2], found[4] = found[4], found[2]


def change_headers(found: list[Found]) -> None:
    key, value, headers = found[3]
    found[3] = (key, value, (headers[0], ("origin", None)))


def turn_the_headers_round(found: list[Found]) -> None:
    key, value, headers = found[3]
    found[3] = (key, value, headers[::-1])


def change_the_value(found: list[Found]) -> None:
    key, _, headers = found[3]
    found[3] = (key, b"", headers)


def lose_the_key(found: list[Found]) -> None:
    _, value, headers = found[3]
    found[3] = (None, value, headers)


def end_with_an_old_one(found: list[Found]) -> None:
    found.append(found[2])


def make_one_up(found: list[Found]) -> None:
    found.append((b"k0", b"v", (("number", b"99"),)))


def leave_the_number_out(found: list[Found]) -> None:
    found.append((b"k0", b"v", ()))


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (lose, "flight 4 is lost"),
        (lose_the_last_of_a_key, "flight 9 is lost"),
        (swap, "flight 4 came before an older one of k0"),
        (change_headers, "flight 3 is changed"),
        (turn_the_headers_round, "flight 3 is changed"),
        (change_the_value, "flight 3 is changed"),
        (lose_the_key, "flight 3 is changed"),
        (end_with_an_old_one, "the last record of k0 is flight 2 and not 8"),
        (make_one_up, "a record that was never sent"),
        (leave_the_number_out, "a record that was never sent"),
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[list[Found]], None], why: str) -> None:
    found = as_found()
    plant(found)
    with pytest.raises(Broken, match=why):
        judged(SENT, found).require()
