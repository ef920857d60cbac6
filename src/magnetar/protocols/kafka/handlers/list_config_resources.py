"""ListConfigResources: the resources that have configurations (KIP-1142; v0 is ListClientMetricsResources of
KIP-714).

Served: v0-1.  Groups are those with settings of their own; client metrics are the subscriptions that exist.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.admin_configs import ResourceType
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.counted import counted
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import ELEMENTS_PER_TURN, Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import list_config_resources as codec
from magnetar.wire.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

VERSIONS = (0, 1)

_TOPIC_BYTES: Final = 300  # of a topic in the answer, as an object and encoded


async def handle(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Large:
    response = ListConfigResourcesResponse()
    wanted = set(request.resource_types)
    if context.api_version == 0:
        wanted = {ResourceType.CLIENT_METRICS}
    elif not wanted:
        wanted = set(ResourceType)
    if not wanted <= set(ResourceType):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return response
    try:
        topics, nodes, groups, client_metrics = context.cases.configs.list(context.caller, ELEMENTS_PER_TURN)
    except BrokerError as refusal:
        response.error_code = error_code(refusal)
        return response
    names: dict[int, list[str]] = {
        ResourceType.BROKER: nodes,
        ResourceType.BROKER_LOGGER: nodes,
        ResourceType.GROUP: groups,
        ResourceType.CLIENT_METRICS: client_metrics,
    }
    others = [ConfigResource(name, kind) for kind in sorted(wanted) for name in names.get(kind, ())]
    if ResourceType.TOPIC not in wanted:
        response.config_resources = others
        return response

    def show(page: list[str]) -> None:
        response.config_resources += [ConfigResource(name, ResourceType.TOPIC) for name in page]

    async def list_topics() -> ListConfigResourcesResponse:
        await context.service.large.each_piece(topics, show)
        response.config_resources += others
        return response

    objects_bytes = context.cases.topics.partition_count * _TOPIC_BYTES
    return await counted(context, objects_bytes, list_topics)


API = Api.of(codec, VERSIONS, handle)
