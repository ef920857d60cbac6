"""EFFECTIVELY_ONCE: each message has one output, in order, however often the server or the instance is killed."""

import os
import random
import signal
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import PATIENCE_S, SETTINGS, Worker, client_of

pytestmark = [pytest.mark.clients, pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(1200)]

_ROUND = 60  # messages


def deduplicate(server: MagnetarProcess, *, on: bool = True) -> None:
    url = f"{server.http_url}/admin/v2/namespaces/public/default/deduplication"
    request = urllib.request.Request(url, b"true" if on else b"false", method="POST")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).close()


def read_all(server: MagnetarProcess, topic: str, last: bytes) -> list[bytes]:
    """The messages of a topic up to this one."""
    found: list[bytes] = []
    with client_of(server) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while last not in found:
            found.append(reader.read_next(int(PATIENCE_S * 1000)).data())
    return found


def instance_pids(server: MagnetarProcess) -> list[int]:
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [
        int(one)
        for one in children
        if b"magnetar.functions.runner" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]


def send_some(server: MagnetarProcess, first: int) -> None:
    """Some are in batches and some alone, and a kill may come before they are stored: then they are missing."""
    with client_of(server) as client:
        batches = client.create_producer(
            "taken", batching_enabled=True, batching_max_messages=7, batching_max_publish_delay_ms=5
        )
        alone = client.create_producer("taken")
        for number in range(first, first + _ROUND):
            (alone if number % 5 == 0 else batches).send_async(b"m%06d" % number, None)
        with suppress(pulsar.PulsarException):
            batches.flush()
            alone.flush()


@pytest.mark.parametrize(("kills", "seed"), [(6, 1), pytest.param(20, 2, marks=pytest.mark.soak)])
def test_kills_neither_lose_an_output_nor_double_it(tmp_path: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    with MagnetarProcess(settings=SETTINGS, data_dir=tmp_path / "data") as server:
        deduplicate(server)
        worker = Worker(server)
        worker.create(
            "once",
            "plain.py",
            "plain.process",
            inputs=["taken"],
            output="made",
            processingGuarantees="EFFECTIVELY_ONCE",
            subscriptionPosition="Earliest",
        )
        in_a_row = 0
        for number in range(kills):
            worker.until_running("once")
            send_some(server, number * _ROUND)
            time.sleep(rng.random() / 4)  # the moment of the kill is the seed's
            if rng.random() < 0.5 and in_a_row < 2:  # the pause after each failure doubles
                in_a_row += 1
                for pid in instance_pids(server):
                    os.kill(pid, signal.SIGKILL)
                worker.until("once", lambda one: not one["running"])
            else:
                in_a_row = 0
                server.kill()
                server.start()
        worker.until_running("once")
        with client_of(server) as client:
            client.create_producer("taken").send(b"last")
        given = read_all(server, "taken", b"last")
        made = read_all(server, "made", b"<last>")
        assert len(given) > kills * _ROUND / 2
        assert made == [b"<%s>" % one for one in given], f"seed {seed}"


def test_message_that_fails_is_overtaken_by_none() -> None:
    """The broker would take the output of an overtaken message for a duplicate."""
    with MagnetarProcess(settings=SETTINGS) as server:
        deduplicate(server)
        worker = Worker(server)
        worker.partitioned("parts", 2)
        worker.create(
            "retry",
            "fails_once.py",
            "fails_once.process",
            inputs=["parts"],
            output="tried",
            processingGuarantees="EFFECTIVELY_ONCE",
        )
        sent = [[b"fail-%d" % part, b"after-%d" % part, b"last-%d" % part] for part in range(2)]
        with client_of(server) as client:
            for part, messages in enumerate(sent):
                producer = client.create_producer(f"persistent://public/default/parts-partition-{part}")
                for one in messages:
                    producer.send(one)
            reader = client.create_reader("tried", pulsar.MessageId.earliest)
            made = [reader.read_next(int(PATIENCE_S * 1000)).data() for _ in range(6)]
        assert [[one for one in made if one.endswith(b"%d" % part)] for part in range(2)] == sent
        assert worker.until("retry", lambda one: one["numUserExceptions"] == 2)["running"]


def test_guarantee_that_cannot_be_kept_is_said() -> None:
    with MagnetarProcess(settings=SETTINGS) as server:
        deduplicate(server)
        worker = Worker(server)
        worker.partitioned("split", 2)
        config = {"inputs": ["in"], "processingGuarantees": "EFFECTIVELY_ONCE", "className": "plain.process"}
        worker.declare("splits", "plain.py", output="split", **config)
        assert "must not be a partitioned topic" in worker.until("splits", lambda one: one["error"])["error"]
        worker.create("plain", "plain.py", "plain.process", output="out", **_without(config, "className"))
        deduplicate(server, on=False)
        worker.ask("plain/restart", "POST")
        assert "needs deduplication" in worker.until("plain", lambda one: one["error"])["error"]


def _without(config: dict[str, Any], word: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != word}
