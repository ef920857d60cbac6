"""JSON that clients send, as Python's values, without delay for others.

A megabyte can be half a million values.  Python's own reader makes them in one step of the interpreter.  The step takes
30 to 90 ms, with the check that the values can be written again.  A route reads its body before it asks for the
caller's right.  So what is longer than `AT_ONCE_BYTES` is read on a thread, value by value and with rests
(`base/pacing.py`), one document at a time.  Clients take turns, each with one document, and `OF_CLIENT_MAX` documents
of one client wait at most.

Python reads values that it cannot write again: 1e999 and NaN, which JSON does not have, and halves of characters
(\\ud800), which UTF-8 does not have.  If they were stored, every answer that contains them would fail.  So they are
refused.  So are values that are nested deeper than `DEPTH_MAX`: what hides the secrets of a configuration, or compares
two of them, goes down with two frames or more for each level, and Python has a thousand.
"""

import asyncio
import json
import math
from collections.abc import Callable
from functools import partial
from json.decoder import JSONArray, JSONObject, scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from magnetar.base.pacing import Pace
from magnetar.base.thread_time import counted

AT_ONCE_BYTES: Final = 16 << 10
OF_CLIENT_MAX: Final = 16  # it has a megabyte for each, which nothing counts
DEPTH_MAX: Final = 200  # arrays and objects inside of each other

_SHORT: Final = (",", ":")

T = TypeVar("T")
Scan = Callable[[str, int], tuple[Any, int]]


class TooManyDocuments(Exception):
    """So many large documents of the client wait already."""


class _Client:
    __slots__ = ("__weakref__", "count", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.count = 0


class JsonReader:
    """See the module's text.  `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._working = asyncio.Lock()
        self._of_clients: WeakValueDictionary[str, _Client] = WeakValueDictionary()

    async def read(self, content: bytes | str, client: str) -> Any:
        """The value of a document; `client` is the address that has sent it.

        Raises:
            ValueError: it is not JSON (UnicodeEncodeError: a text in it has half of a character).
            RecursionError: it is too deep.
            TooManyDocuments
        """
        if len(content) <= AT_ONCE_BYTES:
            return read_at_once(content)
        return await self._in_turn(client, partial(read_with_rests, content, self._monotonic))

    async def write(self, value: Any, size: int, client: str) -> str:
        """The shortest text of a value that is a part of what `read` has read, which had `size` bytes.  Raises
        TooManyDocuments.
        """
        if size <= AT_ONCE_BYTES:
            return json.dumps(value, separators=_SHORT)
        return await self._in_turn(client, partial(write_with_rests, value, self._monotonic))

    async def _in_turn(self, client: str, work: Callable[[], T]) -> T:
        own = self._of_clients.get(client)
        if own is None:
            own = self._of_clients[client] = _Client()
        if own.count >= OF_CLIENT_MAX:
            raise TooManyDocuments
        own.count += 1
        try:
            async with own.turn, self._working:
                return await asyncio.to_thread(counted(work))
        finally:
            own.count -= 1


def read_at_once(content: bytes | str) -> Any:
    """See `JsonReader.read`."""
    found = json.loads(content)
    text = json.dumps(found, allow_nan=False, ensure_ascii=False)
    text.encode()
    if text.count("[") + text.count("{") > DEPTH_MAX:
        _check_depth(found)
    return found


def read_with_rests(content: bytes | str, monotonic: Callable[[], float]) -> Any:
    """See `JsonReader.read`; for a thread."""
    if isinstance(content, bytes):
        content = content.decode(json.detect_encoding(content), "surrogatepass")
    return _Reader(Pace(monotonic)).decode(content)


def write_with_rests(value: Any, monotonic: Callable[[], float]) -> str:
    """See `JsonReader.write`; for a thread."""
    pace = Pace(monotonic)
    parts = []
    for part in json.JSONEncoder(separators=_SHORT).iterencode(value):
        pace.rest_if_due()
        parts.append(part)
    return "".join(parts)


class _Reader(json.JSONDecoder):
    """Python's reader as its library has it in Python, with a rest where one is due before each value."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(object_pairs_hook=_members, parse_float=_finite, parse_constant=_refuse)
        self._pace = pace
        self._depth = 0
        self._scan: Scan | None = None
        self.parse_array = self._array
        self.parse_object = self._object
        self.parse_string = _text
        self.scan_once = py_make_scanner(self)

    def _array(self, place: tuple[str, int], scan: Scan) -> tuple[Any, int]:
        self._go_down()
        found: tuple[Any, int] = JSONArray(place, self._with_rests(scan))
        self._depth -= 1
        return found

    def _object(self, place: tuple[str, int], strict: bool, scan: Scan, *others: Any) -> tuple[Any, int]:
        self._go_down()
        found: tuple[Any, int] = JSONObject(place, strict, self._with_rests(scan), *others)
        self._depth -= 1
        return found

    def _go_down(self) -> None:
        if self._depth >= DEPTH_MAX:
            raise _too_deep()
        self._depth += 1

    def _with_rests(self, scan: Scan) -> Scan:
        if self._scan is None:
            rest = self._pace.rest_if_due

            def scan_after_rest(text: str, index: int) -> tuple[Any, int]:
                rest()
                return scan(text, index)

            self._scan = scan_after_rest
        return self._scan


def _check_depth(value: Any) -> None:
    """Raise RecursionError if a value is nested too deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise _too_deep()


def _too_deep() -> RecursionError:
    return RecursionError(f"it is nested more than {DEPTH_MAX} deep")


def _text(text: str, end: int, strict: bool) -> tuple[str, int]:
    found: tuple[str, int] = scanstring(text, end, strict)
    _check(found[0])
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, _ in pairs:
        _check(name)
    return dict(pairs)


def _check(text: str) -> None:
    if not text.isascii():
        text.encode()


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"no number of JSON's is as large as {digits[:100]}")
    return number


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON's")
