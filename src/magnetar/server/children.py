"""Processes that the server starts for itself: their logs, their pauses after a failure, and their ends.

Each leads a process group with all processes that it starts.
"""

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Final

PAUSE_S_MAX: Final = 60.0
CALM_S: Final = 60.0  # after a run that was longer, the next one comes after the shortest pause
_READ_BYTES: Final = 64 << 10


def cut_log(file: Path, bytes_max: int) -> None:
    """If the log is larger than `bytes_max`, its end becomes `<name>.1`, and it begins anew.

    A process that runs goes on to append to it.  What it writes in this moment may be lost.
    """
    with suppress(OSError):  # there is none yet, or the next call has more luck
        size = file.stat().st_size
        if size <= bytes_max:
            return
        with file.open("r+b") as log:
            log.seek(size - bytes_max)
            with suppress(OSError), file.with_name(f"{file.name}.1").open("wb") as kept:
                # No more than that: a process that writes meanwhile must not make it larger for good.
                kept.write(log.read(bytes_max))  # not on a full disk, which needs the room more
            log.truncate(0)


def failures_in_a_row(before: int, ran_s: float) -> int:
    """With the failure of a run of `ran_s` seconds; `before` is the number without it."""
    return 1 if ran_s > CALM_S else before + 1


def pause_after(failures: int, first_s: float) -> float:
    """The seconds before the next start: `first_s` after one failure, twice as long after each further one."""
    return min(first_s * 2.0 ** min(failures - 1, 16), PAUSE_S_MAX)


async def started(spawn: Coroutine[object, object, asyncio.subprocess.Process]) -> asyncio.subprocess.Process:
    """The process that `spawn` starts.  If this is cancelled meanwhile, the process is ended with its group: `spawn`
    itself would end it alone, and leave what it has started.

    Raises:
        OSError: it cannot be started.
    """
    spawning = asyncio.ensure_future(spawn)
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        with suppress(OSError):
            await end(await spawning, 0)
        raise


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
