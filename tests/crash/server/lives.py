"""What must hold of topics that were written to, deleted and made again, however the server ended meanwhile.

`History` is what a load (lives_load.py) has said up to some moment; `inspect` asks a server that was started afterwards
what it has, and raises `Broken` for anything that cannot have become of that history:

* a topic exists, or does not, as was acknowledged;
* each acknowledged record is there, at its offset, whole, once; nothing is there that was not sent, and nothing of an
  earlier life of the topic;
* of a compacted topic the last record of each key is there, or nothing where that is a tombstone; what else is there
  is at its offset and was sent;
* of a committed transaction every record is visible to readers of committed data, of any other none, unless its commit
  was on its way: then all or none;
* a position is the last one that was acknowledged or one that was on its way, never a predecessor's.
"""

import time
import zlib
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

from tests.crash.server.killing import TIMEOUT_S, Broken, patiently

PARTITIONS = 2
NAMESPACE = "public/lives"
IDEMPOTENT = ("lives-a", "lives-b")
TRANSACTIONAL = ("lives-c",)
PULSAR = (f"persistent://{NAMESPACE}/lives-d",)
COMPACTED = ("lives-e",)
COMPACTED_TRANSACTIONAL = ("lives-f",)
TOPICS = IDEMPOTENT + TRANSACTIONAL + PULSAR + COMPACTED + COMPACTED_TRANSACTIONAL
KEYS = 9
TOMBSTONE_HEADER = "record"
"""Has what would be the value."""
TOMBSTONE_EVERY = 5


def partitions_of(topic: str) -> int:
    return 1 if topic in PULSAR else PARTITIONS


def topic_path(topic: str) -> str:
    """In the admin API."""
    return topic.replace("://", "/")


def encode(topic: str, life: int, partition: int, number: int, padding: bytes) -> bytes:
    body = f"{topic} {life} {partition} {number} ".encode() + padding
    return b"%08x " % zlib.crc32(body) + body


def key_of(number: int) -> bytes:
    """The key of a partition's record in a compacted topic."""
    return b"key-%d" % (zlib.crc32(b"%d" % number) % KEYS)


def is_tombstone(number: int) -> bool:
    return zlib.crc32(b"value of %d" % number) % TOMBSTONE_EVERY == 0


def decode(value: bytes) -> tuple[str, int, int, int]:
    """Topic, life, partition, number; ValueError if it is not whole."""
    crc, _, body = value.partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        raise ValueError(f"a record of {len(value)} bytes is damaged")
    topic, life, partition, number, _ = body.split(b" ", 4)
    return topic.decode(), int(life), int(partition), int(number)


@dataclass
class Life:
    number: int = 0
    state: str = "deleted"
    sent: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    acked: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    stored: list[int] = field(default_factory=lambda: [-1] * PARTITIONS)
    wanted: list[set[int]] = field(default_factory=lambda: [set() for _ in range(PARTITIONS)])
    """Since what is stored."""
    transactions: dict[int, tuple[str, list[tuple[int, int]]]] = field(default_factory=dict)


class History:
    def __init__(self) -> None:
        self.lives = {topic: Life() for topic in TOPICS}
        self.acked_count = 0
        self.transaction_count = 0
        self.life_count = 0

    def note(self, event: dict[str, Any]) -> None:
        if "life" in event:
            topic, number, state = event["life"]
            if state == "creating":
                self.lives[topic] = Life(number)
                self.life_count += 1
            self.lives[topic].state = state
        elif "transaction" in event:
            topic, _, transaction, state, records = event["transaction"]
            self.lives[topic].transactions[transaction] = state, [tuple(each) for each in records]
            self.transaction_count += state in ("committed", "aborted")
        for what in ("sent", "acked", "wanted", "stored"):
            if what not in event:
                continue
            topic, _, partition, value = event[what]
            life = self.lives[topic]
            match what:
                case "sent":
                    life.sent[partition] = value
                case "acked":
                    self.acked_count += value - life.acked[partition]
                    life.acked[partition] = value
                case "wanted":
                    life.wanted[partition].add(value)
                case "stored":
                    life.stored[partition] = value
                    life.wanted[partition].clear()


Found = dict[tuple[str, int], list[tuple[int, int, int]]]
"""By topic and partition: (offset, life, number) of each record."""


