"""EFFECTIVELY_ONCE where messages fail, and where it cannot be had; its kills are in `tests/soak/functions.py`."""

from typing import Any

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import PATIENCE_S, SETTINGS, Worker, client_of, deduplicate

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(1200)]


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
