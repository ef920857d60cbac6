"""pytest's report of a run (`--junitxml`, `junit_family=xunit1`) as outcomes."""

import xml.etree.ElementTree as ET
from pathlib import Path

from outcomes import Outcome, Status

DETAIL_MAX = 200


def read(results: Path) -> list[Outcome]:
    """One outcome for each test: id `file::Class::name`, or `file::name` outside of a class."""
    return [outcome_of(case) for case in ET.parse(results).getroot().iter("testcase")]


def outcome_of(case: ET.Element) -> Outcome:
    where = case.get("classname", "").split(".")
    test_id = "::".join([*where, case.get("name", "")])
    seconds = float(case.get("time", "0"))
    for kind, status in (("failure", Status.FAILED), ("error", Status.FAILED), ("skipped", Status.SKIPPED)):
        if (found := case.find(kind)) is not None:
            lines = found.get("message", "").strip().splitlines() or ["no message"]
            return Outcome(test_id, status, seconds, lines[0][:DETAIL_MAX])
    return Outcome(test_id, Status.PASSED, seconds)
