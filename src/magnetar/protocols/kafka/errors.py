"""One table from the broker's errors to Kafka's error codes."""

from typing import Final

from magnetar.base import errors as base
from magnetar.base.names import InvalidTopicName
from magnetar.broker import errors as broker
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.security import errors as security
from magnetar.broker.subscriptions import errors as subscriptions
from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.share import errors as share
from magnetar.broker.telemetry import errors as telemetry
from magnetar.wire.kafka.error_codes import ErrorCode

_CODES: Final[dict[type[Exception], ErrorCode]] = {
    base.StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    base.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    base.EntryCorrupt: ErrorCode.CORRUPT_MESSAGE,
    base.LogLost: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    base.MetadataError: ErrorCode.KAFKA_STORAGE_ERROR,
    InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidConfig: ErrorCode.INVALID_CONFIG,
    InvalidConfigRequest: ErrorCode.INVALID_REQUEST,
    broker.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    broker.CorruptMessage: ErrorCode.CORRUPT_MESSAGE,
    broker.InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    broker.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    broker.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    broker.InvalidRecord: ErrorCode.INVALID_RECORD,
    broker.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    broker.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    broker.InvalidTxnState: ErrorCode.INVALID_TXN_STATE,
    broker.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    broker.LookupTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    broker.LogDirNotFound: ErrorCode.LOG_DIR_NOT_FOUND,
    broker.NoReassignmentInProgress: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    broker.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    broker.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    broker.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    broker.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    broker.PolicyViolation: ErrorCode.POLICY_VIOLATION,
    broker.TopicTerminated: ErrorCode.POLICY_VIOLATION,
    broker.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    broker.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    broker.ReplicaNotAvailable: ErrorCode.REPLICA_NOT_AVAILABLE,
    broker.TopicDeletionDisabled: ErrorCode.TOPIC_DELETION_DISABLED,
    broker.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    broker.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    security.AuthenticationFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    security.TooManyConnections: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    security.NotAuthorized: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    security.GroupNotAuthorized: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    security.TopicNotAuthorized: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    security.DelegationTokenExpired: ErrorCode.DELEGATION_TOKEN_EXPIRED,
    security.DelegationTokenNotAuthorized: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    security.DelegationTokenNotFound: ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    security.DelegationTokenOwnerMismatch: ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    security.DelegationTokenRequestNotAllowed: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    security.DelegationTokensDisabled: ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    security.InvalidPrincipalType: ErrorCode.INVALID_PRINCIPAL_TYPE,
    security.InvalidRule: ErrorCode.INVALID_REQUEST,
    security.SecurityDisabled: ErrorCode.SECURITY_DISABLED,
    security.TransactionalIdNotAuthorized: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    share.InvalidRecordState: ErrorCode.INVALID_RECORD_STATE,
    share.InvalidShareRequest: ErrorCode.INVALID_REQUEST,
    share.InvalidShareSessionEpoch: ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    share.ShareSessionLimitReached: ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    share.ShareSessionNotFound: ErrorCode.SHARE_SESSION_NOT_FOUND,
    # Share consumers recognize these by their text, and try again after this code.
    ConsumerBusy: ErrorCode.KAFKA_STORAGE_ERROR,
    subscriptions.SubscriptionClosed: ErrorCode.KAFKA_STORAGE_ERROR,
    subscriptions.SubscriptionNotAllowed: ErrorCode.KAFKA_STORAGE_ERROR,
    telemetry.InvalidTelemetry: ErrorCode.INVALID_RECORD,
    telemetry.InvalidTelemetryRequest: ErrorCode.INVALID_REQUEST,
    telemetry.TelemetryTooEarly: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    telemetry.TelemetryTooLarge: ErrorCode.TELEMETRY_TOO_LARGE,
    telemetry.UnknownTelemetrySubscription: ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    telemetry.UnsupportedTelemetryCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    broker.UnsupportedMessageFormat: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}


def error_code(error: Exception) -> ErrorCode:
    """Kafka's code for `error`, or for its nearest base class in the table; UNKNOWN_SERVER_ERROR if there is none."""
    for kind in type(error).__mro__:
        if (code := _CODES.get(kind)) is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
