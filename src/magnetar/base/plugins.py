"""What other packages add to Magnetar, found by entry points of their distributions."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

PROTOCOLS: Final = "magnetar.protocols"  # `protocols/door.py`


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of `group`, by name; nothing of them is imported.  All distributions are looked at, so once."""
    return {point.name: point for point in entry_points(group=group)}
