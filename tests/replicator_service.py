"""`magnetar replicator-service` as a process for a test, which kills and starts it on the same port."""

import json
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from magnetar.testing.server import default_command, free_ports

_READY_S = 60.0
_STOP_S = 60.0
_SAID_S = 30.0


def kafka_target(bootstrap: str, topics: Mapping[str, str], **credentials: str) -> dict[str, Any]:
    """The configuration of one region of Kafka's; `credentials` with _ for dots."""
    body: dict[str, Any] = {
        "replicatorPolicies": {
            "replicationProperties": {"bootstrap.servers": bootstrap},
            "topicNameMapping": dict(topics),
        }
    }
    if credentials:
        body["authParamData"] = {name.replace("_", "."): value for name, value in credentials.items()}
    return body


class ReplicatorService:
    """For the length of a `with` block.  `namespaces` is what the configuration file has."""

    def __init__(self, folder: Path, namespaces: Mapping[str, Any], arguments: Sequence[str] = ()) -> None:
        [self._port] = free_ports(1)
        self.url = f"pulsar://127.0.0.1:{self._port}"
        config = folder / "service.json"
        config.touch(0o600)
        config.write_text(json.dumps({"namespaces": namespaces}))
        self.command = [
            *default_command(),
            *("replicator-service", "--config", str(config), "--listen", f"127.0.0.1:{self._port}"),
            *arguments,
        ]
        self._lines: list[str] = []
        self._came = threading.Condition()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = self.stop()
        if error is None:
            assert code == 0, self.log
        else:
            error.add_note(self.log[-4000:])

    @property
    def log(self) -> str:
        """All that it has written, over all starts."""
        return "".join(self._lines)

    def until_says(self, text: str) -> None:
        """Return when its log has this text: its lines come by a pipe, later than what clients hear."""
        with self._came:
            assert self._came.wait_for(lambda: text in self.log, _SAID_S), f"{text!r} is not in:\n{self.log}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return when it is ready."""
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert self._process.stdout is not None
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, ready))
        self._reader.start()
        assert ready.wait(_READY_S), self.log
        assert self._process.poll() is None, self.log

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code, which is 0 if it was not running."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            code = process.wait(_STOP_S)
        finally:
            process.kill()
            process.wait()
            self._reader.join()
        return code

    def _read(self, output: IO[str], ready: threading.Event) -> None:
        with output:
            for line in output:
                with self._came:
                    self._lines.append(line)
                    self._came.notify_all()
                if "is ready" in line:
                    ready.set()
        ready.set()  # it has ended
