"""Whether a server can do its work: what each of its parts says of itself, and what only a look at the machine says.

A part has a property `problem`: one sentence for the operator, None for nothing.  Here they have names, and `checks`
asks all of them; a part more is a line more in `server/standalone.py`.  Nothing here waits for a disk on the event
loop: what has to be tried out (a write of metadata, space, open files) is a *probe*, which runs beside it, no more
often than every `PROBE_EVERY_S` and only when a client asks.  The client waits for it for a moment; when the probe
takes longer they get what the last one found, and when it takes far too long, that is what is wrong.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError
from magnetar.metadata.store import MetadataStore

log = logging.getLogger(__name__)

PROBE_EVERY_S: Final = 5.0
PROBE_S_MAX: Final = 5.0  # a probe that takes longer than this hangs
PATIENCE_S: Final = 0.05  # a client is answered within 100 ms
FILES_SHARE_MAX: Final = 0.95
_FILES: Final = Path("/proc/self/fd")
_PROBE_PATH: Final = "/health"

Problem = Callable[[], str | None]


class Probe:
    """Something to be tried out.  `attempt` returns what is wrong, or None; it may raise BrokerError or OSError."""

    def __init__(self, clock: Clock, what: str, attempt: Callable[[], Awaitable[str | None]]) -> None:
        self._clock = clock
        self._what = what
        self._attempt = attempt
        self._task: asyncio.Task[None] | None = None
        self._began_s: float | None = None
        self._found: str | None = None

    async def refresh(self) -> None:
        """Try again if the last time is long ago, and wait a moment for that."""
        now_s = self._clock.monotonic()
        if self._task is None and (self._began_s is None or now_s - self._began_s >= PROBE_EVERY_S):
            self._began_s = now_s
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"probe: {self._what}")
        if self._task is not None:
            await asyncio.wait([self._task], timeout=PATIENCE_S)

    @property
    def problem(self) -> str | None:
        if self._task is not None and self._began_s is not None:
            taken_s = self._clock.monotonic() - self._began_s
            if taken_s > PROBE_S_MAX:
                return f"{self._what} has not been answered for {taken_s:.0f} s: see to the disk"
        return self._found

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            self._found = await self._attempt()
        except (BrokerError, OSError) as error:
            self._found = f"{self._what} fails: {error}"
        finally:
            self._task = None


class Health:
    """See the module's text."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._problems: dict[str, Problem] = {}
        self._notes: dict[str, Problem] = {}
        self._probes: list[Probe] = []
        self._said: dict[str, str | None] = {}

    def register(self, name: str, problem: Problem) -> None:
        """A part without which the server cannot do its work, while `problem()` is not None."""
        self._problems[name] = problem

    def note(self, name: str, problem: Problem) -> None:
        """A part that an operator should see to while the server works: the server stays ready for its clients."""
        self._notes[name] = problem

    def probe(self, name: str, what: str, attempt: Callable[[], Awaitable[str | None]]) -> None:
        """As `register`, for what has to be tried out; `what` is the beginning of a sentence about it."""
        probe = Probe(self._clock, what, attempt)
        self._probes.append(probe)
        self.register(name, lambda: probe.problem)

    async def checks(self) -> dict[str, str | None]:
        """All parts by name, and what is wrong with each; said in the log when it changes."""
        await asyncio.gather(*(probe.refresh() for probe in self._probes))
        found = {name: problem() for name, problem in self._problems.items()}
        for name, problem in found.items():
            before = self._said.get(name)
            if (problem is None) != (before is None):
                if problem is None:
                    log.info("health: %s works again", name)
                else:
                    log.warning("health: %s: %s", name, problem)
        self._said = found
        return found

    def notes(self) -> dict[str, str]:
        """What else there is to say, by name."""
        return {name: said for name, note in self._notes.items() if (said := note()) is not None}

    async def close(self) -> None:
        """Try nothing any more."""
        for probe in self._probes:
            await probe.close()


def metadata_probe(metadata: MetadataStore) -> Callable[[], Awaitable[str | None]]:
    """Whether metadata can be written: a topic, a group's offset, a policy are such writes."""

    async def attempt() -> str | None:
        await metadata.put(_PROBE_PATH, b"")
        return None

    return attempt


def space_probe(folder: Path, free_bytes_min: int) -> Callable[[], Awaitable[str | None]]:
    """Whether there is room on the disk of a folder."""

    def look() -> str | None:
        stat = os.statvfs(folder)
        free_bytes = stat.f_bavail * stat.f_frsize
        if free_bytes >= free_bytes_min:
            return None
        return (
            f"{free_bytes} bytes are free on the disk of {folder}, less than {free_bytes_min}: make room, or set"
            " health.disk.free.min.bytes"
        )

    async def attempt() -> str | None:
        return await asyncio.to_thread(look)

    return attempt


def files_probe(files_max: int) -> Callable[[], Awaitable[str | None]]:
    """Whether this process may still open files: segments and connections share the limit."""

    def look() -> str | None:
        open_files = len(os.listdir(_FILES)) if _FILES.exists() else 0
        if open_files <= files_max * FILES_SHARE_MAX:
            return None
        return (
            f"{open_files} of {files_max} files are open: segments cannot be opened soon; lower max.connections, or"
            " raise the limit of open files (LimitNOFILE)"
        )

    async def attempt() -> str | None:
        return await asyncio.to_thread(look)

    return attempt
