"""Workers of pytest-xdist do not make the same things: what a module's tests share, and what pytest compiles.

pytest-xdist hands out single tests, so that a server that is started once for a module was started by each of three
workers, and stopped three times.  Tests that use something that is made for their module run in one worker; groups go
first, the largest in front, and thousands of single tests fill what is left at the end.

pytest gives each test module other assertions and keeps what it has compiled beside the module.  That takes two thirds
of collecting a fresh checkout, as CI does: and all workers collect all modules, in the same order, at the same time.
So each begins with modules of its own, and finds the others' compiled.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.nodeid import NodeId
from _pytest.pathlib import ImportMode, import_path


class Workers:
    """The plugin of a worker."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        config = session.config
        worker = config.workerinput  # type: ignore[attr-defined]  # pytest-xdist's
        number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        for path in modules(config)[number % count :: count]:
            with contextlib.suppress(Exception):  # collecting meets it again, and tells
                import_path(
                    path, mode=ImportMode.prepend, root=config.rootpath, consider_namespace_packages=False
                )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: Iterable[pytest.Item]) -> None:
        for item in items:
            # pytest-xdist looks for a group behind an id's last @, and writes it where pytest 9.2 does not read.
            if (name := group(item)) and not item.nodeid.endswith(f"@{name}"):
                item._id = NodeId.parse(f"{item.nodeid}@{name}")


def modules(config: pytest.Config) -> list[Path]:
    """Those of the folders that are asked for, in one order."""
    folders = [config.invocation_params.dir / name for name in config.args]
    return sorted({path for folder in folders for path in folder.rglob("test_*.py")})


def group(item: pytest.Item) -> str | None:
    """The one that it is marked for, or its module where it uses a fixture that is made once for that."""
    if marker := item.get_closest_marker("xdist_group"):
        return str(marker.args[0])
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    # Those of plugins have no `baseid`.
    shares = any(one.scope == "module" and one.baseid for found in fixtures for one in found)
    return item.path.stem if shares else None
