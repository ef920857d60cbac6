"""ListTransactions: the transactional ids that the node coordinates, by state, producer, age and name.

Served: v0-2 (KIP-664; age v1, KIP-994; a pattern for the whole id v2, KIP-1152).  A client that wants all of them asks
every node.
"""

from collections.abc import Callable

from magnetar.base.patterns import whole_matcher
from magnetar.broker.transactions import model as stored
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import list_transactions as codec
from magnetar.wire.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

VERSIONS = (0, 2)


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    named: Callable[[str], bool] | None = None
    if request.transactional_id_pattern:
        try:
            named = whole_matcher(request.transactional_id_pattern)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    known = {state.value for state in stored.TransactionState}
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in known],
        transaction_states=[
            TransactionState(transactional_id, record.producer_id, record.state.value)
            for transactional_id, record in context.cases.transactions.list(context.caller, context.node)
            if (named is None or named(transactional_id)) and _is_wanted(context, record, request)
        ],
    )


def _is_wanted(
    context: RequestContext, record: stored.TransactionRecord, request: ListTransactionsRequest
) -> bool:
    if request.state_filters and record.state.value not in request.state_filters:
        return False
    if request.producer_id_filters and record.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter < 0:
        return True
    is_open = record.started_ms >= 0
    return is_open and context.cases.clock.now_ms() - record.started_ms > request.duration_filter


API = Api.of(codec, VERSIONS, handle)
