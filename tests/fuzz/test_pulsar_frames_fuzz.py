"""The short run of the fuzzer; the long one is `python -m tests.fuzz.pulsar_frames --mutations 5000000`."""

import pytest

from tests.fuzz import pulsar_frames


def test_nothing_but_wire_errors_comes_out_of_damaged_frames() -> None:
    outcomes = pulsar_frames.run(20_000, seed=20_261_121)
    # Both ends of the scale were reached: damage that shows and damage that does not.
    assert outcomes[False] > 5_000
    assert outcomes[True] > 2_000


def test_the_fuzzer_notices_another_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: memoryview) -> object:
        raise IndexError("from a reader without its guard")

    monkeypatch.setattr(pulsar_frames, "read_command", broken)
    with pytest.raises(IndexError):
        pulsar_frames.run(1, seed=1)
