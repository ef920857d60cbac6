"""Functions that the handlers of the transaction APIs share.

A client of KIP-98's protocol announces with AddPartitionsToTxn and AddOffsetsToTxn what its transaction will write.
One that has read `transaction.version` in ApiVersions (KIP-890) writes without that, and gets an epoch with each
EndTxn.  The versions of their requests distinguish both kinds, which may follow each other under one transactional
id.
"""

from typing import Final

from magnetar.broker.transactions.errors import TransactionError
from magnetar.wire.kafka.error_codes import ErrorCode

TRANSACTION_ERROR_CODES: Final = {error: ErrorCode[error.name] for error in TransactionError}

PRODUCER_FENCED_SINCE: Final = 2  # of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn (KIP-588)


def transaction_code(
    error: TransactionError, *, knows_fenced: bool, knows_abortable: bool = False
) -> ErrorCode:
    """The code for `error`.  `knows_fenced`, `knows_abortable`: whether the request's version has PRODUCER_FENCED and
    TRANSACTION_ABORTABLE (KIP-1050), or older codes for them.
    """
    if error is TransactionError.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is TransactionError.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return TRANSACTION_ERROR_CODES[error]
