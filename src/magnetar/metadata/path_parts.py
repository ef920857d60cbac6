"""Names that clients chose, as parts of paths."""

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

_EMPTY: Final = (
    "%"  # Kafka's groups may have an empty name, a path's part may not; quote() never makes a lone percent
)
_CACHED_MAX: Final = 1 << 15  # escaping costs more than all else in a commit of one cursor


@lru_cache(maxsize=_CACHED_MAX)
def escape(name: str) -> str:
    """One path part from any name; `unescape` undoes it."""
    if name in (".", ".."):
        return name.replace(".", "%2E")  # ZooKeeper refuses both
    return quote(name, safe="") or _EMPTY


@lru_cache(maxsize=_CACHED_MAX)
def unescape(part: str) -> str:
    return "" if part == _EMPTY else unquote(part)
