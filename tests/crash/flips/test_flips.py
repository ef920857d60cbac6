"""A few flipped bits with each test run; `python -m tests.crash.flips.flips` is the long run."""

from pathlib import Path

import pytest

from tests.crash.flips.flips import Flips

FLIPS = 6


@pytest.mark.crash
@pytest.mark.slow
def test_a_flipped_bit_is_found_and_named_or_harmless(tmp_path: Path) -> None:
    outcomes, broken = Flips(tmp_path, 20261122).run(FLIPS, print)
    assert not broken, "\n".join(broken)
    assert sum(outcomes.values()) == FLIPS
