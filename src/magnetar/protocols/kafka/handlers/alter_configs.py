"""AlterConfigs: replace all settings of topics at once (the older way; IncrementalAlterConfigs changes single ones).

Served: v0-2.  What is not named goes back to its default.  Brokers' settings are fixed at start: to change none of them
succeeds, to change any is refused.
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.topic_config import InvalidConfigRequest
from magnetar.protocols.kafka.admin_configs import (
    CLUSTER_DEFAULT,
    ResourceType,
    check_broker_changes,
    node_id_of,
)
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode
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
    counts = Counter((one.resource_type, one.resource_name) for one in request.resources)
    rows = await asyncio.gather(
        *(
            _alter(
                context.broker,
                one,
                request.validate_only,
                repeated=counts[one.resource_type, one.resource_name] > 1,
            )
            for one in request.resources
        )
    )
    return AlterConfigsResponse(responses=rows)


async def _alter(
    broker: "Broker", wanted: AlterConfigsResource, validate_only: bool, *, repeated: bool
) -> AlterConfigsResourceResponse:
    row = AlterConfigsResourceResponse(
        error_message=None, resource_type=wanted.resource_type, resource_name=wanted.resource_name
    )
    try:
        if repeated:
            raise InvalidConfigRequest("Each resource must appear at most once.")
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
    except UnknownTopic:
        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        row.error_message = f"The topic '{wanted.resource_name}' does not exist."
    except BrokerError as error:
        row.error_code, row.error_message = error_code(error), str(error)
    return row


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
