"""Why the broker refuses well-formed requests.

`protocols/*/errors.py` give each class a code of each protocol; `code` is its name for REST's clients.
"""

from collections.abc import Sequence
from typing import ClassVar

from magnetar.base.errors import BrokerError, StorageError


class UnknownTopic(BrokerError):
    """No such topic or partition."""

    code: ClassVar[str] = "UNKNOWN_TOPIC"


class UnknownTopicId(BrokerError):
    """No topic has this id."""

    code: ClassVar[str] = "UNKNOWN_TOPIC_ID"


class TopicExists(BrokerError):
    """A topic with this name exists."""

    code: ClassVar[str] = "TOPIC_EXISTS"


class InvalidPartitions(BrokerError):
    """An impossible number of partitions."""

    code: ClassVar[str] = "INVALID_PARTITIONS"


class InvalidReplicationFactor(BrokerError):
    """More replicas than nodes, or none."""

    code: ClassVar[str] = "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignment(BrokerError):
    """A manual assignment names unknown nodes, skips partitions or repeats a node."""

    code: ClassVar[str] = "INVALID_REPLICA_ASSIGNMENT"


class NoReassignmentInProgress(BrokerError):
    """The partition does not move, so there is nothing to stop."""

    code: ClassVar[str] = "NO_REASSIGNMENT_IN_PROGRESS"


class NotLeader(BrokerError):
    """This node does not lead the partition.

    The node that does is `leader_id`, in the epoch `leader_epoch`; both are -1 if there is none now.
    """

    code: ClassVar[str] = "NOT_LEADER"

    def __init__(self, text: str, leader_id: int = -1, leader_epoch: int = -1) -> None:
        super().__init__(text)
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class NotCoordinator(BrokerError):
    """This node does not coordinate the group or the transactional id."""

    code: ClassVar[str] = "NOT_COORDINATOR"


class CoordinatorNotAvailable(BrokerError):
    """No node coordinates groups and transactional ids."""

    code: ClassVar[str] = "COORDINATOR_NOT_AVAILABLE"


class ReplicaNotAvailable(BrokerError):
    """This node has no replica of the partition."""

    code: ClassVar[str] = "REPLICA_NOT_AVAILABLE"


class LogDirNotFound(BrokerError):
    """The server has no such data directory."""

    code: ClassVar[str] = "LOG_DIR_NOT_FOUND"


class OffsetOutOfRange(BrokerError):
    """The offset is before the log's start or after its end."""

    code: ClassVar[str] = "OFFSET_OUT_OF_RANGE"


class LookupTimedOut(BrokerError):
    """An offset by time was not found within the time that clients wait for it."""

    code: ClassVar[str] = "LOOKUP_TIMED_OUT"


class InvalidRecord(BrokerError):
    """The batch's header contradicts itself or the topic's rules.

    `batch_indexes` are the records at fault where the others were good: a client may send those again
    (KIP-467).
    """

    code: ClassVar[str] = "INVALID_RECORD"

    def __init__(self, text: str, batch_indexes: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.batch_indexes = batch_indexes


class CorruptMessage(BrokerError):
    """The batch fails its checksum or is not a batch."""

    code: ClassVar[str] = "CORRUPT_MESSAGE"


class UnsupportedMessageFormat(BrokerError):
    """A message format older than v2."""

    code: ClassVar[str] = "UNSUPPORTED_MESSAGE_FORMAT"


class RecordTooLarge(BrokerError):
    """The batch is larger than the topic's `max.message.bytes`."""

    code: ClassVar[str] = "RECORD_TOO_LARGE"


class InvalidTimestamp(BrokerError):
    """A record timestamp lies outside what the topic allows."""

    code: ClassVar[str] = "INVALID_TIMESTAMP"


class OutOfOrderSequence(BrokerError):
    """An idempotent producer skipped a sequence number."""

    code: ClassVar[str] = "OUT_OF_ORDER_SEQUENCE"


class InvalidProducerEpoch(BrokerError):
    """A newer instance of this producer has taken over."""

    code: ClassVar[str] = "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(BrokerError):
    """The producer has no transaction that this partition is part of."""

    code: ClassVar[str] = "INVALID_TXN_STATE"


class TopicTerminated(BrokerError):
    """The topic was terminated: it takes no more messages, from any protocol."""

    code: ClassVar[str] = "TOPIC_TERMINATED"


class OffsetsDiffer(BrokerError):
    """Batches with given offsets do not continue the log."""

    code: ClassVar[str] = "OFFSETS_DIFFER"


class ProducersHeld(StorageError):
    """The backlog is over its quota: producers have to wait and try again."""

    code: ClassVar[str] = "PRODUCERS_HELD"


class InternalTopic(BrokerError):
    """The topic is the server's own: clients cannot write to, change or delete it."""

    code: ClassVar[str] = "INTERNAL_TOPIC"


class QuotaExceeded(BrokerError):
    """The client has used up its quota; it may try again later."""

    code: ClassVar[str] = "QUOTA_EXCEEDED"


class PolicyViolation(BrokerError):
    """The server's settings do not allow this."""

    code: ClassVar[str] = "POLICY_VIOLATION"


class TopicDeletionDisabled(PolicyViolation):
    """Kafka's clients may not delete topics: `delete.topic.enable` is false."""

    code: ClassVar[str] = "TOPIC_DELETION_DISABLED"


class TopicLinked(PolicyViolation):
    """The topic is a copy of another cluster's: only its link writes to it, until it is cut loose."""

    code: ClassVar[str] = "TOPIC_LINKED"


class ProducersRefused(PolicyViolation):
    """The backlog is over its quota, and the policy is to refuse producers."""

    code: ClassVar[str] = "PRODUCERS_REFUSED"
