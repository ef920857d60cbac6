"""Names that clients chose, as parts of paths."""

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

_EMPTY: Final = (
    "%"  # Kafka's groups may have an empty name, a path's part may not; quote() never makes a lone percent
)
_CACHED_MAX: Final = 1 << 15  # escaping costs more than all else in a commit of one cursor
_CACHED_CHARS_MAX: Final = (
    256  # a client may make up any number of names of 32 KiB, and each is kept for long
)


def escape(name: str) -> str:
    """One path part from any name; `unescape` undoes it."""
    return _escaped(name) if len(name) <= _CACHED_CHARS_MAX else _escape(name)


def unescape(part: str) -> str:
    return _unescaped(part) if len(part) <= _CACHED_CHARS_MAX else _unescape(part)


def _escape(name: str) -> str:
    if name in (".", ".."):
        return name.replace(".", "%2E")  # ZooKeeper refuses both
    return quote(name, safe="") or _EMPTY


def _unescape(part: str) -> str:
    return "" if part == _EMPTY else unquote(part)


_escaped = lru_cache(maxsize=_CACHED_MAX)(_escape)
_unescaped = lru_cache(maxsize=_CACHED_MAX)(_unescape)
