"""AlterClientQuotas: set and remove limits of what clients may use (KIP-546).

Served: v0-1 (v1 flexible), for users, client ids and IP addresses (KIP-612).
"""

from magnetar.base.errors import BrokerError, kept
from magnetar.broker.usecases.quotas import QuotaChange
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import alter_client_quotas as codec
from magnetar.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)

VERSIONS = (0, 1)


async def handle(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    changes = [
        QuotaChange(
            [(one.entity_type, one.entity_name) for one in entry.entity],
            [(one.key, None if one.remove else one.value) for one in entry.ops],
        )
        for entry in request.entries
    ]
    problems: list[BrokerError | None]
    try:
        problems = [
            *await context.cases.quotas.alter(context.caller, changes, validate_only=request.validate_only)
        ]
    except BrokerError as error:
        problems = [kept(error)] * len(changes)
    return AlterClientQuotasResponse(
        entries=[
            EntryResult(
                ErrorCode.NONE if problem is None else error_code(problem),
                None if problem is None else str(problem),
                entry.entity,
            )
            for entry, problem in zip(request.entries, problems, strict=True)
        ]
    )


API = Api.of(codec, VERSIONS, handle)
