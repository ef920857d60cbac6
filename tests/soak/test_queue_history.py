"""What the check of a queue of both protocols sees; nothing is started here."""

from collections.abc import Sequence

import pytest

from tests.soak.mixed_history import Broken
from tests.soak.queue_history import STALE_MAX, Checked, History, Life, check

SHARER, OTHER, TAKER, JAVA_TAKER = range(4)
LIMIT = 2
LOCK = 1_000_000


def history(
    *said: tuple[int, str], kills: Sequence[int] = (), died: Sequence[tuple[int, int]] = (), letters: int = 0
) -> History:
    """What was said of message 0, a line at each moment from 1 on; the server was killed just after these moments."""
    made = History(limit=LIMIT, lock_ns=LOCK)
    lives = [
        Life(made, "sharer", 0, is_pulsar=False, has_answers=True),
        Life(made, "other", 0, is_pulsar=False, has_answers=True),
        Life(made, "taker", 0, is_pulsar=True, has_answers=False),
        Life(made, "java-taker", 0, is_pulsar=True, has_answers=True),
    ]
    for at, (who, line) in enumerate(said, 1):
        letter, _, count = line.partition(":")
        lives[who].heard(f"{letter} {at * 10} 0{':' if count else ''}{count}")
    for kill in kills:
        made.killed(kill * 10 + 1, kill * 10 + 9)
    for who, at in died:
        lives[who].died = at * 10 + 1
    if letters:
        made.letters[0] = letters
    return made


GIVEN = "g:1"


@pytest.mark.parametrize(
    "good",
    [
        history((SHARER, GIVEN), (SHARER, "a"), (SHARER, "d")),
        history((TAKER, GIVEN), (TAKER, "a")),
        history((SHARER, GIVEN), (SHARER, "r"), (OTHER, "g:2"), (SHARER, "d"), (OTHER, "a"), (OTHER, "d")),
        history((SHARER, GIVEN), (SHARER, "x"), (SHARER, "d"), letters=1),
        history(
            (SHARER, GIVEN),
            (SHARER, "r"),
            (SHARER, "d"),
            (OTHER, "g:2"),
            (OTHER, "r"),
            (OTHER, "d"),
            letters=1,
        ),
        # What was not answered may have been done, or not.
        history((SHARER, GIVEN), (SHARER, "a"), kills=[2]),
        history((SHARER, GIVEN), (SHARER, "a"), (OTHER, GIVEN), (OTHER, "a"), (OTHER, "d"), kills=[2]),
        history((SHARER, GIVEN), (SHARER, "r"), (OTHER, GIVEN), (OTHER, "a"), (OTHER, "d"), kills=[2]),
        history(
            (SHARER, GIVEN), (SHARER, "x"), (OTHER, GIVEN), (OTHER, "a"), (OTHER, "d"), kills=[2], letters=1
        ),
        # Whoever is gone has nothing any more.
        history((SHARER, GIVEN), (OTHER, GIVEN), (OTHER, "a"), (OTHER, "d"), died=[(SHARER, 1)]),
        history((TAKER, GIVEN), (TAKER, "a"), (OTHER, GIVEN), (OTHER, "a"), (OTHER, "d"), died=[(TAKER, 2)]),
        # Positions of Pulsar's clients are stored a little later.
        history((TAKER, GIVEN), (TAKER, "a"), (OTHER, GIVEN), (OTHER, "a"), (OTHER, "d"), kills=[2]),
        history(
            (JAVA_TAKER, GIVEN), (JAVA_TAKER, "a"), (JAVA_TAKER, "d"), (TAKER, GIVEN), (TAKER, "a"), kills=[3]
        ),
        # ... and they may hear after a kill what was answered before it.
        history(
            *((JAVA_TAKER, GIVEN), (JAVA_TAKER, "a"), (JAVA_TAKER, "d")),
            *((SHARER, GIVEN), (SHARER, "a"), (SHARER, "d")),
            kills=[2],
        ),
        # A client shows what it has had since before the kill, and may be the first to.
        history((TAKER, GIVEN), (SHARER, GIVEN), (SHARER, "a"), (SHARER, "d"), kills=[0]),
        history((OTHER, GIVEN), (SHARER, GIVEN), (OTHER, "a"), (SHARER, "a"), (SHARER, "d"), kills=[0]),
        # ... and an answer to a release may be read when the next one has been given the message, and answered.
        history(
            *((TAKER, GIVEN), (TAKER, "a"), (SHARER, GIVEN), (SHARER, "r"), (OTHER, "g:2"), (OTHER, "a")),
            *((OTHER, "d"), (SHARER, "d")),
            kills=[0],
        ),
        history((SHARER, GIVEN), (SHARER, "a"), (SHARER, "d"), (TAKER, GIVEN), (TAKER, "a"), kills=[0]),
        history((SHARER, GIVEN), (OTHER, GIVEN), (SHARER, "a"), (SHARER, "d"), (OTHER, "a"), kills=[0]),
    ],
)
def test_what_is_promised_is_enough(good: History) -> None:
    assert isinstance(check(good, 1), Checked)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (history(), "1 messages were given to nobody"),
        (history((SHARER, GIVEN)), "message 0 is lost"),
        (history((SHARER, GIVEN), (SHARER, "r"), (SHARER, "d")), "message 0 is lost"),
        (history((SHARER, GIVEN), (SHARER, "x"), (SHARER, "d")), "message 0 is lost"),
        (
            history((SHARER, GIVEN), (SHARER, "a"), (SHARER, "d"), (OTHER, GIVEN)),
            "was done with by sharer, and was given to other",
        ),
        (
            history(
                (SHARER, GIVEN),
                (SHARER, "a"),
                (SHARER, "d"),
                (OTHER, GIVEN),
                (OTHER, "a"),
                (OTHER, "d"),
                kills=[3],
            ),
            "is another one's, and other has an answer",
        ),
        (
            history(
                (JAVA_TAKER, GIVEN),
                (JAVA_TAKER, "a"),
                (JAVA_TAKER, "d"),
                (TAKER, GIVEN),
                died=[(JAVA_TAKER, 3)],
            ),
            "was done with by java-taker, and was given to taker",
        ),
        (
            history((TAKER, GIVEN), (TAKER, "a"), (OTHER, GIVEN)),
            "was done with by taker, and was given to other",
        ),
        (history((SHARER, GIVEN), (TAKER, GIVEN), (TAKER, "a")), "is with sharer, and was given to taker"),
        (history((SHARER, GIVEN), (OTHER, GIVEN), (SHARER, "a")), "is with sharer, and was given to other"),
        (
            history(
                (SHARER, GIVEN),
                (SHARER, "r"),
                (SHARER, "d"),
                (OTHER, GIVEN),
                (OTHER, "a"),
                (OTHER, "d"),
                kills=[3],
            ),
            "was released 1 times, and other was shown the delivery count 1",
        ),
        (
            history((SHARER, "g:2"), (SHARER, "a"), (SHARER, "d")),
            "was released 0 times at most, and sharer was shown the delivery count 2",
        ),
        (history((TAKER, "g:3"), (TAKER, "a")), "was released 0 times at most, and taker was shown"),
        (
            history((SHARER, GIVEN), (SHARER, "a"), (SHARER, "d"), letters=1),
            "has 1 dead letters after 0 attempts",
        ),
        (
            history((SHARER, GIVEN), (SHARER, "x"), (SHARER, "d"), letters=2),
            "has 2 dead letters after 1 attempts",
        ),
        (
            history((SHARER, GIVEN), (SHARER, "x"), (SHARER, "d"), (OTHER, GIVEN), (OTHER, "a"), letters=1),
            "was done with by sharer",
        ),
        (history((SHARER, GIVEN), (SHARER, "d")), "has an answer to nothing"),
        (
            history(
                *((OTHER, GIVEN), (SHARER, GIVEN), (OTHER, "a"), (SHARER, "a"), (SHARER, "d"), (OTHER, "d")),
                kills=[0],
            ),
            "is another one's, and other has an answer",
        ),
    ],
)
def test_the_check_sees(bad: History, complaint: str) -> None:
    with pytest.raises(Broken, match=complaint):
        check(bad, 1)


