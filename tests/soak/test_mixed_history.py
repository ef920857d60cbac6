"""What the check of mixed transactions sees; nothing is started here."""

import pytest

from tests.soak.mixed_history import Broken, History, Record, State, check, check_copies

PLACES = ("a", 0), ("a", 1)


def records(transaction: str, *numbers: int, count: int = 2) -> list[str]:
    return [Record(transaction, number, count).encode() for number in numbers]


def history(**states: State) -> History:
    made = History()
    made.states |= states
    return made


@pytest.mark.parametrize(
    ("first", "second", "states", "complaint"),
    [
        (records("t", 0), records("t", 1), {"t": State.COMMITTED}, ""),
        (records("t", 0), records("t", 1), {"t": State.COMMITTING}, ""),
        ([], [], {"t": State.COMMITTING}, ""),
        ([], [], {"t": State.ABORTED}, ""),
        ([], [], {"t": State.COMMITTED}, "t is committed, and nothing of it is visible"),
        (records("t", 0), [], {"t": State.COMMITTED}, r"of its 2 records \[0\] are visible"),
        (records("t", 0), [], {"t": State.COMMITTING}, r"of its 2 records \[0\] are visible"),
        (records("t", 0, 1), records("t", 1), {"t": State.COMMITTED}, r"\[0, 1, 1\] are visible"),
        (records("t", 0), records("t", 1), {"t": State.ABORTED}, "t is aborted, and 2 of its records"),
        (records("t", 0), records("t", 1), {"t": State.OPEN}, "t is open, and 2 of its records"),
        (records("x", 0), records("x", 1), {}, "that no client has begun"),
        (["nothing"], [], {}, "was never sent"),
    ],
)
def test_the_check_of_transactions_sees(
    first: list[str], second: list[str], states: dict[str, State], complaint: str
) -> None:
    seen = dict(zip(PLACES, (first, second), strict=True))
    if not complaint:
        check(history(**states), seen, seen, seen)
        return
    with pytest.raises(Broken, match=complaint):
        check(history(**states), seen, seen, seen)


def test_the_check_sees_that_the_doors_differ() -> None:
    said = history(t=State.COMMITTED, u=State.COMMITTED)
    kafka = {PLACES[0]: records("t", 0, 1) + records("u", 0, count=1), PLACES[1]: []}
    turned = {**kafka, PLACES[0]: [*reversed(kafka[PLACES[0]])]}
    fewer = {**kafka, PLACES[0]: kafka[PLACES[0]][:-1]}
    assert check(said, kafka, kafka, kafka) == 3
    for pulsar in (turned, fewer):
        with pytest.raises(Broken, match="the doors differ"):
            check(said, kafka, kafka, pulsar)
    with pytest.raises(Broken, match="see what is not there"):
        check(said, kafka, fewer, kafka)


@pytest.mark.parametrize(
    ("origins", "complaint"),
    [
        (["t/1", "t/0"], ""),
        (["t/0"], "has not copied 1 records: t/1"),
        (["t/0", "t/1", "t/1"], "too often: t/1"),
    ],
)
def test_the_check_of_copies_sees(origins: list[str], complaint: str) -> None:
    source = records("t", 0, 1)
    copies = [Record("c", number, len(origins), origin).encode() for number, origin in enumerate(origins)]
    if not complaint:
        check_copies(source, copies, "copier")
        return
    with pytest.raises(Broken, match=complaint):
        check_copies(source, copies, "copier")
