"""ListTransactions: the transactional ids that the node coordinates, by state, producer, age and name.

Served: v0-2 (KIP-664; age v1, KIP-994; a pattern for the whole id v2, KIP-1152).  A client that wants all of them asks
every node.
"""

from collections.abc import Callable

from magnetar.base.patterns import whole_matcher
from magnetar.broker.transactions import model as stored
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import list_transactions as codec
from magnetar.wire.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

VERSIONS = (0, 2)


async def handle(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Large:
    named: Callable[[str], bool] | None = None
    if request.transactional_id_pattern:
        try:
            named = whole_matcher(request.transactional_id_pattern)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    known = {state.value for state in stored.TransactionState}
    states, producers = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    response = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in known]
    )
    async for transactional_id, record in context.cases.transactions.list(context.caller, context.node):
        if (
            (not states or record.state.value in states)
            and (not producers or record.producer_id in producers)
            and (request.duration_filter < 0 or _is_older(context, record, request.duration_filter))
            and (named is None or named(transactional_id))
        ):
            row = TransactionState(transactional_id, record.producer_id, record.state.value)
            response.transaction_states.append(row)
    return Large(response) if len(response.transaction_states) > ELEMENTS_AT_ONCE else response


def _is_older(context: RequestContext, record: stored.TransactionRecord, duration_ms: int) -> bool:
    return record.started_ms >= 0 and context.cases.clock.now_ms() - record.started_ms > duration_ms


API = Api.of(codec, VERSIONS, handle)
