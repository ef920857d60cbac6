"""The short run of the fuzzer; the long one is `python -m tests.fuzz.column_logs --mutations 1000000`."""

import numpy
import pytest

from tests.fuzz.column_logs import run
from tests.fuzz.guarded import Guarded


@pytest.mark.timeout(600)  # it may have to wait for the compiler first
def test_nothing_but_corrupt_entries_comes_out_of_damaged_logs() -> None:
    outcome = run(2_000, seed=20_261_121)
    assert outcome.failures == []
    assert outcome.mutations == 2_000
    # Both ends of the scale were reached: damage that shows and damage that does not.
    assert outcome.refused > 300
    assert outcome.read > 300


def test_the_fuzzer_notices_a_write_outside_the_array() -> None:
    guarded = Guarded()
    array = guarded.fresh(3, numpy.int32)
    outside = numpy.lib.stride_tricks.as_strided(array, shape=(4,))
    outside[3] = 1
    with pytest.raises(AssertionError, match="written"):
        guarded.check()
