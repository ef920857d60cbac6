"""Kill the server again and again under Pulsar clients, and hold it to what it has acknowledged.

    python -m tests.crash.server.pulsar_rounds --rounds 200 --seed 1

The rounds of `killing.py` under the load of `pulsar_load.py`.  Checked after each round:

* no partition ends before the last acknowledged message;
* no subscription's position is beyond a message that no consumer has acknowledged.

Checked with the producers paused, besides the log, whose namespace deduplicates, so that what the producers send
again after each restart is there once:

* every acknowledged message was processed on every subscription, and on Failover in order: none came before the one
  ahead of it;
* the backlog is empty, as the admin API and a Kafka client see it.
"""

import json
import time
import urllib.error
import urllib.request
from typing import Any

from tests.crash.server import killing
from tests.crash.server.killing import PARTITIONS, TIMEOUT_S, Broken, Server, Witness

NAMESPACE = "public/crash"
TOPIC = f"persistent://{NAMESPACE}/load"
SUBSCRIPTIONS = ("shared", "failover")
REQUEST_TIMEOUT_S = 10.0
SETTINGS = {
    "journal.bytes": str(64 << 20),  # so that rounds also meet the journal going around
    "log.segment.bytes": str(2 << 20),  # and ledgers rolling over
}


class Load(killing.Load):
    def __init__(self, url: str, seed: int) -> None:
        self.acked: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.seen: dict[str, list[set[int]]] = {
            name: [set() for _ in range(PARTITIONS)] for name in SUBSCRIPTIONS
        }
        self.seen_counts = dict.fromkeys(SUBSCRIPTIONS, 0)
        self._following = [0] * PARTITIONS  # of Failover: what may come at most
        super().__init__("pulsar_load", url, TOPIC, str(PARTITIONS), str(seed))

    @property
    def acknowledged(self) -> list[set[int]]:
        return self.acked

    def note(self, event: dict[str, Any]) -> None:
        for partition, number in event.get("acks", ()):
            self.acked[partition].add(number)
            self.ack_count += 1
        if "seen" in event:
            name, partition, numbers = event["seen"]
            for number in numbers:
                if name == "failover":
                    self._check_order(partition, number)
                self.seen[name][partition].add(number)
                self.seen_counts[name] += 1

    def _check_order(self, partition: int, number: int) -> None:
        """What came may come again; what is ahead of it must have come first."""
        following = self._following[partition]
        if number > following:
            self.broken.append(f"failover got {number} of partition {partition} before {following}")
        self._following[partition] = max(following, number + 1)


class Rounds(killing.Rounds):
    load: Load

    def __init__(self, server: Server, seed: int) -> None:
        super().__init__(server, seed)
        request(server.http_url, "PUT", f"namespaces/{NAMESPACE}", {"replication_clusters": ["standalone"]})
        request(server.http_url, "POST", f"namespaces/{NAMESPACE}/deduplication", True)
        request(server.http_url, "PUT", f"persistent/{NAMESPACE}/load/partitions", PARTITIONS)
        self.load = Load(server.pulsar_url, seed)
        # A subscription's position is its group's offset.
        self._groups = {name: Witness(server.bootstrap, TOPIC, name) for name in SUBSCRIPTIONS}
        self.witness = self._groups[SUBSCRIPTIONS[0]]

    def wait_for_progress(self) -> None:
        """Until something is acknowledged to a producer, and processed on each subscription."""
        load, acks, seen = self.load, self.load.ack_count, dict(self.load.seen_counts)
        load.wait_until(lambda: load.ack_count > acks, "a message is acknowledged after the restart")
        for name in SUBSCRIPTIONS:
            load.wait_until(
                lambda name=name: load.seen_counts[name] > seen[name],  # type: ignore[misc]
                f"a message is processed on {name} after the restart",
            )

    def note_promises(self) -> None:
        """A position may lag behind what was acknowledged: then it comes again."""

    def check_promises(self) -> None:
        positions = {name: witness.committed() for name, witness in self._groups.items()}
        self.load.ask("mark")  # what moved them meanwhile was said before
        for name, found in positions.items():
            for partition, position in enumerate(found):
                check_position(name, partition, position, self.load.seen[name][partition])

    def check_quiet(self) -> None:
        """Everything is processed on both subscriptions, and the server shows no backlog."""
        for name in SUBSCRIPTIONS:
            for partition, acked in enumerate(self.load.acked):
                self.load.wait_until(
                    lambda seen=self.load.seen[name][partition], acked=acked: acked <= seen,  # type: ignore[misc]
                    f"{name} processes all of partition {partition}",
                )
        deadline = time.monotonic() + TIMEOUT_S
        while left := self._what_is_left():
            if time.monotonic() > deadline:
                raise Broken(left)
            time.sleep(0.1)

    def _what_is_left(self) -> str:
        for name, witness in self._groups.items():
            for partition, position in enumerate(witness.committed()):
                end = len(self.load.acked[partition])
                if position != end:
                    return f"{name} is at {position} of partition {partition}, all {end} are acknowledged"
                if backlog := self._backlog(partition, name):
                    return f"{name} has a backlog of {backlog} in partition {partition}, and nothing to read"
        return ""

    def _backlog(self, partition: int, subscription: str) -> int:
        path = f"persistent/{NAMESPACE}/load-partition-{partition}/stats"
        stats = json.loads(request(self.server.http_url, "GET", path))
        return int(stats["subscriptions"][subscription]["msgBacklog"])

    def summary(self) -> str:
        again = {name: self.load.seen_counts[name] - self.load.ack_count for name in SUBSCRIPTIONS}
        return (
            f"{self.load.ack_count} messages acknowledged, processed once more: "
            f"{', '.join(f'{name} {count}' for name, count in again.items())}"
        )

    def close(self) -> None:
        self.load.close()
        for witness in self._groups.values():
            witness.close()


def request(http: str, method: str, path: str, body: object = None) -> bytes:
    """The body of the admin API's answer; `Broken` if it refuses."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(f"{http}/admin/v2/{path}", data, method=method)
    call.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(call, timeout=REQUEST_TIMEOUT_S) as answer:
            found: bytes = answer.read()
            return found
    except urllib.error.HTTPError as error:
        raise Broken(f"{method} {path} was answered with {error.code}: {error.read()[:200]!r}") from None


def check_position(subscription: str, partition: int, position: int, acknowledged: set[int]) -> None:
    """`Broken` if a message below `position` was never acknowledged."""
    for number in range(position):
        if number not in acknowledged:
            raise Broken(
                f"{subscription} is at {position} of partition {partition}, {number} was never acknowledged"
            )


if __name__ == "__main__":
    raise SystemExit(killing.main("pulsar_rounds", __doc__, Rounds, SETTINGS))
