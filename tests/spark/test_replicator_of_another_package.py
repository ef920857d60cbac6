"""A provider of another package, installed as its users install it."""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.spark.pipelines import settings
from tests.spark.replicated import Replicated, copied, full

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "http-replicator"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example was installed, outside of the environment that the tests run in."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(EXAMPLE)], check=True
    )
    return target


class Endpoint:
    """What it gets; it refuses tokens but one, lines with `poison` in them, and its first request of all."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.requests = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                endpoint.requests += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                lines = [json.loads(line) for line in body.splitlines()]
                status = 200
                if self.headers["Authorization"] != "Bearer right":
                    status = 401
                elif endpoint.requests == 1:
                    status = 503
                elif any(base64.b64decode(line["value"]) == b"poison" for line in lines):
                    status = 422
                else:
                    endpoint.offsets += [line["offset"] for line in lines]
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def test_an_installed_provider_replicates_in_order_and_says_what_is_refused(
    installed: Path, endpoint: Endpoint
) -> None:
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    with MagnetarProcess(settings=settings(), environment={"PYTHONPATH": path}) as server:
        world = Replicated(server)
        topic = world.topic(1)
        for number in range(10):
            world._producer.produce(topic, b"poison" if number == 4 else b"%d" % number)
        assert world._producer.flush(60) == 0
        config = {
            "topic": full(topic),
            "type": "Http",
            "region": "web",
            "target": "orders",
            "properties": {"url": endpoint.url},
        }
        world.client.create("web", "replicator", {**config, "credentials": {"token": "right"}})
        world.until(lambda: world.backlog("web") == 0)
        assert endpoint.offsets == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        subscription = world.get("web").subscription
        [(_, value, headers)] = copied(server.bootstrap, f"{topic}-{subscription}-DLQ")
        assert value == b"poison"
        assert dict(headers)["magnetar.reason"] == b"the endpoint refuses it"
        world.client.create("refused", "replicator", {**config, "credentials": {"token": "wrong"}})
        assert world.until_state("refused", "FAILED").reason == "the endpoint answers 401"
        world.client.create("misspelt", "replicator", {**config, "type": "Htp"})
        assert "did you mean Http?" in world.until_state("misspelt", "FAILED").reason
        world.close()
