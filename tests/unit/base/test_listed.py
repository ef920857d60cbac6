"""Names in a sentence."""

import pytest

from magnetar.base.listed import listed


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more"), (9, "0, 1, 2 and 6 more")],
)
def test_the_first_names_are_shown_and_the_others_counted(count: int, text: str) -> None:
    assert listed(range(count), 3) == text
