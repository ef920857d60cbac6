"""Positions of Pulsar as the numbers that `port.py` wants, and as texts of its admin API.

A ledger id and an entry id become one number, in their order: the next entry of the same ledger is one more.  An entry
id may be -1, which is before a ledger's first entry.
"""

import re
from collections.abc import Iterator
from typing import Final

from magnetar.client.links import Position

_ENTRIES: Final = 1 << 64
_UNSIGNED: Final = 1 << 63
_TEXT: Final = re.compile(r"(-?\d{1,19}):(-?\d{1,19})", re.ASCII)
_RANGE: Final = re.compile(r"\((-?\d{1,19}:-?\d{1,19})\.\.(-?\d{1,19}:-?\d{1,19})\]", re.ASCII)


def number_of(position: Position) -> int:
    """The number of a position."""
    return position.ledger_id * _ENTRIES + position.entry_id + 1


def position_of(number: int) -> Position:
    """The inverse of `number_of`."""
    ledger_id, behind = divmod(number, _ENTRIES)
    return Position(ledger_id, behind - 1)


def from_wire(ledger_id: int, entry_id: int) -> Position:
    """A position as commands have it: their fields are unsigned, and carry signed numbers."""
    return Position(_signed(ledger_id), _signed(entry_id))


def position_in(text: object) -> Position | None:
    """A position that the admin API shows as `ledger:entry`; None if it is none."""
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    return Position(max(int(found[1]), 0), max(int(found[2]), -1) if int(found[1]) >= 0 else -1)


def ranges_in(text: object) -> Iterator[tuple[Position, Position]]:
    """The ranges that the admin API shows as `[(5:3..5:5],(5:7..5:8]]`: behind the first position, up to the second."""
    for found in _RANGE.finditer(text) if isinstance(text, str) else ():
        first, last = position_in(found[1]), position_in(found[2])
        if first is not None and last is not None:
            yield first, last


def _signed(number: int) -> int:
    return number - 2 * _UNSIGNED if number >= _UNSIGNED else number
