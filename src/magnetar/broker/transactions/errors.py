"""What can be wrong with a request to a transaction.

Kafka's are answers and not exceptions, as in groups, named as in its protocol; its door makes codes of the names.
Pulsar's are exceptions, as all that its door refuses.
"""

from enum import Enum
from typing import ClassVar

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import PolicyViolation


class TransactionError(Enum):
    """The value is one sentence that may be shown to the client; NONE is success."""

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
    """The server is set up to have none of Pulsar's transactions."""

    code: ClassVar[str] = "TRANSACTIONS_DISABLED"


class TransactionNotFound(BrokerError):
    """No such transaction of Pulsar's, or it is another client's."""

    code: ClassVar[str] = "TRANSACTION_NOT_FOUND"


class TransactionCoordinatorNotFound(BrokerError):
    """There is no coordinator of that number."""

    code: ClassVar[str] = "TRANSACTION_COORDINATOR_NOT_FOUND"


class InvalidTransactionStatus(BrokerError):
    """The transaction is being ended, or was decided otherwise."""

    code: ClassVar[str] = "INVALID_TRANSACTION_STATUS"


class TransactionConflict(BrokerError):
    """What it acknowledges is acknowledged already, or by another transaction that is open."""

    code: ClassVar[str] = "TRANSACTION_CONFLICT"


class TooManyTransactions(PolicyViolation):
    """As many of Pulsar's transactions are open as may be, or one has become too large."""

    code: ClassVar[str] = "TOO_MANY_TRANSACTIONS"
