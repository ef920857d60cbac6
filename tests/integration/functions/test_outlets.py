"""How the outputs of a function leave its process, counted in entries of the server; nothing here reads a clock.

The client's own delay is so long that a message which waits for it never comes.
"""

import itertools
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.functions import producers
from magnetar.functions.producers import Outlet, Producers
from tests.integration.functions.worker import PATIENCE_S, Worker, client_of

pytestmark = [pytest.mark.clients, pytest.mark.slow]
NEVER_MS = 3_600_000
THREADS = 4
_numbers = itertools.count()


class Sent:
    """Messages that were sent by an outlet, and the entries that the server has made of them."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._answers: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def send(self, content: bytes) -> None:
        self._outlet.send_async(content, lambda result, place: self._answers.put((result, place)))

    def entries(self, count: int) -> list[tuple[int, int]]:
        """The entries of the next so many messages, as partition and number, in the order of the receipts."""
        found = []
        for _ in range(count):
            result, place = self._answers.get(timeout=PATIENCE_S)
            assert result == pulsar.Result.Ok
            found.append((place.partition(), place.entry_id()))
        return found

    def flush(self) -> int:
        """How many receipts have come when that returns."""
        self._outlet.flush()
        return self._answers.qsize()


@pytest.fixture(params=[0, 3])
def partitions(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
def sent(worker: Worker, partitions: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    monkeypatch.setattr(producers, "BATCH_DELAY_MS", NEVER_MS)
    topic = f"outlet-{next(_numbers)}"
    if partitions:
        worker.partitioned(topic, partitions)
    with client_of(worker.server) as client:
        yield Sent(Producers(client, {}).of(topic))


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """For the time of a block, a process does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_message_that_comes_alone_leaves_at_once(sent: Sent) -> None:
    entries = []
    for number in range(20):
        sent.send(b"%d" % number)
        entries += sent.entries(1)  # before the next one is sent
    assert len({*entries}) == 20


@pytest.mark.parametrize("partitions", [0], indirect=True)
def test_those_behind_one_that_is_on_its_way_leave_together(worker: Worker, sent: Sent) -> None:
    with standing_still(worker.server.pid):
        for number in range(50):
            sent.send(b"%d" % number)
    (partition, first), *rest = sent.entries(50)
    assert {*rest} == {(partition, first + 1)}
    sent.send(b"and a last one")
    assert sent.entries(1) == [(partition, first + 2)]


def test_no_message_of_many_threads_stays_behind(sent: Sent) -> None:
    def send_many() -> None:
        for number in range(2000):
            sent.send(b"%d" % number)

    threads = [threading.Thread(target=send_many) for _ in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sent.flush() == THREADS * 2000
    entries = sent.entries(THREADS * 2000)
    assert len({*entries}) < len(entries) / 2
