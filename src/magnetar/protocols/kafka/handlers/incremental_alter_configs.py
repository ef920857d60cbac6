"""IncrementalAlterConfigs: change single settings of topics, and levels of loggers (KIP-339, KIP-412).

Served: v0-1.  Each resource changes as a whole or not at all.  Brokers' settings are fixed at start; groups and client
metrics have none here.
"""

from typing import TYPE_CHECKING

from magnetar.broker.policy.topic_config import (
    AlterOperation,
    ConfigChange,
    InvalidConfig,
    InvalidConfigRequest,
)
from magnetar.protocols.kafka import admin_loggers
from magnetar.protocols.kafka.admin_configs import (
    CLUSTER_DEFAULT,
    ResourceType,
    change_each,
    check_broker_changes,
    node_id_of,
)
from magnetar.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "incremental_alter_configs"
VERSIONS = (0, 1)


async def handle(
    context: "RequestContext", request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    broker, validate_only = context.broker, request.validate_only
    outcomes = await change_each(request.resources, lambda one: _change(broker, one, validate_only))
    return IncrementalAlterConfigsResponse(
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


def _changes(wanted: AlterConfigsResource) -> list[ConfigChange]:
    changes = []
    for config in wanted.configs:
        try:
            operation = AlterOperation(config.config_operation)
        except ValueError:
            raise InvalidConfigRequest(
                f"Unknown operation {config.config_operation} for {config.name}"
            ) from None
        changes.append(ConfigChange(config.name, operation, config.value))
    if len({change.name for change in changes}) < len(changes):
        raise InvalidConfigRequest("Error due to duplicate config keys")
    nulls = [one.name for one in changes if one.value is None and one.operation is not AlterOperation.DELETE]
    if nulls:
        raise InvalidConfigRequest(f"Null value not supported for : {', '.join(nulls)[:1000]}")
    return changes


async def _change(broker: "Broker", wanted: AlterConfigsResource, validate_only: bool) -> None:
    name, changes = wanted.resource_name, _changes(wanted)
    match wanted.resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise InvalidConfigRequest("Default topic resources are not allowed.")
            topic = broker.kafka_topic(name)
            async with broker.topics.changing(topic):
                overrides = broker.topics.defaults.alter(topic.overrides, changes)
                if not validate_only and overrides != topic.overrides:
                    await broker.topics.set_config(topic, overrides)
        case ResourceType.BROKER:
            if name != CLUSTER_DEFAULT:
                node_id_of(broker.nodes, name, "Node")
            # Nothing was ever set that could be taken back: DELETE changes nothing and succeeds, as from Kafka.
            check_broker_changes(
                change.name for change in changes if change.operation is not AlterOperation.DELETE
            )
        case ResourceType.BROKER_LOGGER:
            node_id_of(broker.nodes, name, "Node")
            admin_loggers.change(changes, validate_only)
        case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
            kind = "group" if wanted.resource_type == ResourceType.GROUP else "client metrics"
            if changes:
                raise InvalidConfig(f"Unknown {kind} config name: {changes[0].name[:200]}")
        case kind:
            raise InvalidConfigRequest(f"Unknown resource type {kind}")
