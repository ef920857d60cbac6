"""Runs of pytest over tests that are not ours, and their reports (`junit_family=xunit1`) as outcomes."""

import os
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

import fetch
from outcomes import Outcome, Status

DETAIL_MAX = 200


def run(
    what: str,
    command: Sequence[str],
    cwd: Path,
    output: Path,
    seconds_max: float,
    *,
    environment: Mapping[str, str] | None = None,
    setup_failed: int | None = None,
) -> list[Outcome]:
    """Run `command`, which ends in pytest's arguments, with its output in `output` and the report beside it.

    The exit code says nothing of the tests: a client may abort while the interpreter ends, after the last one.  Only
    `setup_failed` means something: pytest could not be started, and the last line says why.

    Raises:
        SetupFailed: that, or the run took too long, or left no report.
    """
    results = output.with_suffix(".xml")
    results.unlink(missing_ok=True)
    with output.open("wb") as text:
        try:
            done = subprocess.run(
                [*command, f"--junitxml={results}", "-o", "junit_family=xunit1", "-p", "no:cacheprovider"],
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=text,
                stderr=subprocess.STDOUT,
                timeout=seconds_max,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise fetch.SetupFailed(f"{what} took longer than {seconds_max:g} s") from None
    if setup_failed is not None and done.returncode == setup_failed:
        raise fetch.SetupFailed(output.read_text(errors="replace").strip().splitlines()[-1])
    if not results.exists():
        raise fetch.SetupFailed(f"{what} left no results: see {output}")
    return read(results)


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
