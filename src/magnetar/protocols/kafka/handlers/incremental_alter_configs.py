"""IncrementalAlterConfigs: change single settings of topics, groups and client metrics, and levels of loggers (KIP-339,
KIP-412).

Served: v0-1.  Each resource changes as a whole or not at all.  Of a broker's settings only those of connections can
be changed (KIP-226); the others are fixed at the start.  Groups have the settings of the consumer protocol (KIP-848)
and of share groups (KIP-932).  Subscriptions to clients' metrics have those of KIP-714, except `client_source_port` in
`match`.
"""

from magnetar.broker.policy.errors import InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange
from magnetar.protocols.kafka.admin_configs import ResourceType, change_each
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import incremental_alter_configs as codec
from magnetar.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

VERSIONS = (0, 1)


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=await change_each(
            request.resources,
            lambda one: _change(context, one, request.validate_only),
            AlterConfigsResourceResponse,
        )
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


async def _change(context: RequestContext, wanted: AlterConfigsResource, validate_only: bool) -> None:
    cases, caller = context.cases.configs, context.caller
    name, changes = wanted.resource_name, _changes(wanted)
    match wanted.resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise InvalidConfigRequest("Default topic resources are not allowed.")
            await cases.alter_topic(caller, name, changes, validate_only=validate_only)
        case ResourceType.BROKER:
            await cases.alter_broker(caller, name, changes, validate_only=validate_only)
        case ResourceType.BROKER_LOGGER:
            cases.alter_loggers(caller, name, changes, validate_only=validate_only)
        case ResourceType.CLIENT_METRICS:
            await cases.alter_client_metrics(caller, name, changes, validate_only=validate_only)
        case ResourceType.GROUP:
            await cases.alter_group(caller, name, changes, validate_only=validate_only)
        case kind:
            raise InvalidConfigRequest(f"Unknown resource type {kind}")


API = Api.of(codec, VERSIONS, handle)
