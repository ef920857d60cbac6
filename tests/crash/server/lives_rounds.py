"""Kill the server again and again under clients of both protocols whose topics are deleted and made again.

    python -m tests.crash.server.lives_rounds --rounds 200 --seed 1

The load is lives_load.py: idempotent producers, a transactional one that stores its positions in its transactions, and
a Pulsar producer and consumer in a namespace that deduplicates.  After each kill the load gets to the end of what it
was doing, and what the server then has is exactly what the load knows (lives.py).
"""

import random
import time
from collections.abc import Callable
from typing import Any

from tests.crash.server import killing
from tests.crash.server.killing import RECOVERY_KILL_SHARE, Broken, Server
from tests.crash.server.lives import NAMESPACE, History, Inspector
from tests.crash.server.pulsar_rounds import request

RUN_SECONDS_MAX = 0.8
RECOVERY_SECONDS_MAX = 0.6
SETTINGS = {
    "auto.create.topics.enable": "false",
    "journal.bytes": str(64 << 20),
    "log.cleaner.backoff.ms": "20",
}


class Load(killing.Load):
    def __init__(self, server: Server, seed: int, marks: str = "") -> None:
        self.history = History()
        super().__init__("lives_load", server.bootstrap, server.pulsar_url, server.http_url, str(seed), marks)

    @property
    def acknowledged(self) -> list[set[int]]:
        return []

    def note(self, event: dict[str, Any]) -> None:
        self.history.note(event)
        self.ack_count = self.history.acked_count


def prepare(server: Server) -> None:
    """Make the namespace of the load's Pulsar topics."""
    request(server.http_url, "PUT", f"namespaces/{NAMESPACE}", {"replication_clusters": ["standalone"]})
    request(server.http_url, "POST", f"namespaces/{NAMESPACE}/deduplication", True)


class Rounds:
    """On a server that is up and has no data."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.choose = random.Random(seed)
        prepare(server)
        self.load = Load(server, seed)
        self.inspector = Inspector(server.bootstrap)

    def run(self, count: int, say: Callable[[str], None]) -> str:
        """Returns the closing line, raises `Broken`."""
        began = time.monotonic()
        history = self.load.history
        try:
            for number in range(1, count + 1):
                try:
                    self._one()
                except Broken as broken:
                    raise Broken(f"round {number}: {broken}") from None
                if number % 20 == 0:
                    say(
                        f"round {number}: {history.acked_count} records, {history.transaction_count} transactions,"
                        f" {history.life_count} topics, {time.monotonic() - began:.0f} s"
                    )
        finally:
            self.load.close()
        return (
            f"{count} rounds, {history.acked_count} records and {history.transaction_count} transactions"
            f" acknowledged, {history.life_count} topics, {self.inspector.compacted_count} compacted,"
            f" {time.monotonic() - began:.0f} s: all kept"
        )

    def _one(self) -> None:
        load, server, choose = self.load, self.server, self.choose
        before = load.ack_count
        load.wait_until(lambda: load.ack_count > before, "a record is acknowledged after the restart")
        time.sleep(choose.uniform(0, RUN_SECONDS_MAX))  # the random moment: nothing is waited for
        server.kill()
        while choose.random() < RECOVERY_KILL_SHARE:
            server.spawn()
            time.sleep(choose.uniform(0, RECOVERY_SECONDS_MAX))
            server.kill()
        server.spawn()
        server.wait_ready()
        load.ask("pause")
        self.inspector.inspect(load.history, quiet=True)
        load.ask("resume")


if __name__ == "__main__":
    raise SystemExit(killing.main("lives_rounds", __doc__, Rounds, SETTINGS))
