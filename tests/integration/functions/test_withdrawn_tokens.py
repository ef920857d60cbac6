"""The server closes a connection of pulsar-client when it withdraws the token that the client has shown: that of a
pipeline's query, or of a function's process.
"""

import json
import logging
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pulsar
import pytest

from magnetar.client.http import HttpClient
from magnetar.client.login import Login
from magnetar.client.pipelines import PipelinesClient
from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import SETTINGS, Worker, client_of, texts
from tests.integration.server.wire import eventually

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

WATCHED = "watched"


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings=SETTINGS) as started:
        yield started
        assert "Traceback" not in started.log


class Borrower:
    """A client with the token of another one; it consumes from its own subscription, in silence."""

    def __init__(self, server: MagnetarProcess, token: str, subscription: str) -> None:
        self._url = f"{server.http_url}/admin/v2/persistent/public/default/{WATCHED}/stats"
        silent = logging.getLogger("pulsar-client")
        silent.setLevel(logging.CRITICAL)
        self.client = pulsar.Client(
            server.pulsar_url,
            pulsar.AuthenticationToken(token),
            operation_timeout_seconds=3,
            logger=silent,
        )
        self._subscription = subscription
        self.client.subscribe(WATCHED, subscription)
        assert self.is_connected()

    def is_connected(self) -> bool:
        """Whether `pulsar-admin topics stats` would show its consumer."""
        with urllib.request.urlopen(self._url) as answer:
            return bool(json.load(answer)["subscriptions"][self._subscription]["consumers"])


@contextmanager
def borrowing(server: MagnetarProcess, token: str, subscription: str) -> Iterator[Borrower]:
    borrower = Borrower(server, token, subscription)
    try:
        yield borrower
        eventually(lambda: not borrower.is_connected(), "its connection is closed", 120)
        with pytest.raises(pulsar.PulsarException):
            borrower.client.create_producer(WATCHED)
    finally:
        borrower.client.close()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), [("POST", "{}/stop"), ("DELETE", "{}")])
def test_the_token_of_a_function_counts_until_its_process_has_ended(
    server: MagnetarProcess, method: str, path: str
) -> None:
    worker, name = Worker(server), f"borrowed-{method}"
    worker.create(name, "borrowed.py", "borrowed.process", inputs=[f"{name}-in"], output=f"{name}-out")
    with client_of(server) as client:
        output = client.subscribe(f"{name}-out", "s")
        client.create_producer(f"{name}-in").send(b"a")
        (token,) = texts(output, 1)
    with borrowing(server, token, name):
        worker.ask(path.format(name), method)


class PipelinesWorker:
    """The pipelines' worker, which runs nothing."""

    def __init__(self, server: MagnetarProcess) -> None:
        token = (server.data_dir / "worker-token").read_text().strip()
        self._http = HttpClient(server.http_url, login=Login(token=token))
        self._epoch = self._ask("lease", host="here", pid=7, place="here:/data")["epoch"]

    def token_of(self, name: str) -> str:
        return str(self._ask("tokens", pipelines=[name])["tokens"][name])

    def has_stopped(self, name: str) -> None:
        found = {one["name"]: one for one in self._ask("orders", version="")["pipelines"]}[name]
        report = {"id": found["id"], "run": found["run"], "state": "STOPPED"}
        self._ask("report", pipelines={name: report})

    def _ask(self, verb: str, **body: Any) -> Any:
        body = {"worker": "w", **({} if verb == "lease" else {"epoch": self._epoch}), **body}
        return self._http.send_json("POST", f"/magnetar/v1/worker/{verb}", body)

    def close(self) -> None:
        self._http.close()


def _stop(pipelines: PipelinesClient, worker: PipelinesWorker) -> None:
    pipelines.stop("p-_stop")
    worker.has_stopped("p-_stop")


def _delete(pipelines: PipelinesClient, worker: PipelinesWorker) -> None:
    pipelines.delete("p-_delete")
    worker.has_stopped("p-_delete")


@pytest.mark.parametrize("withdraw", [_stop, _delete])
def test_the_token_of_a_pipeline_counts_until_the_worker_has_stopped_it(
    server: MagnetarProcess, withdraw: Callable[[PipelinesClient, PipelinesWorker], None]
) -> None:
    name = f"p-{withdraw.__name__}"
    with (
        closing(PipelinesClient(server.http_url)) as pipelines,
        closing(PipelinesWorker(server)) as worker,
    ):
        pipelines.create(name, "query", {"sql": "SELECT 1"})
        with borrowing(server, worker.token_of(name), name):
            withdraw(pipelines, worker)
