"""Where a server's time goes: Linux `perf` beside a measured run (`--profile`).

It samples the whole process, kernel included, 499 times a second for each busy thread.  The interpreter shows as its C
functions; docs/internals/benchmarks.md says how to see Python's own.  Figures of a profiled run are a few percent low.
"""

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import process
from bench.process import RunFailed

HERTZ = 499
PERCENT_MIN = 0.5
REPORT_SECONDS_MAX = 120.0


def check() -> None:
    """Raises RunFailed where `perf` is missing or may not look at processes."""
    if shutil.which("perf") is None:
        raise RunFailed("--profile needs perf on PATH (Debian: linux-perf)")
    try:
        with tempfile.TemporaryDirectory() as folder:
            process.run(["perf", "record", "-q", "-o", Path(folder) / "data", "true"], seconds_max=30)
    except RunFailed as error:
        raise RunFailed(f"perf may not sample here (see kernel.perf_event_paranoid): {error}") from error


@contextlib.contextmanager
def sampling(pid: int, target: Path) -> Iterator[None]:
    """Samples `pid` for the time of the block, then writes the flat profile to `target` as text."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        recorder = subprocess.Popen(
            ["perf", "record", "-q", "-F", str(HERTZ), "-o", str(data), "-p", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            recorder.send_signal(signal.SIGINT)  # perf writes its file on an interrupt
            recorder.wait()
        command: list[str | Path] = [
            "perf",
            "report",
            "--stdio",
            "-i",
            data,
            "--sort",
            "dso,symbol",
            "--percent-limit",
            str(PERCENT_MIN),
        ]
        target.write_text(process.run(command, seconds_max=REPORT_SECONDS_MAX).output)
