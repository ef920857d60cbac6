"""A server with its own worker, as `make run` has it, and what tests of pipelines do with both."""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.client.errors import ClientError
from magnetar.client.pipelines import Pipeline, PipelinesClient
from magnetar.client.rest import RestClient
from magnetar.testing.server import MagnetarProcess

PATIENCE_S = 240  # a start of Spark takes ten seconds, on a busy machine six times as many
KEYS = 10
_names = itertools.count()


class Processes:
    """The processes that came of one, with their command lines, as the machine lists them."""

    @staticmethod
    def below(root: int) -> dict[int, str]:
        """All descendants of `root` and itself, {pid: command line}."""
        listed = subprocess.run(
            ["ps", "-eww", "-o", "pid,ppid,stat,args"], capture_output=True, text=True, check=True
        )
        rows = [line.split(None, 3) for line in listed.stdout.splitlines()[1:]]
        found = {root}
        for pid, parent, _, _ in sorted(rows, key=lambda row: int(row[0])):
            if int(parent) in found:
                found.add(int(pid))
        return {int(pid): args for pid, _, state, args in rows if int(pid) in found and state[0] != "Z"}

    @staticmethod
    def there(pids: "Mapping[int, str]") -> dict[int, str]:
        """Those of `pids` that still are, under the same command line."""
        return {pid: args for pid, args in pids.items() if _command_line(pid) == args}


def _command_line(pid: int) -> str | None:
    try:
        parts = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return b" ".join(part for part in parts if part).decode(errors="replace") or None


class World:
    """See the module's text."""

    def __init__(self, server: MagnetarProcess) -> None:
        self.server = server
        self.client = PipelinesClient(server.http_url, retry_s=60.0)
        self.rest = RestClient(server.http_url)
        self._producer = ck.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
        self._sent: dict[str, int] = defaultdict(int)

    def close(self) -> None:
        for row in self.client.all():
            self.client.delete(row.name, force=True)
        self.client.close()
        self.rest.close()

    # --- the server's process and those of its worker

    @property
    def worker_pid(self) -> int:
        found = self.client.worker()
        assert found is not None, "there is no worker"
        return int(found["pid"])

    @property
    def log(self) -> str:
        return (self.server.data_dir / "pipelines" / "worker.log").read_text(errors="replace")

    def kill(self, wanted: str) -> bool:
        """SIGKILL to one process below the worker whose command line has `wanted`; whether there was one."""
        for pid, args in sorted(Processes.below(self.worker_pid).items(), reverse=True):
            if wanted in args:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    # --- pipelines

    def copy(
        self, source: str, sink: str, sql: str = "select key, value from source", **options: object
    ) -> str:
        """Declare a pipeline from topic to topic; its name."""
        name = f"copy-{next(_names)}"
        config = {"source": {"subscribe": source, **options}, "sql": sql, "sink": {"topic": sink}}
        self.client.create(name, "query", config)
        return name

    def until(self, what: "Callable[[], object]", patience_s: float = PATIENCE_S) -> None:
        give_up_at = time.monotonic() + patience_s
        while not what():
            if time.monotonic() > give_up_at:
                raise AssertionError(f"it did not come to pass; {self.client.all()}\n{self._evidence()}")
            time.sleep(0.25)

    def _evidence(self) -> str:
        """The end of the worker's log, and what its queries and tasks wait for: the JVM writes its threads there."""
        log, processes = self.log, Processes.below(self.server.pid)
        for pid, args in processes.items():
            if "bin/java" in args:
                os.kill(pid, signal.SIGQUIT)
        give_up_at = time.monotonic() + 10
        while "JNI global refs" not in self.log[len(log) :] and time.monotonic() < give_up_at:
            time.sleep(0.25)
        threads = self.log[len(log) :].split("\n\n")
        busy = [one for one in threads if "Executor task launch" in one or "stream execution" in one]
        return "\n\n".join(
            [
                log[-4000:],
                *(one[:2000] for one in busy),
                *(f"{pid} {args[:200]}" for pid, args in processes.items()),
            ]
        )

    def until_state(self, name: str, state: str) -> Pipeline:
        self.until(lambda: self.get(name).state == state)
        return self.get(name)

    def get(self, name: str) -> Pipeline:
        return self.client.get(name)

    def backlog(self, name: str) -> int | None:
        """Records that the pipeline's subscription holds; None while there is none."""
        try:
            found = self.rest.positions(self.get(name).subscription)
        except ClientError:
            return None
        return sum(position.backlog for position in found) if found else None

    # --- records: numbers in order, with a few keys

    def topic(self, partitions: int = 2) -> str:
        name = f"numbers-{os.getpid()}-{next(_names)}"
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
        return name

    def write(self, topic: str, count: int) -> None:
        """The next `count` numbers, acknowledged when this returns."""
        first = self._sent[topic]
        for number in range(first, first + count):
            while True:
                try:
                    self._producer.produce(topic, key=f"k{number % KEYS}", value=str(number))
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(PATIENCE_S) == 0
        self._sent[topic] = first + count

    def committed(self, topic: str) -> list[tuple[str, int]]:
        """What a consumer of committed records sees of a topic now: keys and numbers, of each partition in order."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "group.id": f"check-{next(_names)}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        try:
            partitions = consumer.list_topics(topic, 30).topics[topic].partitions
            consumer.assign([ck.TopicPartition(topic, number, 0) for number in partitions])
            records, left = [], set(partitions)
            give_up_at = time.monotonic() + 60
            while left and time.monotonic() < give_up_at:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    records.append(((message.key() or b"").decode(), int(message.value() or b"-1")))
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
            assert not left, f"the end of partitions {left} did not come"
            return records
        finally:
            consumer.close()

    def check_copied(self, source: str, sink: str) -> None:
        """Wait until all numbers of `source` are in `sink`: each once, and in order for each key."""
        count = self._sent[source]
        self.until(lambda: len(self.committed(sink)) >= count)
        by_key: dict[str, list[int]] = defaultdict(list)
        for key, number in self.committed(sink):
            by_key[key].append(number)
        assert dict(by_key) == {f"k{key}": list(range(key, count, KEYS)) for key in range(min(KEYS, count))}


def settings(**more: Any) -> dict[str, str]:
    """Of the server: a worker that leaves the machine room for the tests."""
    return {"pipelines.worker.master": "local[2]", **more}
