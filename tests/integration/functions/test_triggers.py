"""`pulsar-admin functions trigger`: a message goes in, and the output is shown."""

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.functions.processing import MESSAGE_ID, TOPIC
from tests.integration.functions.worker import PATIENCE_S, Worker, client_of
from tests.integration.java_tools import needs_java, run_pulsar_shell

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(600)]


class TestPulsarAdmin:
    pytestmark = needs_java

    def test_real_pulsar_admin_triggers_a_function(self, worker: Worker, tmp_path: Path) -> None:
        worker.create("shown", "plain.py", "plain.process", inputs=["shown-1", "shown-2"], output="shown-out")
        worker.create("mute", "plain.py", "plain.process", inputs=["mute-in"])
        (tmp_path / "file").write_text("from-a-file")
        trigger = "admin functions trigger --tenant public --namespace default"
        first, second, mute = run_pulsar_shell(
            worker.server,
            [
                f"{trigger} --name shown --topic persistent://public/default/shown-1 --trigger-value one",
                f"{trigger} --name shown --topic persistent://public/default/shown-2"
                f" --trigger-file {tmp_path / 'file'}",
                f"{trigger} --name mute --trigger-value unheard",
            ],
        )
        assert (first, second) == ("<one>", "<from-a-file>")
        assert "unheard" not in mute
        worker.until("mute", lambda one: one["numSuccessfullyProcessed"] == 1)


@contextmanager
def forged(client: Any, topic: str, source: str) -> Iterator[None]:
    """Meanwhile a client writes to the topic what says that it was made of an input, and not of which message."""
    producer = client.create_producer(topic)
    over = threading.Event()

    def write() -> None:
        for number in count():
            if over.is_set():
                return
            said = {} if number % 2 else {MESSAGE_ID: "?"}
            producer.send(b"forged", properties={TOPIC: source, **said})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def test_output_is_that_of_the_message_and_not_anothers(worker: Worker) -> None:
    """The topics are partitioned, and several instances answer other messages meanwhile."""
    for topic in ("busy-in", "busy-out"):
        worker.partitioned(topic, 3)
    worker.create("busy", "plain.py", "plain.process", inputs=["busy-in"], output="busy-out", parallelism=2)
    with (
        client_of(worker.server) as client,
        forged(client, "busy-out", "persistent://public/default/busy-in"),
    ):
        producer = client.create_producer("busy-in", message_routing_mode=_ROUND)
        for number in range(10):
            producer.send_async(b"other", None)
            assert trigger(worker, "busy", f"mine-{number}") == (200, f"<mine-{number}>")
        producer.flush()


@pytest.mark.parametrize(
    ("name", "topic", "said"),
    [
        ("several", "", "has more than 1 input topics"),
        ("several", "persistent://public/default/elsewhere", "has unidentified topic"),
        ("by-pattern", "", "has unidentified topic"),
        ("stopped", "", "is not ready"),
    ],
)
def test_what_cannot_be_triggered_is_refused(worker: Worker, name: str, topic: str, said: str) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "several": {"inputs": ["several-1", "several-2"]},
        "by-pattern": {"topicsPattern": "persistent://public/default/by-.*"},
        "stopped": {"inputs": ["stopped-in"]},
    }
    if name not in worker.names():
        worker.create(name, "plain.py", "plain.process", **kinds[name])
    if name == "stopped":
        worker.ask("stopped/stop", "POST")
        worker.until("stopped", lambda one: not one["running"])
    status, text = trigger(worker, name, "x", topic)
    assert (status, said in text) == (400, True), text


def test_trigger_whose_process_ends_is_refused_at_once(worker: Worker) -> None:
    worker.create("ends", "hungry.py", "hungry.Hungry", inputs=["ends-in"], output="ends-out")
    status, text = trigger(worker, "ends", "end")
    assert (status, "is not ready" in text) == (400, True), text
    ends = time.monotonic() + PATIENCE_S
    while (answer := trigger(worker, "ends", "again")) != (200, "again"):
        assert time.monotonic() < ends, answer
        time.sleep(0.2)


def test_function_that_makes_nothing_of_a_message_times_out(worker: Worker) -> None:
    worker.create("nothing", "words.py", "words.WordCount", inputs=["nothing-in"], output="nothing-out")
    status, text = trigger(worker, "nothing", "words")
    assert (status, "Request Timed Out" in text) == (408, True), text


_ROUND = pulsar.PartitionsRoutingMode.RoundRobinDistribution


def trigger(worker: Worker, name: str, value: str, topic: str = "") -> tuple[int, str]:
    """The status, and the answer."""
    parts = {"data": value, **({"topic": topic} if topic else {})}
    body = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{content}\r\n'
        for key, content in parts.items()
    )
    url = f"{worker.server.http_url}/admin/v3/functions/public/default/{name}/trigger"
    request = urllib.request.Request(url, f"{body}--b--\r\n".encode(), method="POST")
    request.add_header("Content-Type", "multipart/form-data; boundary=b")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
