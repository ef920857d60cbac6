"""The processes of functions: the server starts one for each instance that shall run, reads its reports, and ends it.

An instance gets its orders on its standard input (`functions/channel.py`) with a token of its own, and says on its
standard output what it does.  A user's code may have written what it says, so the server limits the length and the
number of lines, checks them, and ends an instance that says anything else.  An instance leads a process group, and ends
when its standard input does, so none outlives the server, however the server ends.  If an instance ends by itself, the
server starts another one in its place, after a longer pause each time.

An instance knows nothing of the server's environment, and has a folder of its own, `functions/<id>-<instance>`, with
its code and its log.  The folder goes when its function is deleted.  Of the server's files it can open its own code
alone, if the kernel has Landlock (`functions/confinement.py`).  The server follows no link that an instance has made:
what an instance can write to is in `work`, which is new for each process.
"""

import asyncio
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from magnetar.base import landlock
from magnetar.base.clock import Clock, sleep
from magnetar.base.errors import BrokerError, ConfigError
from magnetar.base.listeners import ANY_HOST
from magnetar.base.logging import get_logger
from magnetar.base.private import SECRET_FOLDER_MODE, private_folder
from magnetar.base.settings_pipelines import FUNCTIONS
from magnetar.broker.cluster.model import Endpoint
from magnetar.broker.jobs.errors import FunctionBusy, FunctionNotFound, FunctionTimedOut, InvalidFunction
from magnetar.broker.jobs.function_model import Function
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.jobs.model import InstanceSays, Trouble
from magnetar.broker.quotas.bucket import Bucket
from magnetar.server import children
from magnetar.server.doors import Bound

log = get_logger(__name__)

FOLDER: Final = "functions"
LOG_NAME: Final = "log"
WORK: Final = "work"  # inside an instance's folder: its code, and what it writes
LOG_BYTES_MAX: Final = 16 << 20
LINE_BYTES_MAX: Final = 512 << 10
# How much an instance may say: a line for each second, two for each use of the state.  Each line is work on the loop.
LINES_PER_S: Final = 1000
_LINE_BYTES: Final = 8 << 10  # more of them count as several lines
_BURST_S: Final = 0.1
_OWN_FOLDER: Final = re.compile("([0-9a-f]{16})-[0-9]+")
LOOK_EVERY_S: Final = 10.0
STOP_S_MAX: Final = 8.0
_ENDING_S: Final = 0.2
_PAUSE_S: Final = 1.0
_TROUBLES_MAX: Final = 10
_TEXT_CHARS_MAX: Final = 4000
_NUMBERS_MAX: Final = 250
TRIGGER_S_MAX: Final = 11.0  # the instance itself waits for 10
TRIGGERS_MAX: Final = 10  # at once; each is a thread of the instance
_NOT_READY: Final = "Function in trigger function is not ready"
_MODULE: Final = "magnetar.functions.runner"
_KEPT_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH")


def service_url(bound: Iterable[Bound]) -> str:
    """The URL of a listener of Pulsar's without TLS, for processes of this machine.

    Raises:
        ConfigError: there is none.
    """
    for one in bound:
        if one.door.name == "pulsar" and one.listener.tls is None:
            host, port = one.sockets[0].getsockname()[:2]
            return Endpoint("127.0.0.1" if host in ANY_HOST else host, port).url("pulsar", "")
    raise ConfigError(
        f"{FUNCTIONS}: functions need a listener of Pulsar's without TLS, and this server has none"
    )


class Places(NamedTuple):
    """Where instances are, and what they reach: the server at `service_url`, their own folders in `FOLDER` of the
    server's `data_dir`, and the operator's folders `readable`.
    """

    service_url: str
    data_dir: Path
    readable: Sequence[Path] = ()

    def folder_of(self, function_id: str, number: int) -> Path:
        return self.data_dir / FOLDER / f"{function_id}-{number}"


