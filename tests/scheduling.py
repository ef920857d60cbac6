"""Which tests a worker of pytest-xdist gets next: one computes while the others wait.

A test with a server or a client waits for most of its time, a unit test computes.  When all workers did first the one
and then the other, the processors were half idle for the first part of a run, and had too many to serve in the second.
So the first worker takes its tests from the end of the line, where the unit tests stand, and the others begin at its
front (tests/workers.py puts them in line).  A worker whose own kind is used up goes on with what is left of the other.

pytest-xdist keeps all that a worker has done and looks through it after each test, which for thousands of single tests
takes longer and longer: what is done is forgotten here.  And a worker cannot begin a test before it knows the next one,
so that one whose tests take milliseconds is told of some more.
"""

from functools import cached_property
from typing import Any, Final

import pytest
from xdist.scheduler import LoadGroupScheduling

COMPUTES: Final = "gw0"
_WAITING_AHEAD: Final = 2
_COMPUTING_AHEAD: Final = 10


class Scheduling:
    """The plugin of the process that hands the tests out."""

    @pytest.hookimpl
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> "OneComputes | None":
        return OneComputes(config, log) if config.getvalue("dist") == "loadgroup" else None


class OneComputes(LoadGroupScheduling):  # type: ignore[misc]
    """`--dist loadgroup` with the tests of one kind at each end of the line."""

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        units = self.assigned_work[node]
        nodeid = self.registered_collections[node][item_index]
        name = self._split_scope(nodeid)
        units[name][nodeid] = True
        if all(units[name].values()):
            del units[name]
        self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        ahead = _COMPUTING_AHEAD if _computes(node) else _WAITING_AHEAD
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= ahead:
            if not self.workqueue:
                node.shutdown()
                return
            self._assign_work_unit(node)

    def _assign_work_unit(self, node: Any) -> None:
        name, unit = self.workqueue.popitem(last=_computes(node))
        self.assigned_work[node][name] = unit
        node.send_runtest_some([self._numbers[nodeid] for nodeid, is_done in unit.items() if not is_done])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Where each test is in what all workers have collected."""
        assert self.collection is not None
        return {nodeid: number for number, nodeid in enumerate(self.collection)}


def _computes(node: Any) -> bool:
    return bool(node.gateway.id == COMPUTES)
