"""Writes records to a topic of Kafka in transactions: consumers of committed records see each record once.

Each partition of the source has its own transactional id, `PREFIX-TOPIC-REPLICATOR-PARTITION`, and a group of that
name.  A replicator that is registered again gets another `REPLICATOR`, because its topic may be a new one.

A transaction has the records of a chunk, and commits the beginning of the next chunk as the group's offset: both become
visible together or not at all.  A producer that takes over the id ends open transactions of that id, and then reads the
offset.  The target has all records before this offset, so the producer does not send them again.

If the target refuses a record of a chunk, the producer commits the chunk without that offset.  So if the process dies
before its caller has stored that record elsewhere, the next producer sends the chunk again.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from magnetar.replicators.errors import PoisonRecords, TargetUnavailable
from magnetar.replicators.kafka.producer import ALONE, SILENT, KafkaClient
from magnetar.replicators.kafka.settings import GAPLESS, SERVERS, TRANSACTIONAL_ID
from magnetar.replicators.provider import ReplicatedRecord

ANSWER_S: Final = 30.0
LATE_S: Final = 5.0  # how much longer the client may take
# What a client that reads the group's offset has of the settings.
_OF_CONNECTIONS: Final = ("security.protocol", "sasl.", "ssl.", "client.id", SERVERS)


class TransactionalKafkaProducer:
    """See the module's text.  No other replicator has the same `name`."""

    def __init__(self, settings: Mapping[str, str], target: str, name: str) -> None:
        """Raises TargetUnavailable, CredentialsRefused."""
        self._settings = {**settings, GAPLESS: "false"}  # a transaction is whole, or is not there
        self._target = target
        self._prefix = f"{self._settings.pop(TRANSACTIONAL_ID)}-{name}"
        self._lanes: dict[int, _Lane] = {}
        client = KafkaClient(self._settings, target)
        try:
            self._count = client.partition_count()
        finally:
            client.close()

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        if not records:
            return
        partition = records[0].partition
        lane = self._lanes.get(partition)
        if lane is None:
            own = {**self._settings, TRANSACTIONAL_ID: f"{self._prefix}-{partition}"}
            lane = self._lanes[partition] = _Lane(own, self._target, partition % self._count)
        lane.send(records)

    def flush(self) -> None:
        poison = [found for lane in self._lanes.values() for found in lane.flush()]
        if poison:
            raise PoisonRecords(poison)

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()


class _Lane:
    """The records of one partition.  The target has all records before `offset`."""

    def __init__(self, settings: Mapping[str, str], target: str, partition: int) -> None:
        """Raises TargetUnavailable, CredentialsRefused."""
        self._settings = settings
        self._target = target
        self._partition = partition
        self._chunk: list[ReplicatedRecord] = []
        shared = {name: value for name, value in settings.items() if name.startswith(_OF_CONNECTIONS)}
        self._group = Consumer({**shared, "group.id": settings[TRANSACTIONAL_ID], "logger": SILENT})
        self._client = self._opened(settings)
        try:
            self.offset = self._noted()
        except BaseException:
            self.close()
            raise

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        new = [record for record in records if record.offset >= self.offset]
        if new and not self._chunk:
            self._begin()
        self._chunk += new
        self._produce(new)

    def flush(self) -> list[tuple[ReplicatedRecord, str]]:
        """Commit the chunk; returns the records that the target refuses."""
        chunk, self._chunk = self._chunk, []
        if not chunk:
            return []
        self._client.wait()
        poison = list(self._client.poison)
        is_alone = False
        while self._client.suspects:
            # A transaction ends with the first batch that a broker refuses, so each turn finds one record at least.
            poison += self._client.suspects if is_alone else []
            never = {record.offset for record, _ in poison}
            self._reopen({**self._settings, **ALONE})
            is_alone = True
            self._begin()
            self._produce([record for record in chunk if record.offset not in never])
            self._client.wait()
            poison += self._client.poison
        self._commit(None if poison else chunk[-1].offset + 1)
        self._client.poison = []
        if is_alone:
            self._reopen(self._settings)
        return poison

    def close(self) -> None:
        self._client.close()
        self._group.close()

    # --- inside

    def _reopen(self, settings: Mapping[str, str]) -> None:
        """Take over the id by another client, which ends an open transaction."""
        self._client.close()
        self._client = self._opened(settings)

    def _opened(self, settings: Mapping[str, str]) -> KafkaClient:
        client = KafkaClient(settings, self._target)
        try:
            client.partition_count()  # says soon, and in other words than the next call, when no broker answers
            with client.judging():
                _answered(client.producer.init_transactions, ANSWER_S)
        except BaseException:
            client.close()
            raise
        return client

    def _noted(self) -> int:
        """The offset that the last transaction has committed."""
        with self._client.judging():
            [found] = self._group.committed([TopicPartition(self._target, self._partition)], ANSWER_S)
            if found.error is not None:
                raise KafkaException(found.error)
        return max(found.offset, 0)

    def _begin(self) -> None:
        self._client.begin()
        with self._client.judging():
            self._client.producer.begin_transaction()

    def _produce(self, records: Sequence[ReplicatedRecord]) -> None:
        for record in records:
            self._client.produce(record, self._partition)

    def _commit(self, following: int | None) -> None:
        """Commit the transaction; `following` is the offset of the next chunk, if the transaction must commit it."""
        producer = self._client.producer
        with self._client.judging():
            if following is not None:
                noted = [TopicPartition(self._target, self._partition, following)]
                group = self._group.consumer_group_metadata()
                _answered(producer.send_offsets_to_transaction, noted, group, ANSWER_S)
            _answered(producer.commit_transaction, ANSWER_S)
        if following is not None:
            self.offset = following


def _answered(call: Callable[..., object], *arguments: Any) -> None:
    """Call a method of librdkafka that waits for a coordinator; its last argument is its limit, in seconds.

    librdkafka may wait for ever, whatever its limit, if the connection to the coordinator was cut at that moment.  Such
    a call is left alone: the next client takes over the transactional id, and nothing of this one counts any more.

    Raises:
        TargetUnavailable: no answer came in time.
        KafkaException: from the call.
    """
    answer: Future[object] = Future()

    def run() -> None:
        try:
            answer.set_result(call(*arguments))
        except BaseException as error:  # noqa: BLE001  the caller gets it
            answer.set_exception(error)

    Thread(target=run, name="magnetar-coordinator", daemon=True).start()
    limit_s = arguments[-1] + LATE_S
    try:
        answer.result(limit_s)
    except TimeoutError:
        raise TargetUnavailable(
            f"Kafka's coordinator of transactions did not answer for {limit_s:g} s"
        ) from None
