"""What a suite is asked to do: the words after `run.py`, and where things lie."""

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import brokers
from fetch import SetupFailed
from outcomes import Outcome


def names_of(test_ids: Sequence[str]) -> list[str]:
    """The names behind ids, without what they were given."""
    return [test_id.rsplit("::", 1)[-1].split("[")[0] for test_id in test_ids]


@dataclass(frozen=True)
class Task:
    """One suite's share of a run.

    `wanted` are parts of test ids; none means the whole suite.  `allowed` is the allow-list.  `broker` is
    what to start (`magnetar`, `kafka` or `pulsar`) where `bootstrap` names none that already runs.
    """

    work: Path
    logs: Path
    wanted: Sequence[str]
    allowed: Collection[str]
    broker: str
    bootstrap: str | None
    full: bool
    jobs: int
    report: Callable[[Outcome], None]

    @property
    def words(self) -> list[str]:
        """`wanted` without the numbers by which only librdkafka calls its tests."""
        return [word for word in self.wanted if not word.split(":")[-1][:4].isdigit()]

    @property
    def concerns_named_tests(self) -> bool:
        """Whether a suite whose tests have names is asked for anything."""
        return bool(self.words) or not self.wanted

    @property
    def again(self) -> "Task":
        """For a second try, whose logs leave those of the first one alone."""
        logs = self.logs / "again"
        logs.mkdir(exist_ok=True)
        return replace(self, logs=logs)

    def kafka_broker(
        self, profile: brokers.Profile
    ) -> contextlib.AbstractContextManager[brokers.Bootstrap[int]]:
        return brokers.on_demand(lambda nodes: self.start_kafka(profile, nodes, f"server-{nodes}"))

    def start_kafka(
        self, profile: brokers.Profile, nodes: int, name: str
    ) -> contextlib.AbstractContextManager[brokers.Broker] | None:
        """One that is called `name` in the logs; None where it cannot be had."""
        if self.bootstrap:
            return brokers.running(self.bootstrap)
        log = self.logs / f"{name}.log"
        if self.broker == "kafka":
            return brokers.apache_kafka(profile, log) if nodes == 1 else None
        return brokers.magnetar(profile, log, nodes)

    def refuse_bootstrap(self, why: str) -> None:
        """For a suite that must start its broker itself; `SetupFailed` where one was named."""
        if self.bootstrap:
            raise SetupFailed(f"--bootstrap cannot be used: {why}")