class Inspector:
    """Reads all that a server has of `TOPICS`."""

    def __init__(self, bootstrap: str, patience_s: float = TIMEOUT_S, *, may_refuse: bool = False) -> None:
        """`patience_s`: how long nothing more may come of what should; `may_refuse`: then it cannot be read."""
        self._bootstrap = bootstrap
        self._patience_s = patience_s
        self._may_refuse = may_refuse
        self.refused: set[tuple[str, int]] = set()
        """Topics and partitions that cannot be read to their end; what came of them before that was checked."""
        self.compacted_count = 0
        """Records that were acknowledged and have gone by compaction, each time that they were looked for."""

    def inspect(self, history: History, *, quiet: bool = False) -> None:
        """`quiet`: nothing is on its way, so everything sent is acknowledged."""
        # A new one each time: an old one may wait for the coordinator of a server that was killed.
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        existing = self._existing()
        for topic, life in history.lives.items():
            if life.state == "created" and topic not in existing:
                raise Broken(f"{topic} is gone, life {life.number} of it was made")
            if life.state == "deleted" and topic in existing:
                raise Broken(f"{topic} is there, life {life.number} of it was deleted")
        committed = self._read(existing, "read_committed")
        everything = self._read(existing, "read_uncommitted")
        for topic in existing:
            life = history.lives[topic]
            for partition in range(partitions_of(topic)):
                here = f"partition {partition} of {topic}"
                whole = (topic, partition) not in self.refused
                if topic in TRANSACTIONAL + COMPACTED_TRANSACTIONAL:
                    _check_transactions(
                        here,
                        life,
                        partition,
                        committed[topic, partition],
                        everything[topic, partition],
                        whole=whole,
                        compacted=topic in COMPACTED_TRANSACTIONAL,
                    )
                elif topic in COMPACTED:
                    for found in (committed, everything):
                        records = found[topic, partition]
                        _check_compacted(here, life, partition, records, quiet=quiet, whole=whole)
                    if whole:
                        self.compacted_count += max(life.acked[partition] - len(records), 0)
                else:
                    for found in (committed, everything):
                        records = found[topic, partition]
                        _check_records(here, life, partition, records, quiet=quiet, whole=whole)
            self._check_positions(topic, life)

    def _consumer(self, isolation: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "log_level": 0,
                "group.id": "inspector",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "allow.auto.create.topics": False,
            }
        )

    def _existing(self) -> set[str]:
        listed = patiently(lambda: self._admin.list_topics(timeout=TIMEOUT_S), "the list of topics").topics
        return {topic for topic in TOPICS if topic in listed or topic.removeprefix("persistent://") in listed}

    def _read(self, topics: set[str], isolation: str) -> Found:
        found: Found = {
            (topic, partition): [] for topic in topics for partition in range(partitions_of(topic))
        }
        waiting = set(found)
        consumer = self._consumer(isolation)
        try:
            consumer.assign([confluent_kafka.TopicPartition(*each, 0) for each in found])
            deadline = time.monotonic() + self._patience_s
            while waiting:
                messages = consumer.consume(500, 0.05)
                if messages:
                    deadline = time.monotonic() + self._patience_s
                elif time.monotonic() > deadline:
                    self._refuse(waiting, "no more comes")
                    break
                for message in messages:
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    assert topic is not None
                    assert partition is not None
                    error = message.error()
                    if error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        waiting.discard((topic, partition))
                    elif error is not None:
                        self._refuse({(topic, partition)}, error)
                        waiting.discard((topic, partition))
                    else:
                        assert offset is not None
                        where = f"offset {offset} of partition {partition} of {topic}"
                        found[topic, partition].append((offset, *_identify(where, topic, partition, message)))
        finally:
            consumer.close()
        return found

    def _refuse(self, partitions: set[tuple[str, int]], why: object) -> None:
        if not self._may_refuse:
            raise Broken(f"{sorted(partitions)} cannot be read to the end: {why}")
        self.refused |= partitions

    def _check_positions(self, topic: str, life: Life) -> None:
        asked = confluent_kafka.ConsumerGroupTopicPartitions(
            f"group-{topic}",
            [confluent_kafka.TopicPartition(topic, each) for each in range(partitions_of(topic))],
        )
        found = patiently(
            lambda: self._admin.list_consumer_group_offsets([asked])[asked.group_id].result(),
            f"the positions in {topic}",
        ).topic_partitions
        for each in found:
            stored, wanted = life.stored[each.partition], life.wanted[each.partition]
            here = f"the position in partition {each.partition} of {topic} (life {life.number})"
            if topic in PULSAR:
                if each.offset > max(wanted, default=0):
                    raise Broken(f"{here} is {each.offset}, {max(wanted, default=0)} were acknowledged")
            elif max(each.offset, -1) not in {stored, *wanted}:
                raise Broken(f"{here} is {each.offset}, not {stored} or one of {sorted(wanted)}")


