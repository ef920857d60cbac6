"""AlterConfigs: replace all settings of topics at once (the older way; IncrementalAlterConfigs changes single ones).

Served: v0-2.  What is not named goes back to its default.  Brokers' settings are fixed at start: to change none of them
succeeds, to change any is refused.
"""

from typing import TYPE_CHECKING

from magnetar.broker.policy.topic_config import InvalidConfigRequest
from magnetar.protocols.kafka.admin_configs import (
    CLUSTER_DEFAULT,
    ResourceType,
    change_each,
    check_broker_changes,
    node_id_of,
)
from magnetar.wire.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "alter_configs"
VERSIONS = (0, 2)


async def handle(context: "RequestContext", request: AlterConfigsRequest) -> AlterConfigsResponse:
    broker, validate_only = context.broker, request.validate_only
    outcomes = await change_each(request.resources, lambda one: _change(broker, one, validate_only))
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one, code, message in outcomes
        ]
    )


async def _change(broker: "Broker", wanted: AlterConfigsResource, validate_only: bool) -> None:
    configs = {config.name: config.value for config in wanted.configs}
    if len(configs) < len(wanted.configs):
        raise InvalidConfigRequest("Error due to duplicate config keys")
    match wanted.resource_type:
        case ResourceType.TOPIC:
            await _alter_topic(broker, wanted.resource_name, configs, validate_only)
        case ResourceType.BROKER:
            if wanted.resource_name != CLUSTER_DEFAULT:
                node_id_of(broker.nodes, wanted.resource_name, "Broker")
            check_broker_changes(configs)
        case kind:
            raise InvalidConfigRequest(f"AlterConfigs does not change resources of type {kind}")


async def _alter_topic(
    broker: "Broker", name: str, configs: dict[str, str | None], validate_only: bool
) -> None:
    if not name:
        raise InvalidConfigRequest("Default topic resources are not allowed.")
    topic = broker.kafka_topic(name)
    async with broker.topics.changing(topic):
        overrides = broker.topics.defaults.canonical(configs)
        if not validate_only:
            await broker.topics.set_config(topic, overrides)
