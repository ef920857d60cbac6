"""CreateAcls: add access control lists.  The server answers when they are durable and in effect.

Served: v1-3.  Each list has its own answer, and one step adds all that succeed.  A list that exists already is no
error.  The server refuses ANY, MATCH and numbers without a meaning with INVALID_REQUEST, where Kafka answers
UNKNOWN_SERVER_ERROR.
"""

from magnetar.base.errors import BrokerError, kept
from magnetar.broker.usecases.acls import Acl
from magnetar.protocols.kafka.acls import read_acl
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import create_acls as codec
from magnetar.wire.kafka.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

VERSIONS = (1, 3)


async def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    acls = context.cases.acls
    wanted = []
    refused: list[BrokerError | None] = []
    for creation in request.creations:
        try:
            wanted.append(_checked(context, creation))
            refused.append(None)
        except BrokerError as error:
            refused.append(kept(error))
    try:
        if wanted:
            await acls.create(context.caller, wanted)
    except BrokerError as error:
        refused = [one or kept(error) for one in refused]
    return CreateAclsResponse(
        results=[
            AclCreationResult() if one is None else AclCreationResult(error_code(one), str(one))
            for one in refused
        ]
    )


def _checked(context: RequestContext, creation: AclCreation) -> Acl:
    context.cases.acls.check_changes(context.caller)
    acl = read_acl(creation)
    context.cases.acls.check(acl)
    return acl


API = Api.of(codec, VERSIONS, handle)
