"""What fixtures of servers hold against their logs."""

import pytest

from tests.integration.quiet_log import assert_quiet


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        "Future exception was never retrieved",
        "Fatal error on transport",
        "ValueException: no",
        "INFO login of alice with alice-secret",
    ],
)
def test_a_trace_of_a_fault_and_a_secret_are_found(line: str) -> None:
    assert_quiet("INFO ready", "-secret", "eyJ")
    with pytest.raises(AssertionError):
        assert_quiet(f"INFO ready\n{line}\nINFO stopped\n", "-secret", "eyJ")


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(AssertionError):
        assert_quiet("", "")
