"""DescribeConfigs: the settings of topics, groups and brokers, and the levels of loggers.

Served: v1-4 (v1 synonyms, KIP-226; v3 types and documentation, KIP-569).  An empty list of keys means all, as null
does.  For BROKER "" the answer has what was changed for all brokers while they ran.  Groups have the settings of the
consumer protocol (KIP-848) and of share groups (KIP-932), and subscriptions to clients' metrics those of KIP-714.

A request names a resource in a dozen bytes, and the answer describes it in thousands.  So a request for many resources
leaves turns to others.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.errors import BrokerError
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.policy.errors import InvalidConfigRequest
from magnetar.broker.policy.model import ConfigEntry
from magnetar.protocols.kafka.admin_configs import ResourceType
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_configs as codec
from magnetar.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

VERSIONS = (1, 4)
PIECES = Pieces("resources", "", "results")

_DYNAMIC_BROKER_LOGGER_CONFIG: Final = 6


_AT_ONCE: Final = 10  # resources described in one turn of the event loop


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    for number, wanted in enumerate(request.resources, 1):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        row = DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        response.results.append(row)
        try:
            row.configs = _describe(context, wanted, request)
        except UnknownTopic:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = f"The topic '{wanted.resource_name}' does not exist."
        except BrokerError as error:
            row.error_code, row.error_message = error_code(error), str(error)
    return response


def _describe(
    context: RequestContext, wanted: DescribeConfigsResource, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    cases, caller, name = context.cases.configs, context.caller, wanted.resource_name
    names = wanted.configuration_keys or None
    match wanted.resource_type:
        case ResourceType.TOPIC:
            return [_entry(entry, request) for entry in cases.describe_topic(caller, name, names)]
        case ResourceType.BROKER:
            return [_entry(entry, request) for entry in cases.describe_broker(caller, name, names)]
        case ResourceType.BROKER_LOGGER:
            return _loggers(cases.describe_loggers(caller, name, names))
        case ResourceType.CLIENT_METRICS:
            return [_entry(entry, request) for entry in cases.describe_client_metrics(caller, name, names)]
        case ResourceType.GROUP:
            return [_entry(entry, request) for entry in cases.describe_group(caller, name, names)]
        case _:
            raise InvalidConfigRequest(f"Unknown resource type {wanted.resource_type}")


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    hidden = entry.sensitive
    row = DescribeConfigsResourceResult(
        entry.name,
        None if hidden else entry.value,
        entry.read_only,
        entry.source,
        hidden,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        row.synonyms = [
            DescribeConfigsSynonym(synonym.name, None if hidden else synonym.value, synonym.source)
            for synonym in entry.synonyms
        ]
    return row


def _loggers(levels: Mapping[str, str]) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            name, level, config_source=_DYNAMIC_BROKER_LOGGER_CONFIG, config_type=ConfigType.STRING
        )
        for name, level in levels.items()
    ]


API = Api.of(codec, VERSIONS, handle, PIECES)
