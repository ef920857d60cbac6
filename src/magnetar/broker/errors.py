"""What a well-formed request may be refused for.  Each class is mapped to a code in `protocols/*/errors.py`."""

from collections.abc import Sequence

from magnetar.base.errors import BrokerError, StorageError


class UnknownTopic(BrokerError):
    """No such topic or partition."""


class UnknownTopicId(BrokerError):
    """No topic has this id."""


class TopicExists(BrokerError):
    """A topic of this name is there already."""


class InvalidPartitions(BrokerError):
    """A number of partitions that makes no sense here."""


class InvalidReplicationFactor(BrokerError):
    """More replicas than nodes, or none."""


class InvalidReplicaAssignment(BrokerError):
    """A manual assignment names unknown nodes, skips partitions or repeats a node."""


class NotLeader(BrokerError):
    """This node does not lead the partition."""


class OffsetOutOfRange(BrokerError):
    """The offset lies before the log's start or behind its end."""


class LookupTimedOut(BrokerError):
    """An offset by time was not found within the time that clients wait for it."""


class InvalidRecord(BrokerError):
    """The batch's header contradicts itself or the topic's rules.

    `batch_indexes` are the records at fault where the others were good: a client may send those again
    (KIP-467).
    """

    def __init__(self, text: str, batch_indexes: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.batch_indexes = batch_indexes


class CorruptMessage(BrokerError):
    """The batch fails its checksum or is not a batch."""


class UnsupportedMessageFormat(BrokerError):
    """A message format older than v2."""


class RecordTooLarge(BrokerError):
    """The batch is larger than the topic's `max.message.bytes`."""


class InvalidTimestamp(BrokerError):
    """A record timestamp lies outside what the topic allows."""


class OutOfOrderSequence(BrokerError):
    """An idempotent producer skipped a sequence number."""


class InvalidProducerEpoch(BrokerError):
    """A newer instance of this producer has taken over."""


class InvalidTxnState(BrokerError):
    """The producer has no transaction that this partition is part of."""


class TopicTerminated(BrokerError):
    """The topic was terminated: it takes no more messages, from any protocol."""


class ProducersHeld(StorageError):
    """The backlog is over its quota: producers shall wait and come again."""


class InternalTopic(BrokerError):
    """The topic is the server's own: nobody else writes to it, changes or deletes it."""


class PolicyViolation(BrokerError):
    """The server's settings do not allow this."""


class ProducersRefused(PolicyViolation):
    """The backlog is over its quota, and the policy wants producers to be told so."""
