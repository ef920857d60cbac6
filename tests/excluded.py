"""A module is not imported if `-m` excludes all of its tests: those that start Spark bring pandas, pyarrow and pyspark.

All workers of pytest-xdist collect all modules, so that what is imported for nothing is imported by each of them.
Pytest itself looks at markers after the import, and leaves the tests out then.

A marker that `-m` wants is looked for in the module's text, and so only one that no test gets from elsewhere: modules
share lists of markers that have `slow`, and no module a list that has `spark` or `peers`.
"""

import re
from pathlib import Path
from typing import Final

import pytest

_MARKERS: Final = re.compile(r"^pytestmark = (?:\[\n(?: .*\n)*\]|.*)$", re.MULTILINE)
_MARKER: Final = re.compile(r"\bpytest\.mark\.(\w+)")
WRITTEN_OUT: Final = frozenset({"spark", "peers"})


class Excluded:
    """The plugin.  `expression` is what `-m` says."""

    def __init__(self, expression: str) -> None:
        self._markers = excluded(expression)
        self._wanted = wanted(expression)

    @pytest.hookimpl
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if self.has(collection_path) else None  # None leaves it to pytest

    def has(self, path: Path) -> bool:
        """Whether it is a module of which no test can run."""
        if not (self._markers or self._wanted) or not path.match("test_*.py"):
            return False
        source = path.read_text(encoding="utf-8")
        is_wanted = all(f"pytest.mark.{marker}" in source for marker in self._wanted)
        return not is_wanted or not self._markers.isdisjoint(markers(source))


def excluded(expression: str) -> frozenset[str]:
    """The markers with which no test fulfils the expression; none where that takes more than `not` and `and`."""
    return frozenset(
        part.removeprefix("not ").strip() for part in _parts(expression) if part.startswith("not ")
    )


def wanted(expression: str) -> frozenset[str]:
    """Those of `WRITTEN_OUT` without which no test fulfils it; none where that takes more than `not` and `and`."""
    return WRITTEN_OUT.intersection(_parts(expression))


def _parts(expression: str) -> list[str]:
    if re.search(r"\bor\b|[()]", expression):
        return []
    return [part.strip() for part in expression.split(" and ")]


def markers(source: str) -> frozenset[str]:
    """Those that all tests of a module have."""
    found = _MARKERS.search(source)
    return frozenset(_MARKER.findall(found[0]) if found is not None else ())
