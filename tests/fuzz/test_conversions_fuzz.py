"""The short run of the fuzzer; the long one is `python -m tests.fuzz.conversions --mutations 1000000`."""

import numpy
import pytest

from tests.fuzz.conversions import _both_ways, run
from tests.fuzz.guarded import Guarded


def test_nothing_but_wire_errors_comes_out_of_damaged_batches() -> None:
    outcome = run(5_000, seed=20_260_101)
    assert outcome.failures == []
    assert outcome.mutations == 5_000
    # Both ends of the scale were reached: damage that shows and damage that does not.
    assert outcome.refused > 500
    assert outcome.read > 500


def test_the_fuzzer_notices_a_write_outside_the_array() -> None:
    guarded = Guarded()
    array = guarded.empty(3)
    outside = numpy.lib.stride_tricks.as_strided(array, shape=(4,))
    outside[3] = 1
    with pytest.raises(AssertionError, match="written"):
        guarded.check()


def test_the_fuzzer_notices_a_read_outside_the_array() -> None:
    guarded = Guarded()

    def read_behind() -> int:
        array = guarded.readable(memoryview(b"abc"))
        return int(numpy.lib.stride_tricks.as_strided(array, shape=(4,))[3])

    with pytest.raises(AssertionError, match="read"):
        _both_ways(guarded, read_behind, lambda: 0)
