"""The scorecard: what each outside suite said of Magnetar at its last whole run, and why anything failed.

A whole run of a suite writes `<suite>/score.json`: its version, how many tests passed, and each test that failed or was
skipped, with the reason.  The reason of a failure is a line of `<suite>/known.txt`, `test id | reason`, which people
write; that of a skip comes with the skip, unless a line says it better.  `docs/compatibility.md` is made of these files
and of nothing else, so it is the same on every machine.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from outcomes import Outcome, Status

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "compatibility.md"
NO_REASON = "no reason is written down"

_HEAD = """\
# Compatibility

The outside suites that run against Magnetar: tests that other people wrote for Apache Kafka and Apache Pulsar, and
scenarios of ours with clients that other people wrote. `make compat` runs them and writes this page anew; how, and what
Apache Kafka and Apache Pulsar score under the same runner, is in
[tests/compat/README.md](../tests/compat/README.md).

| suite | version | passed | failed | skipped |
|---|---|---|---|---|
"""
_TAIL = """
A listed test that fails breaks `make compat`: the allow-lists `tests/compat/<suite>/allow.txt` only grow. Some tests
are skipped where a tool is missing; this page shows the last run that was committed.
"""


@dataclass(frozen=True)
class Score:
    """`failed` and `skipped`: reasons by test id."""

    suite: str
    version: str
    passed: int
    failed: Mapping[str, str]
    skipped: Mapping[str, str]


def read_known(path: Path) -> dict[str, str]:
    """Why tests do not pass that are known not to: `test id | reason` by lines.  ValueError for a line without both."""
    known: dict[str, str] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if not line.strip() or line.startswith("#"):
            continue
        test_id, _, reason = (part.strip() for part in line.partition("|"))
        if not test_id or not reason or test_id in known:
            raise ValueError(f"{path.name}: not one test and one reason: {line}")
        known[test_id] = reason
    return known


def score_of(suite: str, version: str, outcomes: Iterable[Outcome], known: Mapping[str, str]) -> Score:
    by_id = {outcome.test_id: outcome for outcome in sorted(outcomes, key=lambda one: one.test_id)}
    failed = [one.test_id for one in by_id.values() if one.status is Status.FAILED]
    return Score(
        suite,
        version,
        sum(one.status is Status.PASSED for one in by_id.values()),
        {test_id: known.get(test_id, NO_REASON) for test_id in failed},
        {
            one.test_id: known.get(one.test_id, one.detail)
            for one in by_id.values()
            if one.status is Status.SKIPPED
        },
    )


def write(score: Score, folder: Path = HERE) -> None:
    text = json.dumps(asdict(score), indent=1, ensure_ascii=False)
    (folder / score.suite / "score.json").write_text(text + "\n")


def read_all(folder: Path = HERE) -> list[Score]:
    return [Score(**json.loads(path.read_text())) for path in sorted(folder.glob("*/score.json"))]


def page(scores: Iterable[Score]) -> str:
    scores = list(scores)
    parts = [_HEAD]
    parts += [
        f"| {one.suite} | {one.version} | {one.passed} | {len(one.failed)} | {len(one.skipped)} |\n"
        for one in scores
    ]
    for one in scores:
        if one.failed or one.skipped:
            parts.append(f"\n## {one.suite} {one.version}\n\n| test | | why |\n|---|---|---|\n")
            parts += _rows("failed", one.failed)
            parts += _rows("skipped", one.skipped)
    return "".join(parts) + _TAIL


def _rows(what: str, reasons: Mapping[str, str]) -> list[str]:
    return [f"| `{test_id}` | {what} | {reason.replace('|', '/')} |\n" for test_id, reason in reasons.items()]


if __name__ == "__main__":
    PAGE.write_text(page(read_all()))
