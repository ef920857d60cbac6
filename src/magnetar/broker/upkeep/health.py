"""Whether a server can do its work: each part reports its problems, and probes of the machine find the others.

A part has a property `problem`: one sentence for the operator, or None.  Here the parts have names, and `checks` asks
all of them; `broker.py` and `server/standalone.py` register each part with one line.  Nothing here waits for a disk on
the event loop.  A check that needs an attempt (a write of metadata, space, open files) is a *probe*.  It runs in the
background, at most once in `PROBE_EVERY_S`, and only when a client asks.  The client waits a moment for it.  If the
probe takes longer, the client gets the result of the last one; if it takes far too long, that is reported as the
problem.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock, wait_at_most
from magnetar.base.errors import BrokerError
from magnetar.metadata.store import MetadataStore

log = logging.getLogger(__name__)

PROBE_EVERY_S: Final = 5.0
PROBE_S_MAX: Final = 5.0  # a probe that takes longer than this counts as hanging
PATIENCE_S: Final = 0.025  # so that a client is answered within 100 ms, also by a busy server
FILES_SHARE_MAX: Final = 0.95
_FILES: Final = Path("/proc/self/fd")
_PROBE_PATH: Final = "/health"

Problem = Callable[[], str | None]


class Probe:
    """A check that needs an attempt.  `attempt` returns what is wrong, or None; it may raise BrokerError or OSError."""

    def __init__(self, clock: Clock, what: str, attempt: Callable[[], Awaitable[str | None]]) -> None:
        self._clock = clock
        self._what = what
        self._attempt = attempt
        self._task: asyncio.Task[None] | None = None
        self._began_s: float | None = None
        self._found: str | None = None

    async def refresh(self) -> None:
        """Make an attempt if the last one is long ago, and wait a moment for it."""
        now_s = self._clock.monotonic()
        if self._task is None and (self._began_s is None or now_s - self._began_s >= PROBE_EVERY_S):
            self._began_s = now_s
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"probe: {self._what}")
        if self._task is not None:
            await wait_at_most(self._clock, PATIENCE_S, self._task)

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
        """Add a part that the server needs: while `problem()` is not None, the server cannot do its work."""
        self._problems[name] = problem

    def note(self, name: str, problem: Problem) -> None:
        """Add a part whose problem an operator should look at, while the server stays ready for its clients."""
        self._notes[name] = problem

    def probe(self, name: str, what: str, attempt: Callable[[], Awaitable[str | None]]) -> None:
        """As `register`, for a check that needs an attempt; `what` is the beginning of a sentence about it."""
        probe = Probe(self._clock, what, attempt)
        self._probes.append(probe)
        self.register(name, lambda: probe.problem)

    async def checks(self) -> dict[str, str | None]:
        """All parts by name, and what is wrong with each; a change is logged."""
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
        """The problems of the parts added by `note`, by name."""
        return {name: said for name, note in self._notes.items() if (said := note()) is not None}

    async def close(self) -> None:
        """End all probes."""
        for probe in self._probes:
            await probe.close()


def metadata_probe(metadata: MetadataStore) -> Callable[[], Awaitable[str | None]]:
    """A probe that writes metadata, because topics, groups' offsets and policies need such writes."""

    async def attempt() -> str | None:
        await metadata.put(_PROBE_PATH, b"")
        return None

    return attempt


def space_probe(folder: Path, free_bytes_min: int) -> Callable[[], Awaitable[str | None]]:
    """A probe of the free space on the disk of a folder."""

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
    """A probe whether this process may still open files; segments and connections share that limit."""

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
