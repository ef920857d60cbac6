"""Short runs of a function that is killed, on a real server, and a bug that they have to find."""

import pytest

from tests.soak import functions
from tests.soak.__main__ import PARTS
from tests.soak.mixed_history import Broken

pytestmark = [pytest.mark.clients, pytest.mark.crash, pytest.mark.timeout(600)]
KILLS = 3  # `make soak` has 20
SEED = 4711


def test_kills_neither_lose_an_output_nor_double_it() -> None:
    print(functions.run(KILLS, SEED))


@pytest.mark.soak  # what the check finds, test_function_history.py tries without a server
def test_a_planted_bug_is_found() -> None:
    with pytest.raises(Broken, match=r"the output b'<m\d+>' is there 2 times"):
        functions.run(2, SEED, "duplicates-stored")


def test_soak_kills_a_function() -> None:
    assert PARTS["functions"] == ["tests.soak.functions"]
