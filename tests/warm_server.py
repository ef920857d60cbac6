"""A process that has imported what a server needs, and forks a server for each order: see tests/warm_starts.py.

    python -P tests/warm_server.py FD

An order comes over the socket FD: the command line, the environment and the folder, with a file for the server's
output.  The answer says which process was started.  When that has ended, another message says how, and what it took of
the processor.  A server begins with `main` of the `magnetar` command, as every server does, and ends as a whole
interpreter does.
"""

import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

ORDER_BYTES_MAX: Final = 200_000
_IMPORTED: Final = (
    "magnetar.cli.main",
    "magnetar.server.garbage",
    "magnetar.server.standalone",
    "magnetar.admin.app",
    "magnetar.admin.slots",
    "uvicorn.server",
)


def main() -> None:
    socket_ = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()  # as a server does while it starts
    _import_all()
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
        order, files, _, _ = socket.recv_fds(socket_, ORDER_BYTES_MAX, 1)
        if not order:
            return  # the tests have ended
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # its start is told before its end
        pid = os.fork()
        if not pid:
            break
        os.close(files[0])
        socket_.send(json.dumps({"started": pid}).encode())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    socket_.close()
    _be(json.loads(order), files[0])


def _import_all() -> None:
    for name in _IMPORTED:
        import_module(name)
    from magnetar.cli.main import commands
    from magnetar.protocols.kafka.apis import load_apis
    from magnetar.protocols.pulsar.commands import load_commands

    load_apis()
    load_commands()
    commands()


def _be(order: dict[str, Any], output: int) -> None:
    """Be the server of an order."""
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for standard in (sys.stdout, sys.stderr):
        os.dup2(output, standard.fileno())
    os.close(output)
    sys.argv[:] = order["command"]
    gc.enable()
    from magnetar.cli.main import main

    main()


if __name__ == "__main__":
    main()
