"""Writes records to a topic of Kafka: idempotent, in order, as fast as librdkafka's own thread.

**Order.**  Records of partition `p` go to partition `p` of the target topic, or, if that has fewer partitions, to `p`
modulo their number: so records of a partition stay in order, and so do those of a key.  The producer reads the number
of the target's partitions once, when it is opened.

**Poison.**  A broker refuses a batch as a whole, so its answer does not name the bad record.  librdkafka then sends
nothing after that batch (`enable.gapless.guarantee`).  The producer sends the chunk again by a client that puts each
record into its own batch, so that the broker's answers name the record.

**An unreachable target.**  librdkafka itself tries again for minutes.  The producer ends that when no broker answers,
or when no record has arrived for some time: the caller decides when to try again.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from magnetar.replicators.errors import CredentialsRefused, PoisonRecords, TargetUnavailable
from magnetar.replicators.kafka.codes import ALL_BROKERS_DOWN, GAP, NO_TOPIC, POISON, REFUSED
from magnetar.replicators.kafka.settings import GAPLESS
from magnetar.replicators.provider import ReplicatedRecord

OPEN_S: Final = 5.0
DOWN_S: Final = 2.0  # a restart of a broker takes longer, the move of a leader does not
STALLED_S: Final = 30.0
ALONE: Final = {
    "batch.num.messages": "1",
    GAPLESS: "false",
}  # no later record overtakes a batch of one record
# What the client prints would be in the worker's log in the client's own words; errors are raised all the same.
SILENT: Final = logging.getLogger(f"{__name__}.client")
SILENT.setLevel(logging.CRITICAL + 1)
_POLL_S: Final = 0.1


class KafkaClient:
    """One client of librdkafka, and what its callbacks have reported.

    `poison` has the records that the client itself refuses, `suspects` those of batches that a broker has refused.  The
    client sends nothing after such a batch; `is_gapped` is set before the suspects are known.
    """

    def __init__(
        self, settings: Mapping[str, str], target: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._target = target
        self._now = monotonic
        self._refused = ""
        self._failed = ""
        self._down_at: float | None = None
        self._progress_at = monotonic()
        self.poison: list[tuple[ReplicatedRecord, str]] = []
        self.suspects: list[tuple[ReplicatedRecord, str]] = []
        self.is_gapped = False
        self.producer: Producer = Producer({**settings, "error_cb": self._said, "logger": SILENT})

    # --- what it does

    def partition_count(self) -> int:
        """How many partitions the target topic has; a broker that creates topics by itself creates it.

        Raises:
            TargetUnavailable, CredentialsRefused
        """
        give_up_at = self._now() + OPEN_S
        reason = "no broker answers"
        while self._now() < give_up_at:
            try:
                topic = self.producer.list_topics(self._target, 0.5).topics[self._target]
            except KafkaException as error:
                reason = self.judged(error.args[0])
            else:
                if topic.error is None and topic.partitions:
                    return len(topic.partitions)
                reason = self.judged(topic.error) if topic.error is not None else "it has no partitions yet"
            self._listen(0)
            time.sleep(_POLL_S)
        raise TargetUnavailable(f"topic {self._target} at Kafka cannot be written to: {reason}")

    def begin(self) -> None:
        """Begin a chunk: what the client has reported since the last one does not count."""
        self._progress_at = self._now()
        if self._down_at is not None:
            self._down_at = self._progress_at  # librdkafka does not say so again if it is still true

    def produce(self, record: ReplicatedRecord, partition: int) -> None:
        """Raises TargetUnavailable, CredentialsRefused."""
        while True:
            try:
                self.producer.produce(
                    self._target,
                    record.value,
                    record.key,
                    partition,
                    on_delivery=partial(self._delivered, record),
                    timestamp=max(record.timestamp_ms, 0),
                    headers=list(record.headers),
                )
                return
            except BufferError:  # its queue is full
                self._listen(_POLL_S)
            except KafkaException as error:
                if error.args[0].code() in POISON:
                    self.poison.append((record, error.args[0].str()))
                else:
                    self._failed = self._failed or self.judged(error.args[0])
                return

    def wait(self, *, past_suspects: bool = False) -> None:
        """Return when each record has arrived or is poison; or when some are suspect, unless it goes on past these.

        Raises:
            TargetUnavailable, CredentialsRefused
        """
        while len(self.producer) and (past_suspects or not (self.suspects or self.is_gapped)):
            self._listen(_POLL_S)
        self.check()

    def check(self) -> None:
        """Raise TargetUnavailable or CredentialsRefused if the client has reported such an error."""
        if self._refused:
            raise CredentialsRefused(f"Kafka refuses who writes to topic {self._target}: {self._refused}")
        if (
            self._failed and not self.suspects and not self.is_gapped
        ):  # else this follows from what failed first
            raise TargetUnavailable(f"topic {self._target} at Kafka did not take records: {self._failed}")
        now = self._now()
        if self._down_at is not None and now - self._down_at > DOWN_S:
            raise TargetUnavailable(f"no broker of Kafka's for topic {self._target} answers")
        if len(self.producer) and now - self._progress_at > STALLED_S:
            raise TargetUnavailable(f"topic {self._target} at Kafka has taken no record for {STALLED_S:g} s")

    @contextmanager
    def judging(self) -> Iterator[None]:
        """A context for calls that wait for a broker.  Raises TargetUnavailable, CredentialsRefused."""
        try:
            yield
        except KafkaException as error:
            reason = self.judged(error.args[0])
            self.check()
            raise TargetUnavailable(f"topic {self._target} at Kafka did not take records: {reason}") from None

    def judged(self, error: KafkaError) -> str:
        """The error's text; an error about the login or a right is kept for `check`."""
        if error.code() in REFUSED:
            self._refused = error.str()
        return "there is no such topic" if error.code() == NO_TOPIC else str(error.str())

    def close(self) -> None:
        self.producer.purge(in_queue=True, in_flight=True, blocking=False)

    # --- what it says

    def _listen(self, wait_s: float) -> None:
        """Let the client call its callbacks.  Raises TargetUnavailable, CredentialsRefused."""
        try:
            self.producer.poll(wait_s)
        except KafkaException as error:  # how it gives what ends it
            self._said(error.args[0])
        self.check()

    def _said(self, error: KafkaError) -> None:
        if error.code() == ALL_BROKERS_DOWN:
            self._down_at = self._now() if self._down_at is None else self._down_at
        elif error.code() in REFUSED:
            self._refused = error.str()
        elif error.code() == GAP:
            self.is_gapped = True
        elif error.fatal():
            self._failed = self._failed or error.str()

    def _delivered(self, record: ReplicatedRecord, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._down_at, self._progress_at = None, self._now()
        elif error.code() in POISON:
            self.suspects.append((record, error.str()))
        else:
            self._failed = self._failed or self.judged(error)


class KafkaProducer:
    """See the module's text; without transactions."""

    def __init__(self, settings: Mapping[str, str], target: str) -> None:
        """Raises TargetUnavailable, CredentialsRefused."""
        self._settings = settings
        self._target = target
        self._client = KafkaClient(settings, target)
        self._chunk: list[ReplicatedRecord] = []
        try:
            self._count = self._client.partition_count()
        except BaseException:
            self._client.close()
            raise

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        if not self._chunk:
            self._client.begin()
        self._chunk.extend(records)
        self._produce(self._client, records)

    def flush(self) -> None:
        chunk, self._chunk = self._chunk, []
        self._client.wait()
        poison, self._client.poison = self._client.poison, []
        if self._client.suspects or self._client.is_gapped:
            self._client.close()  # what it has in flight is behind the gap, where a broker takes nothing
            poison = self._one_by_one(chunk)
            self._client = KafkaClient(self._settings, self._target)
        if poison:
            raise PoisonRecords(poison)

    def close(self) -> None:
        self._client.close()

    # --- inside

    def _one_by_one(self, chunk: Sequence[ReplicatedRecord]) -> list[tuple[ReplicatedRecord, str]]:
        """Send each record of the chunk in a batch of its own; returns those that the target does not take."""
        client = KafkaClient({**self._settings, **ALONE}, self._target)
        try:
            self._produce(client, chunk)
            client.wait(past_suspects=True)
            client.suspects, found = [], client.suspects
            client.check()  # whatever else has failed
        finally:
            client.close()
        return client.poison + found

    def _produce(self, client: KafkaClient, records: Sequence[ReplicatedRecord]) -> None:
        produce, count = client.produce, self._count
        for record in records:
            produce(record, record.partition % count)
