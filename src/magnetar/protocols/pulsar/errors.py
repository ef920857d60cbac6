"""One table from the broker's errors to Pulsar's, and the commands that carry them.

Clients also read the texts (C++ decides by them whether to close a whole connection), so the errors of a look-up are
part of the contract: see `lookup_error`.
"""

from typing import Any, Final

from magnetar.base import errors as base
from magnetar.base.names import InvalidTopicName
from magnetar.broker import errors as broker
from magnetar.broker.log.errors import ProducersNotKnown
from magnetar.broker.policy import errors as policy
from magnetar.broker.producers import errors as producers
from magnetar.broker.schemas import model as schemas
from magnetar.broker.security import errors as security
from magnetar.broker.subscriptions import errors as subscriptions
from magnetar.broker.subscriptions.dispatch.errors import ConsumerAssignError, ConsumerBusy
from magnetar.broker.transactions import errors as transactions
from magnetar.protocols.pulsar.patterns import InvalidPattern
from magnetar.wire.pulsar.entry import ChecksumMismatch
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandError, ServerError

_ERRORS: Final[dict[type[Exception], "ServerError"]] = {
    base.StorageError: ServerError.PersistenceError,
    base.LogLost: ServerError.ServiceNotReady,
    base.MetadataError: ServerError.MetadataError,
    InvalidTopicName: ServerError.InvalidTopicName,
    InvalidPattern: ServerError.NotAllowedError,
    ChecksumMismatch: ServerError.ChecksumError,
    security.NotAuthorized: ServerError.AuthorizationError,
    broker.NotLeader: ServerError.ServiceNotReady,
    ProducersNotKnown: ServerError.ServiceNotReady,
    broker.PolicyViolation: ServerError.NotAllowedError,
    broker.InvalidTxnState: ServerError.NotAllowedError,
    broker.TopicExists: ServerError.NotAllowedError,
    broker.ProducersHeld: ServerError.ProducerBlockedQuotaExceededError,
    broker.ProducersRefused: ServerError.ProducerBlockedQuotaExceededException,
    broker.TopicTerminated: ServerError.TopicTerminatedError,
    broker.UnknownTopic: ServerError.TopicNotFound,
    ConsumerBusy: ServerError.ConsumerBusy,
    ConsumerAssignError: ServerError.ConsumerAssignError,
    subscriptions.SubscriptionNotFound: ServerError.SubscriptionNotFound,
    subscriptions.SubscriptionNotAllowed: ServerError.NotAllowedError,
    subscriptions.SubscriptionClosed: ServerError.ServiceNotReady,
    subscriptions.MessageGone: ServerError.TransactionConflict,  # only transactions meet it
    producers.EncryptionRequired: ServerError.MetadataError,
    producers.ProducerBusy: ServerError.ProducerBusy,
    producers.ProducerFenced: ServerError.ProducerFenced,
    producers.ProducerIdInUse: ServerError.ServiceNotReady,
    producers.TooManyProducers: ServerError.ProducerBusy,
    policy.NamespaceNotFound: ServerError.TopicNotFound,
    schemas.IncompatibleSchema: ServerError.IncompatibleSchema,
    schemas.InvalidSchema: ServerError.IncompatibleSchema,
    schemas.SchemaNotFound: ServerError.TopicNotFound,
    policy.InvalidNamespace: ServerError.InvalidTopicName,
    transactions.InvalidTransactionStatus: ServerError.InvalidTxnStatus,
    transactions.TransactionConflict: ServerError.TransactionConflict,
    transactions.TransactionCoordinatorNotFound: ServerError.TransactionCoordinatorNotFound,
    transactions.TransactionNotFound: ServerError.TransactionNotFound,
}


def server_error(error: Exception) -> "ServerError":
    """Pulsar's error for `error`, or for its nearest base class in the table; UnknownError if there is none."""
    for kind in type(error).__mro__:
        if (found := _ERRORS.get(kind)) is not None:
            return found
    return ServerError.UnknownError


def lookup_error(error: Exception) -> "ServerError":
    """As `server_error`, for answers to LOOKUP and PARTITIONED_METADATA.

    In these answers ServiceNotReady and TooManyRequests make C++ and Go clients close the whole connection;
    MetadataError makes them try only this look-up again.
    """
    found = server_error(error)
    if found in (ServerError.ServiceNotReady, ServerError.TooManyRequests):
        return ServerError.MetadataError
    return found


def error_command(request_id: int, error: "ServerError", text: str) -> BaseCommand:
    """An ERROR command."""
    return BaseCommand(
        type=BaseCommand.ERROR, error=CommandError(request_id=request_id, error=error, message=text)
    )


def refuse_request(command: Any, error: Exception) -> BaseCommand | None:
    """The usual answer to a command that cannot be served: an ERROR with its request_id."""
    if "request_id" not in command.DESCRIPTOR.fields_by_name or not command.HasField("request_id"):
        return None
    return error_command(command.request_id, server_error(error), str(error))
