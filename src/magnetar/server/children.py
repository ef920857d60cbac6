"""Processes that the server starts for itself: their logs, their pauses after a failure, and their ends.

Each leads a process group with all processes that it starts.
"""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

PAUSE_S_MAX: Final = 60.0
CALM_S: Final = 60.0  # after a run that was longer, the next one comes after the shortest pause
_READ_BYTES: Final = 64 << 10


def open_log(file: Path, bytes_max: int) -> IO[bytes]:
    """The log of the next process, to append to; a larger one than `bytes_max` becomes `<name>.1`."""
    if file.exists() and file.stat().st_size > bytes_max:
        file.replace(file.with_name(f"{file.name}.1"))
    return file.open("ab")


def failures_in_a_row(before: int, ran_s: float) -> int:
    """With the failure of a run of `ran_s` seconds; `before` is the number without it."""
    return 1 if ran_s > CALM_S else before + 1


def pause_after(failures: int, first_s: float) -> float:
    """The seconds before the next start: `first_s` after one failure, twice as long after each further one."""
    return min(first_s * 2.0 ** min(failures - 1, 16), PAUSE_S_MAX)


async def end(child: asyncio.subprocess.Process, stop_s: float) -> bool:
    """Send SIGTERM, wait for at most `stop_s` seconds, then send SIGKILL to all of its process group.

    Returns whether the process itself ended in time.
    """
    in_time = True
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(stop_s):
                await _drain(child)
                await child.wait()
        except TimeoutError:
            in_time = False
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
    return in_time


async def _drain(child: asyncio.subprocess.Process) -> None:
    """Drop what a process still says until it ends: a full pipe would hold it."""
    while child.stdout is not None and await child.stdout.read(_READ_BYTES):
        pass
