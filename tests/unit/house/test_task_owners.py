"""Code that begins a task in the server keeps it: the event loop does not, and no other code hears of its failure.

One task has an attribute.  An owner of many is a `Tasks` (`base/tasks.py`), and no part keeps a set in its own way.
"""

import ast
from collections.abc import Iterator

import pytest

from .source_trees import FUNCTIONS, Trees, sources

pytestmark = pytest.mark.xdist_group("sources")

SERVER = ("admin/", "base/", "broker/", "ledger/", "metadata/", "protocols/", "server/", "storage/")
OWNER = "base/tasks.py"


def begins_task(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (
        (isinstance(node.func, ast.Attribute) and node.func.attr in ("create_task", "ensure_future"))
        or (isinstance(node.func, ast.Name) and node.func.id in ("create_task", "ensure_future"))
    )


def is_kept(name: str, function: ast.AST) -> bool:
    """Whether a local task is used for more than a call of one of its own methods."""
    own = {
        id(node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return any(
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Load)
        and id(node) not in own
        for node in ast.walk(function)
    )


def without_inner(function: ast.AST) -> Iterator[ast.AST]:
    """What a function does itself."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, FUNCTIONS):
            yield child
            yield from without_inner(child)


def lost(trees: Trees) -> list[str]:
    """Where a task is begun and not kept."""
    found = []
    for module, tree in trees.items():
        if not module.startswith(SERVER):
            continue
        for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
            for node in without_inner(function):
                match node:
                    case ast.Expr(value=value) if begins_task(value):
                        found.append(f"{module}: {ast.unparse(node)}")
                    case ast.Assign(targets=[ast.Name(id=name)], value=value) if begins_task(value):
                        if not is_kept(name, function):
                            found.append(f"{module}: {ast.unparse(node)}")
    return found


def collected(trees: Trees) -> list[str]:
    """Where tasks that are begun are put into a collection."""
    found = []
    for module, tree in trees.items():
        if not module.startswith(SERVER) or module == OWNER:
            continue
        for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
            begun = set()
            for node in without_inner(function):
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value) if begins_task(value):
                        begun.add(name)
                    case ast.Call(func=ast.Attribute(attr="add" | "append"), args=[put]) if (
                        isinstance(put, ast.Name) and put.id in begun
                    ) or begins_task(put):
                        found.append(f"{module}: {ast.unparse(node)}")
    return found


def test_no_task_is_lost() -> None:
    assert lost(sources()) == []


def test_whoever_has_many_tasks_keeps_them_in_one_way() -> None:
    assert collected(sources()) == []


def server(body: str) -> Trees:
    return {"broker/part.py": ast.parse(f"def work(self, loop):\n    {body}")}


def in_server(body: str) -> list[str]:
    return lost(server(body))


def test_a_collection_of_tasks_would_be_found() -> None:
    for body in ("task = loop.create_task(go()); self.tasks.add(task)", "all.append(create_task(go()))"):
        assert len(collected(server(body))) == 1
    assert collected(server("self.task = loop.create_task(go()); names.add(name)")) == []


def test_a_lost_task_would_be_found() -> None:
    assert in_server("loop.create_task(go())") == ["broker/part.py: loop.create_task(go())"]
    assert in_server("task = asyncio.ensure_future(go()); task.add_done_callback(done)") == [
        "broker/part.py: task = asyncio.ensure_future(go())"
    ]


def test_a_task_that_is_kept_is_not_found() -> None:
    assert in_server("self.task = loop.create_task(go())") == []
    assert in_server("task = loop.create_task(go()); self.tasks.add(task)") == []
    assert in_server("return loop.create_task(go())") == []
