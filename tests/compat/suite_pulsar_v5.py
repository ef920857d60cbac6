"""Pulsar 5's Java client (`pulsar-client-v5`) on topics that are not scalable: scenarios of ours.

Maven resolves the client that `pulsar-v5/pom.xml` names.  It is not one of the suite `java`, because it brings another
version of the client that is tested there.
"""

from pathlib import Path

import brokers
import scenarios
import suite_java
from outcomes import Outcome
from task import Task

NAME = "pulsar-v5"
SOURCES = Path(__file__).resolve().parent / NAME


def version() -> str:
    return suite_java.pinned(SOURCES)["pulsar-client-v5"]


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    return scenarios.execute(task, f"{NAME} {version()}", prepare, command_of)


def command_of(class_path: Path, addresses: brokers.Addresses) -> list[str]:
    return ["java", "-cp", class_path.read_text(), "V5", addresses.pulsar, addresses.http]


def prepare(work: Path) -> Path:
    """Fetch and compile; returns the file that has the class path."""
    found = suite_java.prepare(work, SOURCES)
    file = work / NAME / "with-classes.txt"
    file.write_text(found)
    return file
