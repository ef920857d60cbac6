"""The worker of a server with pipelines: the process `magnetar worker`, which runs while pipelines are declared.

The server does not load Spark: the child does, and installs it first if it is missing.  The child's log is a file
beside the checkpoints.  The child leads a process group with all processes that it starts, and ends when its standard
input does, so none of them outlives the server, however the server ends.  If the child dies, the server starts it
again, after a longer pause each time.  While a worker from elsewhere runs the pipelines, the server starts none.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.logging import get_logger
from magnetar.base.private import private_folder
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.server import children

log = get_logger(__name__)

FOLDER: Final = "pipelines"
LOG_NAME: Final = "worker.log"
LOG_BYTES_MAX: Final = 16 << 20  # the end of a larger log becomes worker.log.1

LOOK_EVERY_S: Final = 2.0
IDLE_S: Final = 60.0  # so long without pipelines, the worker stops, which frees a gigabyte of memory
STOP_S_MAX: Final = 20.0
_PAUSE_S: Final = 1.0


class PipelineWorker:
    """See the module's text.  `command` starts the worker; `folder` has the worker's files."""

    def __init__(self, pipelines: Pipelines, clock: Clock, command: Sequence[str], folder: Path) -> None:
        self._pipelines = pipelines
        self._clock = clock
        self._command = command
        self._folder = folder
        self._log = folder / LOG_NAME
        self._child: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Start the task that starts and watches the child while there are pipelines; `stop` ends it."""
        self._task = asyncio.get_running_loop().create_task(self._look_after(), name="pipeline worker")
        return self._task

    async def stop(self) -> None:
        """Stop the child, and return when it has ended; its pipelines continue from their checkpoints later."""
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._end_child()

    async def _look_after(self) -> None:
        failures = 0
        while True:
            await self._until(self._is_needed)
            began = self._clock.monotonic()
            try:
                child = await self._spawn()
            except OSError as error:
                log.error("the server cannot start the pipelines' worker", error=error)
            else:
                ended = asyncio.ensure_future(child.wait())
                idle = asyncio.ensure_future(self._until_idle())
                try:
                    await asyncio.wait({ended, idle}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    idle.cancel()
                    ended.cancel()
                code = child.returncode
                await self._end_child()
                if code is None:
                    log.info("the server stops the pipelines' worker: there are no pipelines")
                    continue
                log.warning("the pipelines' worker has ended", code=code, log=self._log)
            failures = children.failures_in_a_row(failures, self._clock.monotonic() - began)
            await asyncio.sleep(children.pause_after(failures, _PAUSE_S))

    def _is_needed(self) -> bool:
        """Whether there are pipelines, and no worker from elsewhere runs them.

        The lease's holder may be an earlier child, which has ended or soon will: the next child takes over from it at
        once.
        """
        holder = self._pipelines.lease.holder
        is_ours = holder is None or holder.place == f"{socket.gethostname()}:{self._folder.resolve()}"
        return is_ours and len(self._pipelines) > 0

    async def _until(self, what: Callable[[], bool]) -> None:
        """Return when `what` is true; check it after each change of pipelines, and every `LOOK_EVERY_S` seconds."""
        while not what():
            await self._pipelines.wait_for_change(LOOK_EVERY_S)

    async def _until_idle(self) -> None:
        """Return when there have been no pipelines for `IDLE_S` seconds; until then keep the log short."""
        since: float | None = None
        while since is None or self._clock.monotonic() - since < IDLE_S:
            if len(self._pipelines):
                since = None
            elif since is None:
                since = self._clock.monotonic()
            await asyncio.to_thread(children.cut_log, self._log, LOG_BYTES_MAX)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _spawn(self) -> asyncio.subprocess.Process:
        private_folder(self._folder)  # libraries log their options, which may be secret
        with self._log.open("ab") as file:
            spawn = asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            self._child = await children.started(spawn)
        log.info("the pipelines' worker starts", pid=self._child.pid, log=self._log)
        return self._child

    async def _end_child(self) -> None:
        child = self._child
        if child is None:
            return
        if not await children.end(child, STOP_S_MAX):
            log.warning("the pipelines' worker did not stop in time: the server has killed it", pid=child.pid)
        self._child = None


def worker_command(server: Sequence[str], data_dir: Path, master: str, memory: str, level: str) -> list[str]:
    """The command line of a server's own worker; `server` are the options by which it reaches the server."""
    return [
        sys.executable,
        "-m",
        "magnetar",
        "worker",
        "--with-parent",
        *server,
        *("--data-dir", str(data_dir)),
        *("--master", master),
        *("--memory", memory),
        *("--log-level", level),
    ]
