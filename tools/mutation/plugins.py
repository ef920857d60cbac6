"""What a run of pytest tells about itself, in the process that it runs in."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

FAILED: Final = 1
NO_TEST: Final = -1


class Lessons:
    """Learns of each test how long it takes, which lines it runs, and whether it starts processes.

    The lines that threads run belong to the test that was on then.  What only the imports ran has no test.
    """

    def __init__(self, files: list[str]) -> None:
        self._lines: dict[str, dict[int, set[str]]] = {file: {} for file in files}
        self._seconds: dict[str, float] = {}
        self._parents: set[str] = set()
        self._now = ""
        self._failed: list[str] = []

    def start(self) -> None:
        """From now on every line of the files is noted, and every process that is started."""
        for owner, name in ((subprocess.Popen, "__init__"), (os, "fork"), (os, "posix_spawn")):
            setattr(owner, name, self._noting(getattr(owner, name)))
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def write(self, path: Path) -> None:
        sys.settrace(None)
        numbers = {test: number for number, test in enumerate(self._seconds)}
        lines = {
            file: {
                line: sorted(numbers.get(test, NO_TEST) for test in tests) for line, tests in by_line.items()
            }
            for file, by_line in self._lines.items()
        }
        modules = [name for name, module in sys.modules.items() if _is_installed(module)]
        path.write_text(
            json.dumps(
                {
                    "seconds": self._seconds,
                    "parents": sorted(self._parents),
                    "failed": self._failed,
                    "modules": modules,
                    "lines": lines,
                }
            )
        )

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        by_line = self._lines.get(frame.f_code.co_filename)
        if by_line is None:
            return None

        def on_line(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                by_line.setdefault(frame.f_lineno, set()).add(self._now)
            return on_line

        return on_line

    def _noting(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            self._parents.add(self._now)
            return start(*arguments, **options)

        return noted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._now = item.nodeid
        began = time.monotonic()
        result = yield
        self._seconds[item.nodeid] = time.monotonic() - began
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)


class Chosen:
    """Runs these tests in this order, tells `pipe` the number of each before it, and ends all with the first failure.

    How it fails does not matter: no report is made, nothing is torn down.
    """

    def __init__(self, tests: list[str], pipe: int) -> None:
        self._places = {test: number for number, test in enumerate(tests)}
        self._pipe = pipe

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        os.write(self._pipe, self._places[nodeid].to_bytes(4, "big"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(FAILED)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            os._exit(FAILED)


def _is_installed(module: Any) -> bool:
    file = getattr(module, "__file__", None) or ""
    return "site-packages" in file or file.startswith(os.path.dirname(threading.__file__))
