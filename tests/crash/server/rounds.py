"""Kill the server again and again under Kafka clients, and hold it to what it has acknowledged.

    python -m tests.crash.server.rounds --rounds 200 --seed 1

The rounds of `killing.py` under the load of `load.py`.  Checked after each round, from the broker:

* no partition ends before the last acknowledged record;
* no group offset is behind an acknowledged commit, nor ahead of anything that was ever sent.

The producer never gives up, so the log as it is read back says that nothing acknowledged is lost, nothing is there
twice, offsets are dense, order holds, and each acknowledgement named the right offset.
"""

from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.server import killing
from tests.crash.server.killing import PARTITIONS, TIMEOUT_S, Broken, Server, Witness

TOPIC = "crash-load"
GROUP = "crash-group"
TOPIC_CONFIG = {"segment.bytes": str(2 << 20)}  # so that rounds also cross the roll-over of a ledger
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "journal.bytes": str(64 << 20),  # so that rounds also meet the journal going around
}


class Load(killing.Load):
    def __init__(self, bootstrap: str, seed: int) -> None:
        self.acked: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]  # number -> offset
        self.committed = [0] * PARTITIONS
        self.wanted = [0] * PARTITIONS
        self.commit_count = 0
        super().__init__("load", bootstrap, TOPIC, GROUP, str(PARTITIONS), str(seed))

    @property
    def acknowledged(self) -> list[dict[int, int]]:
        return self.acked

    def note(self, event: dict[str, Any]) -> None:
        for partition, number, offset in event.get("acks", ()):
            self.acked[partition][number] = offset
            self.ack_count += 1
        for partition, offset in event.get("wanted", ()):
            self.wanted[partition] = max(self.wanted[partition], offset)
        for partition, offset in event.get("committed", ()):
            self.committed[partition] = max(self.committed[partition], offset)
            self.commit_count += 1


class Rounds(killing.Rounds):
    load: Load

    def __init__(self, server: Server, seed: int) -> None:
        super().__init__(server, seed)
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=TOPIC_CONFIG)])[TOPIC].result(TIMEOUT_S)
        self.load, self.witness = Load(server.bootstrap, seed), Witness(server.bootstrap, TOPIC, GROUP)
        self._committed: list[int] = []

    def wait_for_progress(self) -> None:
        load, acks, commits = self.load, self.load.ack_count, self.load.commit_count
        load.wait_until(lambda: load.ack_count > acks, "a record is acknowledged after the restart")
        if self.choose.random() < 0.5:
            load.wait_until(lambda: load.commit_count > commits, "a commit is acknowledged after the restart")

    def note_promises(self) -> None:
        self._committed = list(self.load.committed)

    def check_promises(self) -> None:
        found = self.witness.committed()
        self.load.ask("mark")
        for partition, offset in enumerate(self._committed):
            if found[partition] < offset:
                raise Broken(
                    f"the group is at {found[partition]} of partition {partition}, {offset} was acknowledged"
                )
            if found[partition] > self.load.wanted[partition]:
                raise Broken(
                    f"the group is at {found[partition]} of partition {partition}, beyond any commit"
                )

    def check_quiet(self) -> None:
        for partition, acked in enumerate(self.load.acked):
            for number, offset in acked.items():
                if offset != number:
                    raise Broken(
                        f"record {number} of partition {partition} was acknowledged at offset {offset}"
                    )

    def summary(self) -> str:
        return f"{self.load.ack_count} records and {self.load.commit_count} commits acknowledged"

    def close(self) -> None:
        self.load.close()
        self.witness.close()


if __name__ == "__main__":
    raise SystemExit(killing.main("rounds", __doc__, Rounds, SETTINGS))
