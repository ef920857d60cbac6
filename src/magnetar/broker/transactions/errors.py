"""What can be wrong with a request to a transaction.

As in groups, these are answers and not exceptions, named as in Kafka's protocol; its door makes codes of the names.
"""

from enum import Enum


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
