"""Short runs of a function that is killed, on a real server, and bugs that they have to find."""

import pytest

from tests.soak import functions
from tests.soak.__main__ import PARTS
from tests.soak.mixed_history import Broken

pytestmark = [pytest.mark.clients, pytest.mark.crash, pytest.mark.timeout(600)]
KILLS = 3  # one of each kind; `make soak` has 20
SEED = 4711


def test_kills_neither_lose_an_output_nor_double_it() -> None:
    print(functions.run(KILLS, SEED))


@pytest.mark.soak  # what the check finds, test_function_history.py tries without a server
@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("duplicates-stored", r"once: \d+ faults: the output b'<m\d+>' is there \d+ times"),
        ("acked-early", r"(once|least): .*the output b'<m\d+>' is lost"),
    ],
)
def test_a_planted_bug_is_found(bug: str, found: str) -> None:
    with pytest.raises(Broken, match=found):
        functions.run(KILLS, SEED, bug)


def test_soak_kills_a_function() -> None:
    assert PARTS["functions"] == ["tests.soak.functions"]
