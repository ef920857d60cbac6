"""Writes records to a topic of Pulsar, in order.

**Order.**  Records of partition `p` go to partition `p` of the target topic, or, if that has fewer partitions, to `p`
modulo their number.  Each partition of the source has its own producer, whose name the target gives to one client at a
time.  So a producer is closed with its chunk: the next task of the partition may run in another process.

**Repeats.**  The sequence id of a message is the offset of its record.  If the target deduplicates, it reports the last
sequence id of a producer's name, and the producer does not send messages up to that id again.  The producer sends
single messages unless the configuration asks for batches.  Of a batch, this client sends only the first sequence id, so
the target would accept the other messages a second time.

**Loops.**  A message gets the property `replicated_from`.  The producer does not send a record that
has this property already, because a replicator wrote it.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import pulsar

from magnetar.replicators import texts
from magnetar.replicators.errors import CredentialsRefused, PoisonRecords, TargetUnavailable
from magnetar.replicators.provider import ReplicatedRecord
from magnetar.replicators.pulsar.login import refusal

OPEN_S: Final = 5
SEND_MS: Final = 30_000
PENDING_MAX: Final = 5_000
BATCH_BYTES: Final = 1 << 20
_REPLICATED_FROM: Final = "replicated_from"
_REFUSED: Final = (pulsar.AuthenticationError, pulsar.AuthorizationError)
_POISON: Final = (pulsar.Result.MessageTooBig,)


class PulsarProducer:
    """See the module's text.  No other replicator has the same `name`."""

    def __init__(
        self,
        url: str,
        token: str | None,
        target: str,
        name: str,
        *,
        compression: str,
        cluster: str,
        batches: bool,
    ) -> None:
        """Raises TargetUnavailable, CredentialsRefused."""
        self._cluster = cluster
        self._batches = batches
        self._compression = pulsar.CompressionType.__dict__[compression]
        self._target = target
        self._name = name
        self._lanes: dict[int, _Lane] = {}
        self._client = pulsar.Client(
            url,
            authentication=None if token is None else pulsar.AuthenticationToken(token),
            operation_timeout_seconds=OPEN_S,
            connection_timeout_ms=OPEN_S * 1000,
            tls_validate_hostname=True,
            logger=_silent(),
        )
        try:
            with _judging(target):
                self._partitions = self._client.get_topic_partitions(target)
        except BaseException as error:
            self.close()
            if isinstance(error, TargetUnavailable) and (reason := refusal(url, token)) is not None:
                raise CredentialsRefused(f"Pulsar refuses who writes to topic {target}: {reason}") from None
            raise

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        if not records:
            return
        partition = records[0].partition
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(self._opened(partition), self._cluster)
        lane.send(records)

    def flush(self) -> None:
        poison = []
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            with _judging(self._target):
                lane.producer.flush()
            poison += lane.done(self._target)
            with _judging(self._target):
                lane.producer.close()
        if poison:
            raise PoisonRecords(poison)

    def close(self) -> None:
        with suppress(pulsar.PulsarException):  # whatever its broker makes of it
            self._client.close()

    def _opened(self, partition: int) -> pulsar.Producer:
        with _judging(self._target):
            return self._client.create_producer(
                self._partitions[partition % len(self._partitions)],
                producer_name=f"{self._name}-{partition}",
                send_timeout_millis=SEND_MS,
                compression_type=self._compression,
                max_pending_messages=PENDING_MAX,
                block_if_queue_full=True,
                batching_enabled=self._batches,
                batching_max_allowed_size_in_bytes=BATCH_BYTES,
            )


class _Lane:
    """The records of one partition.  `last` is the last offset that the target has, if it reports that."""

    def __init__(self, producer: pulsar.Producer, cluster: str) -> None:
        self.producer = producer
        self._cluster = cluster
        self._last = producer.last_sequence_id()
        # Filled by the client's own thread, read when nothing is on its way any more.
        self._failed: list[tuple[ReplicatedRecord, pulsar.Result]] = []

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        for record in records:
            if record.offset <= self._last:
                continue
            properties = texts.properties(record)
            if _REPLICATED_FROM in properties:
                continue
            self.producer.send_async(
                record.value,
                partial(self._sent, record),
                properties={**properties, _REPLICATED_FROM: self._cluster},
                partition_key=None if record.key is None else texts.key_text(record.key),
                sequence_id=record.offset,
                event_timestamp=max(record.timestamp_ms, 0),
            )

    def done(self, target: str) -> list[tuple[ReplicatedRecord, str]]:
        """The records that the target never takes.  Raises TargetUnavailable if it lacks other records, too."""
        failed, self._failed = self._failed, []
        for _, result in failed:
            if result not in _POISON:
                raise TargetUnavailable(f"topic {target} at Pulsar did not take records: {result}")
        return [(record, str(result)) for record, result in failed]

    def _sent(self, record: ReplicatedRecord, result: pulsar.Result, message_id: Any) -> None:
        if result != pulsar.Result.Ok:
            self._failed.append((record, result))


@contextmanager
def _judging(target: str) -> Iterator[None]:
    """Raises TargetUnavailable, CredentialsRefused."""
    try:
        yield
    except _REFUSED as error:
        raise CredentialsRefused(f"Pulsar refuses who writes to topic {target}: {error}") from None
    except pulsar.PulsarException as error:
        raise TargetUnavailable(f"topic {target} at Pulsar cannot be written to: {error}") from None


def _silent() -> logging.Logger:
    """Keep the client from writing to the worker's log in words of its own; it raises its errors all the same."""
    logger = logging.getLogger(f"{__name__}.client")
    logger.setLevel(logging.CRITICAL + 1)
    return logger
