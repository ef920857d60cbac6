"""AlterConfigs: replace all settings of topics at once (the older way; IncrementalAlterConfigs changes single ones).

Served: v0-2.  A setting that the request does not name gets its default back.  Of a broker's settings only those of
connections can be changed; the others are fixed at the start, and the server refuses to change them.
"""

from magnetar.broker.policy.errors import InvalidConfigRequest
from magnetar.protocols.kafka.admin_configs import ResourceType, change_each
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import alter_configs as codec
from magnetar.wire.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

VERSIONS = (0, 2)


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=await change_each(
            request.resources,
            lambda one: _change(context, one, request.validate_only),
            AlterConfigsResourceResponse,
        )
    )


async def _change(context: RequestContext, wanted: AlterConfigsResource, validate_only: bool) -> None:
    cases, caller, name = context.cases.configs, context.caller, wanted.resource_name
    configs = {config.name: config.value for config in wanted.configs}
    if len(configs) < len(wanted.configs):
        raise InvalidConfigRequest("Error due to duplicate config keys")
    match wanted.resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise InvalidConfigRequest("Default topic resources are not allowed.")
            await cases.replace_topic(caller, name, configs, validate_only=validate_only)
        case ResourceType.BROKER:
            await cases.replace_broker(caller, name, configs, validate_only=validate_only)
        case kind:
            raise InvalidConfigRequest(f"AlterConfigs does not change resources of type {kind}")


API = Api.of(codec, VERSIONS, handle)
