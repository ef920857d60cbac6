"""The short run of the fuzzer; the long one is `python -m tests.fuzz.kafka_codec --mutations 5000000`."""

import pytest

from tests.fuzz.kafka_codec import GROWTH_BYTES_MAX, attempt, run
from tests.fuzz.kafka_instances import Case, cases


def test_nothing_but_wire_errors_comes_out_of_damaged_messages() -> None:
    outcome = run(100_000, seed=20_260_101)
    assert outcome.failures == []
    assert outcome.mutations == 100_000
    # Both ends of the scale were reached: damage that shows and damage that does not.
    assert outcome.refused > 50_000
    assert outcome.read > 5_000
    assert outcome.growth_bytes < GROWTH_BYTES_MAX


def test_the_fuzzer_notices_another_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(cases())

    def broken(*_: object) -> object:
        raise IndexError("from a reader without its guard")

    monkeypatch.setattr(case.module, "decode_request", broken)
    with pytest.raises(IndexError):
        attempt(case, b"")


def test_the_fuzzer_notices_a_message_that_does_not_survive_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(cases())
    encodings = iter((b"first", b"second"))
    monkeypatch.setattr(Case, "decode", lambda *_: object())
    monkeypatch.setattr(Case, "encode", lambda *_: next(encodings))
    with pytest.raises(AssertionError, match="after writing it"):
        attempt(case, b"")
