"""Magnetar's own modules as syntax trees, for tests that hold a rule of the house."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import magnetar

Trees = Mapping[str, ast.Module]  # by path inside of the package

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
