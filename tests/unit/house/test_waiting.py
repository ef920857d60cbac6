"""Whatever waits for a time below `server/` waits on a `Clock`, which tests and simulations move by hand.

Ruff's list of banned names (`pyproject.toml`) cannot hold this: `asyncio.sleep(0)` is a turn for others, and allowed.
"""

import ast

import pytest

from .source_trees import Trees, sources

pytestmark = pytest.mark.xdist_group("sources")

SERVER = ("admin/", "base/", "broker/", "ledger/", "metadata/", "protocols/", "storage/", "wire/")
# The clock itself, and what stands between uvicorn and its clients, which is in uvicorn's time.
ALLOWED = ("base/clock.py", "admin/answers.py", "admin/slots.py")
CLOCKS = ("clock", "_clock")


def waits(trees: Trees) -> list[str]:
    """Where the event loop's own time is asked for or waited for."""
    found = []
    for module, tree in trees.items():
        if not module.startswith(SERVER) or module in ALLOWED:
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[delay]):
                    is_wait = not (isinstance(delay, ast.Constant) and delay.value == 0)
                case (
                    ast.Attribute(value=ast.Name(id="asyncio"), attr="timeout" | "timeout_at" | "wait_for")
                    | ast.ImportFrom(module="asyncio")
                ):
                    is_wait = True
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="asyncio"), attr="wait" | "as_completed"),
                    keywords=given,
                ):
                    is_wait = any(one.arg == "timeout" for one in given)
                case ast.Call(func=ast.Attribute(value=value, attr="call_later" | "call_at")):
                    is_wait = ast.unparse(value).rpartition(".")[2] not in CLOCKS
                case ast.Call(func=ast.Attribute(value=value, attr="time"), args=[]):
                    is_wait = "loop" in ast.unparse(value)
                case _:
                    is_wait = False
            if is_wait:
                found.append(f"{module}: {ast.unparse(node)}")
    return found


def test_what_waits_does_so_on_a_clock() -> None:
    assert waits(sources()) == []


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.sleep(3)",
        "asyncio.sleep(rest * took_s)",
        "asyncio.get_running_loop().call_later(3, print)",
        "self._loop.call_at(3, print)",
        "asyncio.get_running_loop().time()",
        "self.loop.time()",
        "asyncio.timeout(3)",
        "asyncio.wait_for(work, 3)",
        "asyncio.wait([work], timeout=3)",
        "from asyncio import sleep",
    ],
)
def test_a_wait_would_be_found(code: str) -> None:
    assert len(waits({"broker/part.py": ast.parse(code)})) == 1


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.sleep(0)",
        "asyncio.wait([work])",
        "self._clock.call_later(3, print)",
        "sleep(clock, 3)",
        "row.time()",
    ],
)
def test_what_is_no_wait_is_not_found(code: str) -> None:
    assert waits({"broker/part.py": ast.parse(code)}) == []
