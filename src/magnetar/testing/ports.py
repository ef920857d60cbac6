"""Free ports for servers of tests, also when several test runs share a machine.

A port that is chosen stays free until a server listens on it, and another process could choose it in between.  So each
process locks the ports that it has chosen: byte N of one file stands for port N (`fcntl`, record locks).  The kernel
releases the locks of a process when it ends, however it ends, and a child does not inherit them.

Ports are below the kernel's ephemeral range (`server.py` says why).
"""

import fcntl
import os
import random
import socket
from collections import deque
from functools import cache
from pathlib import Path

PORT_MIN = 10_000
EPHEMERAL_PORT_MIN = 32_768  # Linux's default lower bound of net.ipv4.ip_local_port_range
PORTS = range(PORT_MIN, EPHEMERAL_PORT_MIN)
CHOSEN_MAX = 1000  # a process gives back what it chose before
_FILE = Path("/tmp/magnetar-test-ports")  # noqa: S108  ports are the machine's, whatever TMPDIR says
_chosen: deque[int] = deque()


def free_ports(count: int, among: range = PORTS) -> list[int]:
    """`count` consecutive free ports of 127.0.0.1, which no other process that calls this gets now."""
    choose = random.SystemRandom()
    while True:
        first = choose.randrange(among.start, among.stop - count + 1)
        ports = list(range(first, first + count))
        if set(ports) & set(_chosen) or not _lock(ports):
            continue
        if all(map(is_free, ports)):
            _chosen.extend(ports)
            while len(_chosen) > CHOSEN_MAX:
                _unlock([_chosen.popleft()])
            return ports
        _unlock(ports)


@cache
def _locks() -> int:
    """The file of the locks, open for as long as this process lives: closing it anywhere would release them all."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            return os.open(_FILE, flags)
        except FileNotFoundError:
            pass
        # Every account may lock, whatever the umask of the one that creates the file.
        made = _FILE.with_name(f"{_FILE.name}-{os.getpid()}")
        os.close(os.open(made, flags | os.O_CREAT | os.O_EXCL, 0o600))
        made.chmod(0o666)
        try:
            os.link(made, _FILE)
        except FileExistsError:
            pass  # another process was faster
        finally:
            made.unlink()


def _lock(ports: list[int]) -> bool:
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports[0])
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(ports: list[int]) -> None:
    fcntl.lockf(_locks(), fcntl.LOCK_UN, len(ports), ports[0])


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
