"""What tests cost: the end of a run names the files that took most of the workers' time.

A file's seconds are those of its tests' set-up, call and tear-down, so that a server that a module shares counts once,
where it starts and where it ends.  Beside them stands the time of the processor that the worker and the processes that
it has waited for took meanwhile: where it is small, the tests wait.  A processor that others use stretches the seconds
and not the processor's.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

import pytest

FILES = 10
WORTH_TELLING_S = 60.0  # of a run whose workers took less, nobody asks


class Cost(NamedTuple):
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def plus(self, other: "Cost") -> "Cost":
        return Cost(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)


class Budget:
    """The plugin: in a worker it notes the processor's time, and where the reports arrive it adds up."""

    def __init__(self, of_servers: Callable[[], float] = lambda: 0.0) -> None:
        """`of_servers` is the time of the processor of those that another process has waited for."""
        self._of_servers = of_servers
        self.costs: defaultdict[str, Cost] = defaultdict(Cost)
        self._seen = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._seen = self._cpu_seconds()  # collecting is no test's

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = self._cpu_seconds()
        report.cpu_seconds = now - self._seen  # type: ignore[attr-defined]  # pytest-xdist carries it over
        self._seen = now
        return report

    def _cpu_seconds(self) -> float:
        spent = os.times()
        own = spent.user + spent.system + spent.children_user + spent.children_system
        return own + self._of_servers()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = Cost(report.duration, getattr(report, "cpu_seconds", 0.0))
        file = report.nodeid.partition("::")[0]
        self.costs[file] = self.costs[file].plus(spent)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        whole = total(self.costs.values())
        if whole.seconds < WORTH_TELLING_S:
            return
        terminalreporter.section(f"the {FILES} files that took most of the workers' time")
        for line in lines(self.costs):
            terminalreporter.write_line(line)


def total(costs: Iterable[Cost]) -> Cost:
    whole = Cost()
    for cost in costs:
        whole = whole.plus(cost)
    return whole


def lines(costs: dict[str, Cost]) -> list[str]:
    """The dearest files and the whole, in seconds of the workers and of the processor."""
    dearest = sorted(costs.items(), key=lambda item: item[1].seconds, reverse=True)[:FILES]
    rows = [*dearest, (f"all {len(costs)} files", total(costs.values()))]
    return [f"{cost.seconds:8.1f} s {cost.cpu_seconds:8.1f} s of processor  {name}" for name, cost in rows]