def test_a_message_that_was_given_up_needs_its_letter_though_it_was_accepted_before() -> None:
    bad = history((TAKER, GIVEN), (TAKER, "a"), (SHARER, GIVEN), (SHARER, "x"), (SHARER, "d"), kills=[2])
    with pytest.raises(Broken, match="was given up, and has no dead letter"):
        check(bad, 1)


def test_a_lock_may_have_been_over() -> None:
    made = history((SHARER, GIVEN))
    made.lives[OTHER].heard(f"g {LOCK + 10} 0:2")
    made.lives[OTHER].heard(f"a {LOCK + 20} 0")
    made.lives[OTHER].heard(f"d {LOCK + 30} 0")
    assert check(made, 1).redelivered == 1


def test_a_client_shows_no_more_of_before_the_kill_than_it_has_places() -> None:
    made = history(kills=[0])
    numbers = " ".join(map(str, range(STALE_MAX + 1)))
    for letter, at, who in (("g", 20, SHARER), ("a", 21, SHARER), ("d", 22, SHARER), ("g", 23, TAKER)):
        made.lives[who].heard(
            f"{letter} {at} {numbers.replace(' ', ':1 ') + ':1' if letter == 'g' else numbers}"
        )
    with pytest.raises(Broken, match=f"taker has been given {STALE_MAX + 1} messages of others"):
        check(made, STALE_MAX + 1)
    assert check(shorter(made), STALE_MAX).stale == STALE_MAX


def shorter(made: History) -> History:
    """The same of one message fewer."""
    made._rows = [row[:-2] for row in made._rows]
    return made


def test_what_a_library_prints_says_nothing() -> None:
    made = history((SHARER, GIVEN), (SHARER, "a"), (SHARER, "d"))
    made.lives[SHARER].heard("WARNING: nothing of note\n")
    made.lives[SHARER].heard("\n")
    assert check(made, 1).accepted == 1
