"""ListConfigResources: what configurations can be asked for (KIP-1142; v0 is ListClientMetricsResources of KIP-714).

Served: v0-1.  There are no client metrics subscriptions and no groups with settings.
"""

from typing import TYPE_CHECKING

from magnetar.protocols.kafka.admin_configs import ResourceType
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "list_config_resources"
VERSIONS = (0, 1)


def handle(context: "RequestContext", request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    response = ListConfigResourcesResponse()
    wanted = set(request.resource_types)
    if context.api_version == 0:
        wanted = {ResourceType.CLIENT_METRICS}
    elif not wanted:
        wanted = set(ResourceType)
    if not wanted <= set(ResourceType):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return response
    for kind in sorted(wanted):
        response.config_resources += [ConfigResource(name, kind) for name in _names(context.broker, kind)]
    return response


def _names(broker: "Broker", kind: int) -> list[str]:
    match kind:
        case ResourceType.TOPIC:
            return [
                broker.kafka_name(topic.name) for topic in (*broker.topics, *broker.internal_topics.present())
            ]
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(node.node_id) for node in broker.nodes.all]
        case _:
            return []