def _identify(where: str, topic: str, partition: int, message: confluent_kafka.Message) -> tuple[int, int]:
    value = message.value()
    described = dict(message.headers() or []).get(TOMBSTONE_HEADER) if value is None else value
    try:
        of, life, of_partition, number = decode(described if isinstance(described, bytes) else b"")
    except ValueError as error:
        raise Broken(f"{where}: {error}") from None
    if (of, of_partition) != (topic, partition):
        raise Broken(f"{where} holds a record of partition {of_partition} of {of}")
    if topic in COMPACTED + COMPACTED_TRANSACTIONAL and message.key() != key_of(number):
        raise Broken(f"{where} holds record {number} with the key {message.key()!r}")
    return life, number


def _check_life(here: str, life: Life, found: list[tuple[int, int, int]]) -> None:
    for offset, of_life, number in found:
        if of_life != life.number:
            raise Broken(
                f"{here} is in life {life.number}, offset {offset} holds record {number} of life {of_life}"
            )


def _check_records(
    here: str, life: Life, partition: int, found: list[tuple[int, int, int]], *, quiet: bool, whole: bool
) -> None:
    _check_life(here, life, found)
    for expected, (offset, _, number) in enumerate(found):
        if (offset, number) != (expected, expected):
            raise Broken(f"{here} has record {number} at offset {offset} where {expected} must be")
    sent, acked = life.sent[partition], life.acked[partition]
    if whole and len(found) < acked:
        raise Broken(f"{here} has {len(found)} records, {acked} were acknowledged")
    if len(found) > (acked if quiet else sent):
        raise Broken(f"{here} has {len(found)} records, {sent} were sent")


def _check_compacted(
    here: str, life: Life, partition: int, found: list[tuple[int, int, int]], *, quiet: bool, whole: bool
) -> None:
    _check_life(here, life, found)
    numbers = [number for _, _, number in found]
    if any(offset != number for offset, _, number in found) or sorted(set(numbers)) != numbers:
        raise Broken(f"{here} has records out of place, out of order or twice: {found}")
    sent, acked = life.sent[partition], life.acked[partition]
    if numbers and numbers[-1] >= (acked if quiet else sent):
        raise Broken(f"{here} has record {numbers[-1]}, {sent} were sent, {acked} acknowledged")
    last = {key_of(number): number for number in range(acked)}
    newest = {key_of(number): number for number in numbers}
    for key, number in last.items():
        shown = newest.get(key, -1)
        is_gone = shown < 0 and is_tombstone(number)
        if whole and shown < number and not is_gone:
            raise Broken(f"{here} has record {shown} as the last one of {key!r}, {number} was acknowledged")


def _check_transactions(
    here: str,
    life: Life,
    partition: int,
    committed: list[tuple[int, int, int]],
    everything: list[tuple[int, int, int]],
    *,
    whole: bool,
    compacted: bool = False,
) -> None:
    def without_earlier(missing: set[int], there: set[int]) -> set[int]:
        """What must not be missing: a compacted topic need not have what a later record of the key replaces."""
        newest = {key_of(number): number for number in sorted(there)}
        return {number for number in missing if not compacted or newest.get(key_of(number), -1) < number}

    for found in (committed, everything):
        _check_life(here, life, found)
        numbers = [number for _, _, number in found]
        if sorted(set(numbers)) != numbers:
            raise Broken(f"{here} has records out of order or twice: {numbers}")
    visible = {number for _, _, number in committed}
    present = {number for _, _, number in everything}
    hidden = without_earlier(visible - present, present)
    if whole and hidden:
        raise Broken(f"{here} hides committed records from readers of everything: {sorted(hidden)}")
    known = set()
    for transaction, (state, records) in life.transactions.items():
        mine = {number for of_partition, number in records if of_partition == partition}
        known |= mine
        shown = mine & visible
        lacks = without_earlier(mine - shown, visible)
        what = f"{len(shown)} of {len(mine)} records of transaction {transaction}, which is {state},"
        if whole and state == "committed" and lacks:
            raise Broken(f"{here}: {what} are visible")
        if whole and state == "committing" and shown and lacks:
            raise Broken(f"{here}: {what} are visible")
        if state not in ("committed", "committing") and shown:
            raise Broken(f"{here}: {what} are visible to readers of committed data")
    if present - known:
        raise Broken(f"{here} has records that were never sent: {sorted(present - known)}")