class FunctionInstances:
    """See the module's text."""

    def __init__(self, functions: Functions, clock: Clock, places: Places) -> None:
        self._functions = functions
        self._clock = clock
        self._places = places
        self._folder = places.data_dir / FOLDER
        self._runs: dict[tuple[str, int], tuple[int, asyncio.Task[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Start the task that keeps the wanted instances running; `stop` ends it."""
        if not landlock.version():
            log.warning("functions can read and change the server's files: this kernel has no Landlock")
        self._task = asyncio.get_running_loop().create_task(self._look_after(), name="functions")
        return self._task

    async def stop(self) -> None:
        """End all processes; their functions go on at the next start."""
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        tasks = [task for _, task in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_after(self) -> None:
        loop = asyncio.get_running_loop()
        private_folder(self._folder)
        while True:
            wanted = {(one.id, number): (one, number) for one, number in self._functions.wanted()}
            for place, (run, task) in list(self._runs.items()):
                if task.done():  # its process has ended, so the place is free
                    del self._runs[place]
                elif place not in wanted or wanted[place][0].run != run:
                    task.cancel()
            for place, (function, number) in wanted.items():
                if place not in self._runs:
                    task = loop.create_task(
                        self._keep_running(function, number), name=f"function {function.full_name}"
                    )
                    self._runs[place] = function.run, task
            known = self._functions.ids() | {function_id for function_id, _ in self._runs}
            await asyncio.to_thread(_tidy, self._folder, known)
            is_ending = any(task.cancelling() for _, task in self._runs.values())
            await self._functions.wait_for_change(_ENDING_S if is_ending else LOOK_EVERY_S)

    async def _keep_running(self, function: Function, number: int) -> None:
        """Run processes of an instance, one after the other, until this is cancelled."""
        instance = _Instance(self._functions, self._clock, function, number, self._places)
        failures = 0
        try:
            while True:
                began = self._clock.monotonic()
                await instance.run()
                failures = children.failures_in_a_row(failures, self._clock.monotonic() - began)
                await asyncio.sleep(children.pause_after(failures, _PAUSE_S))
                instance.restarts += 1
        except FunctionNotFound:
            return  # it is being deleted, and may start no process
        finally:
            instance.is_gone()


def _tidy(folder: Path, known: Collection[str]) -> None:
    """Remove the folders of functions that have been deleted, and cut the logs in the others."""
    for one in folder.iterdir():
        found = _OWN_FOLDER.fullmatch(one.name)
        if found is None:
            continue
        if found[1] in known:
            children.cut_log(one / LOG_NAME, LOG_BYTES_MAX)
        else:
            shutil.rmtree(one, ignore_errors=True)


class _Instance:
    """One instance of a function, whose processes come one after the other."""

    def __init__(
        self,
        functions: Functions,
        clock: Clock,
        function: Function,
        number: int,
        places: Places,
    ) -> None:
        self._functions = functions
        self._clock = clock
        self._function = function
        self._number = number
        self._places = places
        self._folder = places.folder_of(function.id, number)
        self._says = InstanceSays()
        self._failure = ""
        self._triggered: dict[int, asyncio.Future[bytes | None]] = {}
        self._trigger_number = 0
        self.restarts = 0

    async def run(self) -> None:
        """Run one process until it ends; if this is cancelled, end it."""
        self._failure = ""
        try:
            token = self._functions.let_in(self._function)
        except InvalidFunction as error:
            self._failed(f"the instance cannot run: {error}")
            return
        child: asyncio.subprocess.Process | None = None
        try:
            secrets = await self._functions.secrets(self._function)
            child = await self._spawn()
            log.info("a function's instance starts", function=self._function.full_name, pid=child.pid)
            await self._tell(child, self._orders(token, secrets))
            await self._hear(child)
            await child.wait()
            self._failure = self._failure or f"the process of the instance has ended with {child.returncode}"
        except (OSError, BrokerError) as error:
            self._failure = self._failure or f"the instance cannot run: {error}"
        finally:
            try:
                self._is_unready()
                if child is not None:
                    await children.end(child, STOP_S_MAX)
            finally:
                self._functions.shut_out(token)  # only now: the process acknowledges and sends until it ends
        self._failed(self._failure)

    def _failed(self, failure: str) -> None:
        log.warning("a function's instance has ended", function=self._function.full_name, log=self._log)
        now = Trouble(failure, self._functions.now_ms())
        troubles = (*self._says.system_exceptions, now)[-_TROUBLES_MAX:]
        self._say(replace(self._says, running=False, error=failure, system_exceptions=troubles))

    def is_gone(self) -> None:
        """No process of the instance is wanted any more."""
        self._say(replace(self._says, running=False))

    @property
    def _log(self) -> Path:
        return self._folder / LOG_NAME

    def _say(self, says: InstanceSays) -> None:
        self._says = replace(says, restarts=self.restarts)
        self._functions.heard(self._function, self._number, self._says)

    async def _spawn(self) -> asyncio.subprocess.Process:
        code = await self._functions.code(self._function)
        await asyncio.to_thread(self._furnish, code)
        with self._log.open("ab") as file:
            spawn = asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # without the folder that it runs in: a user's `logging.py` is no module of the runner's
                "-m",
                _MODULE,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
                cwd=self._folder / WORK,
                env={
                    **{name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                    "TMPDIR": str(self._folder / WORK),
                },
                start_new_session=True,
                limit=LINE_BYTES_MAX,
            )
            return await children.started(spawn)

    def _furnish(self, code: bytes) -> None:
        """A fresh folder for the code; the log stays.

        What an earlier process has left behind has no access to the new folder, and cannot put a link into it.  If it
        keeps the old one from going, FileExistsError ends this attempt.
        """
        private_folder(self._folder)
        work = self._folder / WORK
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(SECRET_FOLDER_MODE)
        (work / self._function.file_name).write_bytes(code)

    def _orders(self, token: bytes, secrets: Mapping[str, str]) -> Mapping[str, Any]:
        """What only the process's own memory has after it has read it."""
        return {
            "config": self._function.config,
            "id": self._function.id,
            "instance": self._number,
            "version": self._function.run,
            "service_url": self._places.service_url,
            "token": token.decode(),
            "readable": [str(one) for one in self._places.readable],
            "hidden": str(self._places.data_dir),
            "secrets": secrets,
            "code_file": str(self._folder / WORK / self._function.file_name),
        }

    @staticmethod
    async def _tell(child: asyncio.subprocess.Process, content: Mapping[str, Any]) -> None:
        assert child.stdin is not None
        child.stdin.write(json.dumps(content).encode() + b"\n")
        await child.stdin.drain()

    async def _hear(self, child: asyncio.subprocess.Process) -> None:
        """Take what the process says until it says no more, or something that no instance says."""
        assert child.stdout is not None
        pace = Bucket(LINES_PER_S, _BURST_S, self._clock.monotonic())
        try:
            while line := await child.stdout.readline():
                owed_s = pace.use(1 + len(line) / _LINE_BYTES, self._clock.monotonic())
                if owed_s:
                    await sleep(self._clock, owed_s)
                ((kind, content),) = json.loads(line).items()
                if kind == "state":
                    await self._tell(child, await self._state(content))
                elif kind == "running":
                    self._functions.is_ready(self._function, self._number, partial(self._trigger, child))
                    self._say(InstanceSays(running=True))
                elif kind == "triggered":
                    self._take_output(content)
                elif kind == "failed":
                    self._failure = _text(content)
                else:
                    self._say(_reported(content, self._says))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            self._failure = "the process of the instance said something that no instance says"

    async def _trigger(self, child: asyncio.subprocess.Process, topic: str, content: bytes) -> bytes | None:
        if len(self._triggered) >= TRIGGERS_MAX:
            raise FunctionBusy(
                f"the function {self._function.name} is triggered {TRIGGERS_MAX} times already"
            )
        self._trigger_number += 1
        number = self._trigger_number
        output: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._triggered[number] = output
        try:
            async with asyncio.timeout(TRIGGER_S_MAX):
                order = {"id": number, "topic": topic, "data": content.hex()}
                await self._tell(child, {"trigger": order})
                return await output
        except TimeoutError:
            raise FunctionTimedOut("Request Timed Out") from None
        except OSError:
            raise InvalidFunction(_NOT_READY) from None
        finally:
            del self._triggered[number], output  # it may have an error, whose traceback has this frame

    def _take_output(self, content: Mapping[str, Any]) -> None:
        output = self._triggered.get(content["id"])
        if output is None or output.done():
            return  # its asker waits no longer
        if "error" in content:
            output.set_exception(InvalidFunction(_text(content["error"])))
        else:
            data = content["data"]
            output.set_result(None if data is None else bytes.fromhex(data))

    def _is_unready(self) -> None:
        self._functions.is_unready(self._function, self._number)
        for output in self._triggered.values():
            if not output.done():
                output.set_exception(InvalidFunction(_NOT_READY))

    async def _state(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to what an instance asks of its function's state."""
        number, verb, key, value = asked["id"], asked["verb"], str(asked["key"]), asked["value"]
        functions, function = self._functions, self._function
        answer: dict[str, Any] = {"id": number}
        try:
            if verb == "count":
                answer["value"] = await functions.count(function, key, int(value))
            elif verb == "put":
                await functions.put_state(function, key, bytes.fromhex(value), None)
            elif verb == "drop":
                await functions.drop_state(function, key)
            else:
                kept = await functions.state(function, key)
                is_counter = verb == "counter"
                data = None if kept.data is None else kept.data.hex()
                answer["value"] = (kept.number or 0) if is_counter else data
        except FunctionNotFound:
            answer["value"] = 0 if verb == "counter" else None
        except BrokerError as error:
            answer["error"] = str(error)
        return answer


def _reported(content: Mapping[str, Any], before: InstanceSays) -> InstanceSays:
    """What a report says; ValueError, TypeError, KeyError, AttributeError or OverflowError if it is none."""
    return InstanceSays(
        running=before.running,
        error="",
        restarts=before.restarts,
        numbers=_numbers(content["numbers"]),
        one_minute=_numbers(content["one_minute"]),
        metrics=_numbers(content["metrics"]),
        last_invocation_ms=int(content["last_invocation_ms"]),
        user_exceptions=_troubles(content["user_exceptions"]),
        system_exceptions=_troubles(content["system_exceptions"]),
    )


def _numbers(content: Mapping[str, Any]) -> dict[str, float]:
    found = {_text(name)[:110]: value for name, value in list(content.items())[:_NUMBERS_MAX]}
    if not all(type(one) in (int, float) and math.isfinite(one) for one in found.values()):
        raise ValueError("no number")
    return found


def _troubles(content: list[Mapping[str, Any]]) -> tuple[Trouble, ...]:
    return tuple(Trouble(_text(one["text"]), int(one["at_ms"])) for one in content[-_TROUBLES_MAX:])


def _text(said: object) -> str:
    """What an answer can carry: JSON may have halves of characters, and so may texts of Python, as names of files."""
    return str(said)[-_TEXT_CHARS_MAX:].encode("utf-8", "replace").decode()
