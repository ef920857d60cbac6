"""A server that runs functions, asked as `pulsar-admin functions` asks it."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess

CODE: Final = Path(__file__).parent / "code"
PATIENCE_S: Final = 120.0
SETTINGS: Final = {"functionsWorkerEnabled": "true"}
RUNNER: Final = "magnetar.functions.runner"


class Worker:
    """A server, asked as pulsar-admin asks it."""

    def __init__(self, server: MagnetarProcess) -> None:
        self.server = server

    def create(self, name: str, file: str, class_name: str, **config: Any) -> None:
        self.declare(name, file, className=class_name, **config)
        self.until_running(name)

    def declare(self, name: str, file: str, **config: Any) -> None:
        """Create a function, which may not run."""
        self._declare("POST", name, file, config)

    def refused(self, name: str, file: str, **config: Any) -> tuple[int, str]:
        """The status and the reason of a refusal."""
        with pytest.raises(urllib.error.HTTPError) as caught:
            self._declare("POST", name, file, config)
        return caught.value.code, json.loads(caught.value.read())["reason"]

    def ask(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"{self._url(path)}", method=method)
        with urllib.request.urlopen(request) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def put_state(self, name: str, key: str, text: str) -> None:
        said = json.dumps({"key": key, "stringValue": text}).encode()
        self._send("POST", f"{name}/state/{key}", {'name="state"': said})

    def partitioned(self, topic: str, count: int) -> None:
        """Create a partitioned topic."""
        url = f"{self.server.http_url}/admin/v2/persistent/public/default/{topic}/partitions"
        request = urllib.request.Request(url, str(count).encode(), method="PUT")
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request).close()

    def names(self) -> list[str]:
        with urllib.request.urlopen(self._url("").rstrip("/")) as answer:
            found: list[str] = json.loads(answer.read())
        return found

    def status(self, name: str, instance: int = 0) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.ask(f"{name}/{instance}/status")
        return found

    def until(self, name: str, holds: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """The status of the first instance, once it is so."""
        ends = time.monotonic() + PATIENCE_S
        while not holds(status := self.status(name)):
            assert time.monotonic() < ends, status
            time.sleep(0.2)
        return status

    def until_running(self, name: str) -> None:
        self.until(name, lambda one: bool(one["running"]))

    def _url(self, path: str) -> str:
        return f"{self.server.http_url}/admin/v3/functions/public/default/{path}"

    def _declare(self, method: str, name: str, file: str, config: Mapping[str, Any]) -> None:
        self._send(
            method,
            name,
            {
                'name="functionConfig"': json.dumps(config).encode(),
                f'name="data"; filename="{file}"': (CODE / file).read_bytes(),
            },
        )

    def _send(self, method: str, path: str, parts: Mapping[str, bytes]) -> None:
        """Send a form."""
        pieces = [
            f"--b\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
            for head, content in parts.items()
        ]
        request = urllib.request.Request(self._url(path), b"".join([*pieces, b"--b--\r\n"]), method=method)
        request.add_header("Content-Type", "multipart/form-data; boundary=b")
        urllib.request.urlopen(request).close()


@contextmanager
def client_of(server: MagnetarProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.pulsar_url)
    try:
        yield client
    finally:
        client.close()


def deduplicate(server: MagnetarProcess, *, on: bool = True) -> None:
    """Turn deduplication on or off for the topics of public/default."""
    url = f"{server.http_url}/admin/v2/namespaces/public/default/deduplication"
    request = urllib.request.Request(url, b"true" if on else b"false", method="POST")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).close()


def instance_pids(server: MagnetarProcess, runners: Collection[str] = (RUNNER,)) -> list[int]:
    """The processes of functions' instances, which are the server's children and run one of these modules."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    commands = {int(one): Path(f"/proc/{one}/cmdline").read_text().split("\0") for one in children}
    return [pid for pid, words in commands.items() if not {*runners}.isdisjoint(words)]


def texts(consumer: pulsar.Consumer, count: int) -> list[str]:
    """The next so many messages, in any order."""
    return sorted(consumer.receive(int(PATIENCE_S * 1000)).data().decode() for _ in range(count))
