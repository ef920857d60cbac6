"""Workers of pytest-xdist do not make the same things: what a module's tests share, and what pytest compiles.

pytest-xdist hands out single tests, so that a server that is started once for a module was started by each of three
workers, and stopped three times.  Tests that use something that is made for their module run in one worker, as a group.

Tests stand in a line from which tests/scheduling.py takes them at both ends: what waits for servers in front, the slow
and the large groups first, and unit tests behind, of which thousands of single ones fill what is left at the end.
Where whole files are handed out, those with slow tests come first, so that none of them is left alone at the end.

pytest gives each test module other assertions and keeps what it has compiled beside the module.  That takes two thirds
of collecting a fresh checkout, as CI does: and all workers collect all modules, in the same order, at the same time.
So each begins with modules of its own, and finds the others' compiled.

Collecting makes millions of objects that all stay.  To walk them again and again was a third of it: meanwhile Python's
cycle collector stands still, and afterwards it never looks at them.
"""

import contextlib
import gc
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Final

import pytest
from _pytest.nodeid import NodeId
from _pytest.pathlib import ImportMode, import_path

from tests.excluded import Excluded

_COMPUTING: Final = "tests/unit/"


class Workers:
    """The plugin of a worker."""

    def __init__(self, excluded: Excluded) -> None:
        self._excluded = excluded

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        gc.disable()
        try:
            self._import_modules(session.config)
            return (yield)
        finally:
            gc.freeze()
            gc.enable()

    def _import_modules(self, config: pytest.Config) -> None:
        worker = config.workerinput  # type: ignore[attr-defined]  # pytest-xdist's
        number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        paths = [path for path in modules(config) if not self._excluded.has(path)]
        for path in paths[number % count :: count]:
            with contextlib.suppress(Exception):  # collecting meets it again, and tells
                import_path(
                    path, mode=ImportMode.prepend, root=config.rootpath, consider_namespace_packages=False
                )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = in_line(items)
        for item in items:
            # pytest-xdist looks for a group behind an id's last @, and writes it where pytest 9.2 does not read.
            if (name := group(item)) and not item.nodeid.endswith(f"@{name}"):
                item._id = NodeId.parse(f"{item.nodeid}@{name}")


def modules(config: pytest.Config) -> list[Path]:
    """Those of the folders that are asked for, in one order."""
    folders = [config.invocation_params.dir / name for name in config.args]
    return sorted({path for folder in folders for path in folder.rglob("test_*.py")})


def in_line(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """What waits in front, what computes behind; the order of what is alike stays.

    Within a unit the files with slow tests come first: `--dist loadfile` hands out the files of one that has them all.
    """
    items = list(items)
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    units: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.path not in slow_files):
        units[group(item) or item.nodeid].append(item)

    def place(unit: list[pytest.Item]) -> tuple[bool, bool, int]:
        if all(map(computes, unit)):
            return True, False, 0
        return False, not any(item.get_closest_marker("slow") for item in unit), -len(unit)

    return [item for unit in sorted(units.values(), key=place) for item in unit]


def computes(item: pytest.Item) -> bool:
    """Unit tests start no servers, but for a few, which are marked as slow."""
    return item.nodeid.startswith(_COMPUTING) and not item.get_closest_marker("slow")


def group(item: pytest.Item) -> str | None:
    """The one that it is marked for, or its module where it uses a fixture that is made once for that."""
    if marker := item.get_closest_marker("xdist_group"):
        return str(marker.args[0])
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    # Those of plugins have no `baseid`.
    shares = any(one.scope == "module" and one.baseid for found in fixtures for one in found)
    return item.path.stem if shares else None
