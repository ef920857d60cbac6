"""DescribeClientQuotas: how much clients may use (KIP-546).

Served: v0-1 (v1 flexible).
"""

from collections.abc import Mapping

from magnetar.base.errors import BrokerError
from magnetar.broker.policy.errors import InvalidConfigRequest
from magnetar.broker.usecases.quotas import Described, QuotaFilter
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import describe_client_quotas as codec
from magnetar.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

VERSIONS = (0, 1)
_EXACT, _DEFAULT, _ANY = range(3)


async def handle(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse | Large:
    try:
        filters = [_filter(one) for one in request.components]
        found = await context.cases.quotas.describe(context.caller, filters, request.strict)
    except BrokerError as error:
        return DescribeClientQuotasResponse(
            error_code=error_code(error), error_message=str(error), entries=None
        )
    entries: list[EntryData] = []

    def add(one: tuple[Described, Mapping[str, float]]) -> None:
        entity, limits = one
        entries.append(
            EntryData(
                [EntityData(kind, name) for kind, name in entity],
                [ValueData(key, rate) for key, rate in limits.items()],
            )
        )

    await context.service.large.each(found, add)
    response = DescribeClientQuotasResponse(error_message=None, entries=entries)
    return Large(response) if len(entries) > ELEMENTS_AT_ONCE else response


def _filter(one: ComponentData) -> QuotaFilter:
    if one.match_type not in (_EXACT, _DEFAULT, _ANY) or (one.match is None) == (one.match_type == _EXACT):
        raise InvalidConfigRequest("A filter is for a name, for the default, or for any name")
    return QuotaFilter(one.entity_type, one.match, one.match_type == _ANY)


API = Api.of(codec, VERSIONS, handle)
