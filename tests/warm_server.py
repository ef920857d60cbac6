"""A process that has imported what a server needs, and forks a process for each order: see tests/warm_starts.py.

    python -P tests/warm_server.py FD

An order comes over the socket FD: the command line, the program if it is not `magnetar`, the environment and the
folder, with some files.  The order says which descriptors each file becomes.  The answer says which process was
started.  When that has ended, another message says how, and what it took of the processor.

A process begins with `main` of the `magnetar` command, or with its program, as if it had been started.  At its end its
threads end, what is registered for the end is called, and its output is written.  After that the interpreter would free
half a million objects one by one, and says nothing of the server: it does not.

numba and the code that it has compiled take a second of each server that clients of both protocols use.  Once a server
has compiled it, this process imports them, too.  A server loads the code when it always did, and finds it imported.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from magnetar.wire.compiling import CompiledModules

ORDER_BYTES_MAX: Final = 200_000
FILES_MAX: Final = 3
_IMPORTED: Final = (
    "magnetar.cli.main",
    "magnetar.server.garbage",
    "magnetar.server.standalone",
    "magnetar.admin.app",
    "magnetar.admin.slots",
    "uvicorn.server",
)
_COMPILED: Final = (
    "magnetar.wire.convert.engine",
    "magnetar.wire.kafka.record_scan",
    "magnetar.wire.compaction.latest",
)


def main() -> None:
    socket_ = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()  # as a server does while it starts
    _import_all()
    awaited = [_copy_of(vars(import_module(name))["_compiled"]) for name in _COMPILED]
    gc.freeze()  # servers share what no collector looks at

    def reap(*_: object) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            cpu_seconds = usage.ru_utime + usage.ru_stime
            ended = {"ended": pid, "code": os.waitstatus_to_exitcode(status), "cpu_seconds": cpu_seconds}
            with suppress(OSError):  # the tests have ended
                socket_.send(json.dumps(ended).encode())

    signal.signal(signal.SIGCHLD, reap)
    while True:
        order, files, _, _ = socket.recv_fds(socket_, ORDER_BYTES_MAX, FILES_MAX)
        if not order:
            return  # the tests have ended
        awaited = _import_compiled(awaited)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # its start is told before its end
        pid = os.fork()
        if not pid:
            break
        for file in files:
            os.close(file)
        socket_.send(json.dumps({"started": pid}).encode())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    socket_.close()
    _be(json.loads(order), files)


def _import_all() -> None:
    for name in _IMPORTED:
        import_module(name)
    from magnetar.cli.main import commands
    from magnetar.protocols.kafka.apis import load_apis
    from magnetar.protocols.pulsar.commands import load_commands

    load_apis()
    load_commands()
    commands()


def _copy_of(compiled: CompiledModules) -> CompiledModules:
    """Loads the same.  The servers' own, which they share with this process until they load it, stays as it was."""
    return CompiledModules(str(compiled._home), compiled._names, compiled._sources, compiled._loss)


def _import_compiled(awaited: list[CompiledModules]) -> list[CompiledModules]:
    """Import what has been compiled by now; what has not."""
    left = [one for one in awaited if not one.load_kept()]
    if len(left) < len(awaited):
        gc.freeze()
    return left


def _be(order: dict[str, Any], files: Sequence[int]) -> None:
    """Be the process of an order."""
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for file, places in zip(files, order["places"], strict=True):
        for place in places:
            os.dup2(file, place)
        os.close(file)
    sys.argv[:] = order["command"]
    gc.enable()
    try:
        _run(order["program"])
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _end(ended.code or 0)
        raise


def _run(program: str | None) -> None:
    if program is None:
        from magnetar.cli.main import main

        main()
    else:
        runpy.run_path(program, run_name="__main__")


def _end(code: int) -> None:
    """End with this code, after all that an interpreter does at its end before it takes itself apart."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
