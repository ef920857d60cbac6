"""JSON of clients: the same values whichever way they are read, and large documents never on the event loop."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.admin import json_bodies
from magnetar.admin.json_bodies import (
    AT_ONCE_BYTES,
    DEPTH_MAX,
    OF_CLIENT_MAX,
    JsonReader,
    TooManyDocuments,
    read_at_once,
    read_with_rests,
    write_with_rests,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=30,
)


def _still() -> float:
    return 0.0


def _result(read: Callable[[bytes], Any], content: bytes) -> Any:
    try:
        return read(content)
    except UnicodeEncodeError:
        return "half of a character"
    except (ValueError, RecursionError):
        return ValueError


def _slowly(content: bytes) -> Any:
    return read_with_rests(content, _still)


@given(VALUES, st.booleans())
def test_both_ways_read_and_write_the_same(value: Any, ascii_only: bool) -> None:
    content = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert read_at_once(content) == _slowly(content) == value
    short = json.dumps(value, separators=(",", ":"))
    assert write_with_rests(value, _still) == short


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1,]",
        b'{"a" 1}',
        b'{"a":1,}',
        b"[1] 2",
        b"1e999",
        b"[-1e999]",
        b"NaN",
        b'{"a":Infinity}',
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'["\xed\xa0\x80"]',
        b"\xff",
        b"[" * 5000 + b"]" * 5000,
        b"9" * 5000,
        b'"\\ud83d\\ude00"',
        b'{"a":1,"a":2}',
        "[1]".encode("utf-16"),
    ],
)
def test_both_ways_refuse_the_same(content: bytes) -> None:
    assert _result(read_at_once, content) == _result(_slowly, content)


@pytest.mark.parametrize("read", [read_at_once, _slowly], ids=["at once", "slowly"])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")], ids=["arrays", "objects"])
def test_what_is_nested_too_deep_is_refused(read: Callable[[bytes], Any], begin: str, end: str) -> None:
    def nested(depth: int) -> bytes:
        return f"{begin * depth}1{end * depth}".encode()

    read(nested(DEPTH_MAX))
    read(b"[" + b",".join([b"[]"] * 2 * DEPTH_MAX) + b"]")
    with pytest.raises(RecursionError, match=f"nested more than {DEPTH_MAX} deep"):
        read(nested(DEPTH_MAX + 1))


def test_what_is_large_is_read_and_written_with_rests_on_a_thread() -> None:
    """Thirty clients that sent a megabyte of small values, without any right, had all others wait for a second."""
    threads = []

    def monotonic() -> float:
        threads.append(threading.get_ident())
        return 0.0

    reader, count = JsonReader(monotonic), AT_ONCE_BYTES // 2
    large = b"[" + b"1," * count + b"1]"

    async def main() -> None:
        found = await reader.read(large, "10.0.0.1")
        assert found == [1] * (count + 1)
        assert len(threads) > count, "before each value"
        threads.append(0)
        text = await reader.write(found, len(large), "10.0.0.1")
        assert text == large.decode()
        assert len(threads) > 2 * count
        assert threading.get_ident() not in threads
        threads.clear()
        small = large[: AT_ONCE_BYTES - 1] + b"]"
        assert await reader.read(small.replace(b",]", b"]"), "10.0.0.1") == [1] * (count - 1)
        assert await reader.write([1], 3, "10.0.0.1") == "[1]"
        assert threads == [], "what is small is not worth a thread"

    asyncio.run(main())


def test_one_client_has_only_some_documents_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    monkeypatch.setattr(json_bodies, "read_with_rests", lambda *_: may_go_on.wait(30))

    async def main() -> None:
        reader, large = JsonReader(_still), bytes(AT_ONCE_BYTES + 1)
        asked = [asyncio.create_task(reader.read(large, "a")) for _ in range(OF_CLIENT_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyDocuments):
            await reader.read(large, "a")
        assert await reader.read(b"1", "a") == 1
        asked.append(asyncio.create_task(reader.read(large, "b")))
        may_go_on.set()
        assert await asyncio.gather(*asked) == [True] * (OF_CLIENT_MAX + 1)
        assert await reader.read(large, "a") is True

    asyncio.run(main())


def test_clients_take_turns_with_their_large_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[bytes] = []
    may_go_on = threading.Event()

    def read(content: bytes, monotonic: Callable[[], float]) -> None:
        assert may_go_on.wait(30)
        done.append(content[:2])

    monkeypatch.setattr(json_bodies, "read_with_rests", read)

    async def main() -> None:
        reader = JsonReader(_still)
        pad = bytes(AT_ONCE_BYTES)
        asked = [asyncio.create_task(reader.read(b"a%d" % number + pad, "a")) for number in range(3)]
        asked.append(asyncio.create_task(reader.read(b"b0" + pad, "b")))
        await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.gather(*asked)
        assert done == [b"a0", b"b0", b"a1", b"a2"]

    asyncio.run(main())
