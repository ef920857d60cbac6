"""What holds for every test."""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from magnetar.testing.server import MagnetarProcess
from tests.budget import Budget
from tests.excluded import Excluded
from tests.scheduling import Scheduling
from tests.warm_starts import WarmStarts
from tests.workers import Workers

# How long one example takes says nothing on a machine that does other things too; pytest-timeout ends what hangs.
# All else stays as it is: random here, the same examples each time where CI is set.
# A property that says no number of its own is tried with 50 here, with 2,000 by `make soak`, and with ten by `make
# cover`, where each takes several times as long and the same lines are reached.
settings.register_profile(
    "magnetar",
    parent=settings(),
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("soak", parent=settings.get_profile("magnetar"), max_examples=2000)
settings.register_profile("cover", parent=settings.get_profile("magnetar"), max_examples=10, derandomize=True)
settings.load_profile("magnetar")

# A JVM of a test lives for seconds, in which its second compiler costs more than it gives: without it Spark's tests
# take two fifths less of the processor, and so does a call of pulsar-admin.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that runs in a test's own process sets logging up for the whole of it."""
    root, ours = logging.getLogger(), logging.getLogger("magnetar")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)


def pytest_configure(config: pytest.Config) -> None:
    starts = MagnetarProcess.starts = WarmStarts()
    config.add_cleanup(starts.close)
    config.pluginmanager.register(Budget(lambda: starts.cpu_seconds), "budget")
    excluded = Excluded(config.option.markexpr)
    config.pluginmanager.register(excluded, "excluded")
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Workers(excluded), "workers")
    else:
        config.pluginmanager.register(Scheduling(), "scheduling")
