"""What the worker makes of its server's answers, with a client that answers as a test says."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.client.errors import Refused, Unreachable
from magnetar.client.login import Server
from magnetar.client.pipelines import Lease, Pipeline
from magnetar.pipelines.worker import link as link_module
from magnetar.pipelines.worker.link import Link

PIPELINE = Pipeline("a", "1", "query", {}, "RUNNING", 1, "pipeline-a")
FENCED = Refused("gone", "WORKER_FENCED", 409)
TOKEN = "5a" * 32
Answer = Callable[[], Any]


class FakeClient:
    def __init__(self) -> None:
        self.lease: list[Any] = [Lease(3, 30.0, "here:9092", ())]
        self.orders_now: Any = ("v1", [PIPELINE])
        self.report_now: Any = None
        self.reported: list[tuple[set[str], str]] = []
        self.ended = 0
        self.tokens: list[str] = []

    def identify(self, token: str) -> None:
        self.tokens.append(token)

    @staticmethod
    def _answer(what: Any) -> Any:
        if isinstance(what, Exception):
            raise what
        return what

    def take_lease(self, *_: Any) -> Any:
        return self._answer(self.lease.pop(0) if len(self.lease) > 1 else self.lease[0])

    def orders(self, worker: str, epoch: int, version: str, wait_ms: int) -> Any:
        assert epoch == 3
        answer = self._answer(self.orders_now)
        if answer[0] == version:
            time.sleep(0.01)
            return version, None
        return answer

    def report(self, worker: str, epoch: int, pipelines: Any, about: Any, trouble: str = "") -> None:
        self._answer(self.report_now)
        self.reported.append((set(pipelines), trouble))

    def end(self, *_: Any) -> None:
        self.ended += 1

    def close(self) -> None: ...


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient()
    monkeypatch.setattr(link_module, "PipelinesClient", lambda *_, **__: made)
    monkeypatch.setattr(link_module, "REPORT_EVERY_S", 0.01)
    monkeypatch.setattr(link_module, "_PAUSE_S", 0.01)
    monkeypatch.setattr(link_module, "_LEASE_EVERY_S", 0.01)
    return made


@pytest.fixture
def events() -> "queue.SimpleQueue[Any]":
    return queue.SimpleQueue()


@pytest.fixture
def link(client: FakeClient, events: "queue.SimpleQueue[Any]", tmp_path: Path) -> Iterator[Link]:
    (tmp_path / "token").write_text(TOKEN)
    made = Link(Server("http://here"), tmp_path, tmp_path / "token", events)
    yield made
    made.close()


def until(what: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + 20
    while not what():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_it_waits_for_its_turn(link: Link, client: FakeClient) -> None:
    client.lease = [
        None,
        Unreachable("nobody"),
        Refused("later", "STORAGE", 503),
        Lease(3, 30.0, "here:9092", ()),
    ]
    assert link.acquire(threading.Event())
    assert link.lease.epoch == 3


def test_it_does_not_wait_for_ever_when_it_is_to_stop(link: Link, client: FakeClient) -> None:
    client.lease = [None]
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    assert not link.acquire(stop)


def test_orders_come_when_they_change_and_reports_go(
    link: Link, client: FakeClient, events: "queue.SimpleQueue[Any]"
) -> None:
    assert link.acquire(threading.Event())
    link.start(lambda: {f"p{number}": {} for number in range(120)})
    assert events.get(timeout=20) == [PIPELINE]
    client.orders_now = ("v2", [])
    assert events.get(timeout=20) == []
    assert events.empty()
    until(lambda: len(client.reported) >= 3)
    names = [names for names, _ in client.reported[:3]]
    assert max(map(len, names)) <= 50
    assert len(set().union(*names)) == 120
    assert link.trouble() == ""


@pytest.mark.parametrize("which", ["orders_now", "report_now"])
def test_a_fenced_worker_says_so(link: Link, client: FakeClient, which: str) -> None:
    setattr(client, which, FENCED)
    assert link.acquire(threading.Event())
    link.start(dict)
    until(link.trouble)
    assert link.trouble() == "another worker has taken over"
    link.close()
    assert client.ended == 0  # there is nothing of its own to give back


def test_a_server_that_is_silent_for_too_long_counts_as_lost(link: Link, client: FakeClient) -> None:
    client.lease = [Lease(3, 0.6, "here:9092", ())]
    assert link.acquire(threading.Event())
    client.orders_now = client.report_now = Unreachable("nobody is there")
    link.start(dict)
    assert link.trouble() == ""
    until(link.trouble)
    assert "has not answered" in link.trouble()


def test_one_way_of_reaching_the_server_is_enough(link: Link, client: FakeClient) -> None:
    client.lease = [Lease(3, 0.3, "here:9092", ())]
    client.report_now = Refused("too large", "INVALID_PIPELINE", 422)
    assert link.acquire(threading.Event())
    link.start(dict)
    time.sleep(0.6)
    assert link.trouble() == ""


def test_the_last_word_is_said_and_the_lease_given_back(link: Link, client: FakeClient) -> None:
    assert link.acquire(threading.Event())
    link.close({"a": {}}, "no Java")
    assert client.reported[-1] == ({"a"}, "no Java")
    assert client.ended == 1


def test_it_says_who_it_is_by_the_servers_token_and_waits_for_one(
    link: Link, client: FakeClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").unlink()
    stop = threading.Event()
    acquired: list[bool] = []
    thread = threading.Thread(target=lambda: acquired.append(link.acquire(stop)))
    thread.start()
    until(lambda: "the worker's token cannot be read" in caplog.text)
    assert "--token-file" in caplog.text
    assert client.tokens == []
    (tmp_path / "fresh").write_text(TOKEN)
    (tmp_path / "fresh").replace(tmp_path / "token")
    thread.join(20)
    assert (acquired, client.tokens) == ([True], [TOKEN])
