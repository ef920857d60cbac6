"""DescribeAcls: the access control lists that a filter matches, by resource.

Served: v1-3.  The pattern type says how the filter compares names (KIP-290): ANY, MATCH, LITERAL, PREFIXED.  A number
without a meaning is INVALID_REQUEST.
"""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.acls import entry_of, read_filter, resource_of
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import describe_acls as codec
from magnetar.wire.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

VERSIONS = (1, 3)


async def handle(context: RequestContext, request: DescribeAclsRequest) -> Large | DescribeAclsResponse:
    response = DescribeAclsResponse()
    try:
        found = await context.cases.acls.describe(context.caller, read_filter(request))
    except BrokerError as refusal:
        return DescribeAclsResponse(error_code=error_code(refusal), error_message=str(refusal))
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in found:
        key = resource_of(acl)
        if key not in resources:
            resources[key] = DescribeAclsResource(*key)
        resources[key].acls.append(AclDescription(*entry_of(acl)))
    response.resources = list(resources.values())
    return Large(response) if len(found) > 1000 else response


API = Api.of(codec, VERSIONS, handle)
