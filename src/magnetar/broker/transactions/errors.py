"""The errors of requests about transactions.

As in groups, Kafka's are answers and not exceptions, with the names of its protocol; its door turns the names into
codes.  Pulsar's are exceptions, as are all refusals of its door.
"""

from enum import Enum
from typing import ClassVar

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import PolicyViolation


class TransactionError(Enum):
    """The value is a sentence for the client; NONE is success."""

    NONE = ""
    COORDINATOR_NOT_AVAILABLE = "The transaction cannot be written now."
    CONCURRENT_TRANSACTIONS = "The transaction before this one is still being ended: try again."
    INVALID_PRODUCER_ID_MAPPING = "The transactional id does not belong to this producer id."
    INVALID_REQUEST = "A transactional id must not be empty, and a transaction must fit into its record."
    INVALID_TRANSACTION_TIMEOUT = "The transaction timeout is not between 1 and transaction.max.timeout.ms."
    INVALID_TXN_STATE = "The transaction is in a state that does not allow this."
    TRANSACTION_ABORTABLE = "This is not part of the transaction, which can only be aborted."
    PRODUCER_FENCED = "A newer producer with this transactional id has taken over."


class TransactionsDisabled(PolicyViolation):
    """The server's settings forbid Pulsar's transactions."""

    code: ClassVar[str] = "TRANSACTIONS_DISABLED"


class TransactionNotFound(BrokerError):
    """The Pulsar transaction does not exist, or belongs to another client."""

    code: ClassVar[str] = "TRANSACTION_NOT_FOUND"


class TransactionCoordinatorNotFound(BrokerError):
    """There is no coordinator with that number."""

    code: ClassVar[str] = "TRANSACTION_COORDINATOR_NOT_FOUND"


class InvalidTransactionStatus(BrokerError):
    """The transaction is ending, or the opposite was decided."""

    code: ClassVar[str] = "INVALID_TRANSACTION_STATUS"


class TransactionConflict(BrokerError):
    """The transaction acknowledges messages that are acknowledged already, or by another open transaction."""

    code: ClassVar[str] = "TRANSACTION_CONFLICT"


class TooManyTransactions(PolicyViolation):
    """The limit of open Pulsar transactions is reached, or one has become too large."""

    code: ClassVar[str] = "TOO_MANY_TRANSACTIONS"


class TransactionTimeoutTooLong(PolicyViolation):
    """A client asks for a longer time-out than Pulsar's transactions may have."""

    code: ClassVar[str] = "TRANSACTION_TIMEOUT_TOO_LONG"
