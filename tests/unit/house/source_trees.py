"""Magnetar's own modules as syntax trees, for tests that hold a rule of the house."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import magnetar

Trees = Mapping[str, ast.Module]  # by path inside of the package

# The packages of which a server is made.
SERVER = ("admin/", "base/", "broker/", "ledger/", "metadata/", "protocols/", "server/", "storage/", "wire/")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_ROOT = Path(magnetar.__file__).parent
_GENERATED = ("wire/kafka/messages/", "_pb2.py")


@cache
def sources() -> Trees:
    """All that is written by hand."""
    paths = {str(path.relative_to(_ROOT)): path for path in sorted(_ROOT.rglob("*.py"))}
    return {
        name: ast.parse(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if not any(part in name for part in _GENERATED)
    }


def nodes(trees: Trees, places: tuple[str, ...] = ("",)) -> Iterator[tuple[str, ast.AST]]:
    """All nodes of the modules whose paths begin with one of `places`, each with its module."""
    for module, tree in trees.items():
        if module.startswith(places):
            for node in ast.walk(tree):
                yield module, node


def classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    """All classes in it, at any depth."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
