"""Apache Pulsar standalone from the peers' script, and the admin calls that both servers answer."""

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.process import RunFailed
from bench.pulsar_client import Addresses
from bench.servers import HOST, READY_SECONDS_MAX, Peer, Server
from magnetar.testing.server import free_ports

PULSAR = "pulsar"
REQUEST_SECONDS = 120.0


class Pulsar(Peer):
    """With the settings that standalone ships with: its journal is not synced."""

    name = PULSAR

    def __init__(self, folder: Path, script: Path, settings: tuple[str, ...] = ()) -> None:
        super().__init__(folder, script, settings)
        self.port, self.http_port = free_ports(2)

    @property
    def pulsar(self) -> Addresses:
        return Addresses(f"pulsar://{HOST}:{self.port}", f"http://{HOST}:{self.http_port}")

    def _start(self) -> float:
        """It serves when its script ends: that asks for a namespace which is made last."""
        command = [str(self.script), "start", str(self.folder), str(self.port), str(self.http_port)]
        try:
            done = subprocess.run(
                [*command, *self.settings],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=READY_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            raise RunFailed(f"not within {READY_SECONDS_MAX:.0f} s") from None
        if done.returncode:
            raise RunFailed(f"the peer's script failed: {' | '.join(done.stdout.splitlines()[-3:])}")
        self.pid = self._written_pid()
        return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def topic(where: Addresses, name: str, partitions: int) -> Iterator[str]:
    """A partitioned topic of public/default for the time of the block."""
    path = f"persistent/public/default/{name}/partitions"
    request(where, "PUT", path, partitions)
    try:
        yield name
    finally:
        request(where, "DELETE", f"{path}?force=true")


def request(where: Addresses, method: str, path: str, body: object = None) -> Any:
    """The answer's JSON, None where it is empty.  RunFailed when the request is refused."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(f"{where.http}/admin/v2/{path}", data, method=method)
    call.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(call, timeout=REQUEST_SECONDS) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        raise RunFailed(f"{method} {path} was answered with {error.code}: {error.read()[:200]!r}") from None
    except OSError as error:
        raise RunFailed(f"{method} {path}: {error}") from None
    return json.loads(content) if content else None


def addresses(server: Server) -> Addresses:
    """RunFailed for a server without a Pulsar door."""
    found = getattr(server, "pulsar", None)
    if not isinstance(found, Addresses):
        raise RunFailed(f"{server.name} has no Pulsar door")
    return found
