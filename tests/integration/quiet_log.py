"""What no server of a test may log: the traces of a fault, and what clients have to keep secret."""

from typing import Final

# Python's own words for what was caught nowhere, for a future that failed unseen, and for a transport that broke.
FAULTS: Final = ("Traceback", "never retrieved", "Fatal", "xception")


def assert_quiet(log: str, *secrets: str) -> None:
    """Fail with the lines that have a trace of a fault or one of the secrets.  Each secret may be a part of several."""
    assert all(secrets), "an empty secret is in every line"
    found = [line for line in log.splitlines() if any(word in line for word in (*FAULTS, *secrets))]
    assert not found, found
