"""A real Apache Kafka broker for a test: started and killed by the script that fetches it."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from magnetar.testing.server import free_ports
from tests.peers import installed

_ANSWER_S = 300.0


class KafkaPeer:
    """One node with data in `folder`, for the length of a `with` block; `kill` and `start` keep data and port."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        self._port, _ = free_ports(2)  # the script has the controller listen at the next one
        self.bootstrap = f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run("kill", str(self._folder))

    def start(self) -> None:
        self._run("start", str(self._folder), str(self._port), *self._settings)

    def kill(self) -> None:
        """SIGKILL."""
        self._run("kill", str(self._folder))

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [installed("kafka"), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
