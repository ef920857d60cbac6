"""Rows of Magnetar's own bodies and answers, each about one partition: what a row must have is read here.

Each reader raises BadBody with a sentence that names the field.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from magnetar.admin.answers import BadBody
from magnetar.base.config import LONG_MAX
from magnetar.base.errors import BrokerError

ROWS_MAX: Final = 10_000  # in one request


def rows_of(body: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """The list of objects with this name in a body."""
    rows = body.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadBody(f"{name} must be a list of objects")
    if len(rows) > ROWS_MAX:
        raise BadBody(f"{name} has {len(rows)} rows, more than {ROWS_MAX}")
    return rows


def text_in(row: Mapping[str, Any], name: str) -> str:
    found = row.get(name)
    if not isinstance(found, str) or not found:
        raise BadBody(f"{name} must be a text")
    return found


def number_in(row: Mapping[str, Any], name: str, largest: int = LONG_MAX) -> int | None:
    """A whole number from 0 to `largest`; None if there is none."""
    found = row.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= largest:
        raise BadBody(f"{name} must be a whole number from 0 to {largest}")
    return found


def required_number_in(row: Mapping[str, Any], name: str, largest: int = LONG_MAX) -> int:
    """As `number_in`, of what a row must have."""
    found = number_in(row, name, largest)
    if found is None:
        raise BadBody(f"{name} must be a whole number")
    return found


def partition_in(row: Mapping[str, Any]) -> int:
    return required_number_in(row, "partition", (1 << 31) - 1)


def error_row(topic: str, partition: int, error: BrokerError) -> dict[str, Any]:
    """The row of a partition with an error, in an answer for several partitions."""
    return {"topic": topic, "partition": partition, "error": error.code, "reason": str(error)}
