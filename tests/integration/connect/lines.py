"""A worker of Kafka Connect that carries a file's lines into a topic, and the topic's lines into another file.

The worker is one of a distributed cluster: its connectors are made over REST, and it keeps them, how far their sources
have got, and how they fare, in three compacted topics of its own.
"""

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.java_programs import JavaProgram
from tests.integration.partition_reader import read_partition

WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
TOPIC = "lines"
INTERNAL = ("connect-configs", "connect-offsets", "connect-status")
TIMEOUT_S = 240.0
REQUEST_S = 30.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Broken(Exception):
    """A promise was broken; one line."""


class Lines:
    """One server, one worker, two files, and the lines that were written to the first of them."""

    def __init__(self, server: MagnetarProcess, folder: Path, *, exactly_once: bool) -> None:
        self.server = server
        self.count = 0
        self._source, self._target = folder / "source", folder / "target"
        self._is_exactly_once = exactly_once
        # What is sent again may go to another partition: where lines may come twice, there is an order in one only.
        self._partitions = 2 if exactly_once else 1
        self._source.touch()
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        properties = folder / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        self.worker = JavaProgram(WORKER, [str(properties)], timeout_s=TIMEOUT_S)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(TOPIC, self._partitions, 1)])[TOPIC].result(TIMEOUT_S)

    def _settings(self) -> dict[str, object]:
        internal = dict(zip(("config", "offset", "status"), INTERNAL, strict=True))
        return {
            "bootstrap.servers": self.server.bootstrap,
            "group.id": "connect",
            "listeners": self._url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **{f"{kind}.storage.topic": topic for kind, topic in internal.items()},
            **{f"{kind}.storage.replication.factor": 1 for kind in internal},
            "offset.storage.partitions": 2,
            "status.storage.partitions": 2,
            "offset.flush.interval.ms": 200,
            "exactly.once.source.support": "enabled" if self._is_exactly_once else "disabled",
            "plugin.discovery": "service_load",
            # What was killed leaves its groups by this time, and what it did is done anew at once.
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "consumer.session.timeout.ms": 6000,
            "consumer.heartbeat.interval.ms": 500,
            "consumer.isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 200,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.worker.kill()

    def connect(self) -> None:
        """Make both connectors."""
        once = (
            {"exactly.once.support": "required", "transaction.boundary": "poll"}
            if self._is_exactly_once
            else {}
        )
        source = {"connector.class": "FileStreamSource", "file": str(self._source), "topic": TOPIC, **once}
        sink = {"connector.class": "FileStreamSink", "file": str(self._target), "topics": TOPIC}
        for name, config in (("source", source), ("sink", sink)):
            self._ask("PUT", f"/connectors/{name}/config", {**config, "tasks.max": "1"})

    def write(self, count: int) -> None:
        with self._source.open("a") as file:
            file.writelines(f"{number}\n" for number in range(self.count, self.count + count))
        self.count += count

    def wait_for(self, count: int) -> None:
        """Until so many different lines are in the target."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := len(set(self.target()))) < count:
            if not self.worker.running:
                raise Broken(f"the worker has ended by itself:\n{self.worker.tail}")
            if time.monotonic() > deadline:
                raise Broken(f"{found} lines of {count} came:\n{self.worker.tail}")
            time.sleep(0.1)

    def target(self) -> list[int]:
        if not self._target.exists():
            return []
        whole, _, _ = self._target.read_text().rpartition("\n")
        return [int(line) for line in whole.split()]

    def finish(self) -> None:
        """Until all lines have come; then they came as they have to."""
        self.wait_for(self.count)
        found = self._in_topic()
        every = sorted(number for numbers in found.values() for number in numbers)
        wanted = list(range(self.count))
        if (every if self._is_exactly_once else sorted(set(every))) != wanted:
            raise Broken(
                f"{TOPIC} has {len(every)} lines, {len(set(every))} of them different, of {self.count}"
            )
        target = list(dict.fromkeys(self.target()))
        if sorted(target) != wanted:
            raise Broken(f"the target has {len(target)} different lines of {self.count}")
        for index, numbers in found.items():
            firsts = list(dict.fromkeys(numbers))
            carried = [number for number in target if number in set(numbers)]
            if not firsts == carried == sorted(firsts):
                raise Broken(f"lines of partition {index} are out of order: {firsts} became {carried}")

    def wait_until_running(self) -> None:
        """Until both connectors say that they and their tasks run: they do so behind what they carry."""
        deadline = time.monotonic() + TIMEOUT_S
        while (states := self._states()) != {name: ["RUNNING"] * 2 for name in ("source", "sink")}:
            if time.monotonic() > deadline:
                raise Broken(f"not both connectors run: {states}\n{self.worker.tail}")
            time.sleep(0.1)

    def _states(self) -> dict[str, list[str]]:
        answer = self._ask("GET", "/connectors?expand=status")
        return {
            name: [one["status"]["connector"]["state"], *(task["state"] for task in one["status"]["tasks"])]
            for name, one in answer.items()
        }

    def policies(self) -> set[str]:
        """How Connect has its own topics cleaned up."""
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        asked = admin.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in INTERNAL]
        )
        return {found.result(TIMEOUT_S)["cleanup.policy"].value for found in asked.values()}

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """What the worker answers, once it can: until it is up and has joined its group it refuses, or is not there."""
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            request = urllib.request.Request(
                self._url + path, data, {"Content-Type": "application/json"}, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
                    return json.load(answer)
            except OSError as failure:
                why = failure.read().decode() if isinstance(failure, urllib.error.HTTPError) else str(failure)
                if not self.worker.running or time.monotonic() > deadline:
                    raise Broken(f"{method} {path}: {why}\n{self.worker.tail}") from failure
                time.sleep(0.2)

    def _in_topic(self) -> dict[int, list[int]]:
        """The committed lines of each partition."""
        return {
            index: [int(message.value() or b"-1") for message in records]
            for index in range(self._partitions)
            if (records := read_partition(self.server, TOPIC, index, timeout_s=TIMEOUT_S, no_end=Broken))
        }
