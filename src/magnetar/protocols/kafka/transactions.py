"""What the handlers of the transaction APIs share.

There is no part of KIP-890's second half here: the feature `transaction.version` is not advertised, and clients use the
protocol of KIP-98, in which AddPartitionsToTxn and AddOffsetsToTxn come before what they announce.
"""

from typing import Final

from magnetar.broker.transactions.errors import TransactionError
from magnetar.wire.kafka.error_codes import ErrorCode

TRANSACTION_ERROR_CODES: Final = {error: ErrorCode[error.name] for error in TransactionError}

PRODUCER_FENCED_SINCE: Final = 2  # of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn (KIP-588)


def transaction_code(error: TransactionError, *, knows_fenced: bool) -> ErrorCode:
    """`knows_fenced`: whether the client's version of the API has PRODUCER_FENCED, or the older code for it."""
    if error is TransactionError.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return TRANSACTION_ERROR_CODES[error]
