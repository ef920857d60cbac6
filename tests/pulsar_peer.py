"""A real Apache Pulsar standalone for a test: started and killed by the script that fetches it."""

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from magnetar.testing.server import free_ports
from tests.peers import installed

_ANSWER_S = 300.0
# What it starts with by itself touches all of its memory first, and collects it on threads beside two cores' work.
_FRUGAL = {"PULSAR_GC": "-XX:+UseSerialGC", "PULSAR_MEM": "-Xms256m -Xmx1g -XX:MaxDirectMemorySize=2g"}


def admin(http_url: str, path: str, method: str = "GET", body: Any = None) -> Any:
    """What the admin API of a server answers; `path` begins behind /admin/v2/.  Raises HTTPError."""
    request = urllib.request.Request(
        f"{http_url}/admin/v2/{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        content = answer.read()
    return json.loads(content) if content else None


class PulsarPeer:
    """One standalone with data in `folder`, for the length of a `with` block; `kill` and `start` keep data, ports."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = [f"{name}={value}" for name, value in settings.items()]
        # The script has its bookie listen at a port that is 1,000 higher than the broker's.
        self._port, self._http_port = free_ports(2)
        self.url = f"pulsar://127.0.0.1:{self._port}"
        self.http_url = f"http://127.0.0.1:{self._http_port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        self._run("start", str(self._folder), str(self._port), str(self._http_port), *self._settings)

    def kill(self) -> None:
        """SIGKILL."""
        self._run("kill", str(self._folder))

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        return admin(self.http_url, path, method, body)

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [installed("pulsar"), *arguments],
            env={**os.environ, **_FRUGAL},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
