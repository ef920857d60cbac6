"""Programs of scenarios in other languages: one line for each, `PASSED|FAILED name seconds text`."""

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from outcomes import Outcome, Status

DETAIL_MAX = 200


def run(
    command: Sequence[str], cwd: Path, log: Path, timeout_s: float, report: Callable[[Outcome], None]
) -> list[Outcome]:
    """Run the program to its end, or end it after `timeout_s`; what it never reached has no outcome.

    What it wrote to standard error is left in `log`.
    """
    outcomes: list[Outcome] = []
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        late = threading.Timer(timeout_s, process.kill)
        late.start()
        try:
            for line in process.stdout:
                if (outcome := outcome_of(line)) is not None:
                    outcomes.append(outcome)
                    report(outcome)
        except BaseException:
            process.kill()
            raise
        finally:
            late.cancel()
    return outcomes


def outcome_of(line: str) -> Outcome | None:
    """None for a line of any other form."""
    words = line.rstrip("\n").split(" ", 3)
    if words[0] not in ("PASSED", "FAILED") or len(words) != 4:
        return None
    status = Status.PASSED if words[0] == "PASSED" else Status.FAILED
    return Outcome(f"scenario::{words[1]}", status, float(words[2]), words[3][:DETAIL_MAX])
