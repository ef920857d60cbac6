"""A loop that awaits a shared future again and again says why it cannot run for ever without giving up its turn.

To await a future that is done takes no turn of the event loop.  If the loop asks for a state that a callback of that
future changes, and the callback has not run yet, then the loop awaits the same done future for ever, and the callback
never runs: the whole process hangs.  `asyncio.shield` is how a task waits for a future that others wait for, too, so
each such wait in a `while` loop is in `REASONS`: the state that the loop asks for has to change in the step in which
the future is done.  A coroutine that awaits only shielded futures counts as such a wait where a loop calls it.
"""

import ast
from collections.abc import Iterator

import pytest

from .source_trees import Trees, nodes, sources

REASONS = {
    "broker/groups/consumer/coordinator.py: _heartbeat_later": "Background._stored: `publish` notes them in that step",
    "broker/groups/share/coordinator.py: _heartbeat_later": "as for consumer groups",
    "broker/groups/streams/coordinator.py: _heartbeat_later": "as for consumer groups; the topology is set before",
    "broker/interop/interop.py: _formed": "Interop._convert takes the future out of `pending` in that step",
    "broker/upkeep/deduplication_learner.py: learn": "`_read` takes the attempt out in that step; the next is new",
    "broker/transactions/pulsar_coordinator.py: _end": "it ends when `_forget` returns, and sleeps where that fails",
}


def within(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node` that run when it runs: not those of functions that are defined there."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from within(child)


def is_shield(node: ast.Await) -> bool:
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "asyncio.shield"


def called(node: ast.Await) -> str:
    """The last name of what is called and awaited."""
    return ast.unparse(node.value.func).rpartition(".")[2] if isinstance(node.value, ast.Call) else ""


def coroutines(trees: Trees) -> list[tuple[str, ast.AsyncFunctionDef]]:
    return [(module, node) for module, node in nodes(trees) if isinstance(node, ast.AsyncFunctionDef)]


def waits_in_loops(trees: Trees) -> set[str]:
    functions = coroutines(trees)
    shielding = set()
    for _, function in functions:
        awaits = [node for node in within(function) if isinstance(node, ast.Await)]
        if awaits and all(map(is_shield, awaits)):
            shielding.add(function.name)
    return {
        f"{module}: {function.name}"
        for module, function in functions
        for loop in within(function)
        if isinstance(loop, ast.While)
        for node in within(loop)
        if isinstance(node, ast.Await) and (is_shield(node) or called(node) in shielding)
    }


def test_each_wait_for_a_shared_future_in_a_loop_has_its_reason() -> None:
    assert waits_in_loops(sources()) == set(REASONS)


@pytest.mark.parametrize(
    "wait", ["asyncio.shield(self._stored(group))", "self._background.may_bump(group)", "may_bump(group)"]
)
def test_a_wait_in_a_loop_would_be_found(wait: str) -> None:
    code = f"""
async def may_bump(group):
    try:
        await asyncio.shield(_stored(group))
    except MetadataError:
        return False
    return True

async def heartbeat(group):
    while not group.can_bump:
        await {wait}
"""
    assert waits_in_loops({"groups.py": ast.parse(code)}) == {"groups.py: heartbeat"}


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.shield(work)",
        "while work:\n        await asyncio.wait([work])",
        "while work:\n        await step()",
    ],
)
def test_other_waits_are_not_found(body: str) -> None:
    code = f"async def step():\n    await sleep(clock, 1)\n\nasync def run(work):\n    {body}\n"
    assert waits_in_loops({"part.py": ast.parse(code)}) == set()
