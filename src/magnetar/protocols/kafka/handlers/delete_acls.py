"""DeleteAcls: remove the access control lists that filters match.  The server answers when that is durable and in
effect.

Served: v1-3.  The answer to each filter is what it matched; one step carries out all filters that succeed.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.security.errors import InvalidRule
from magnetar.broker.usecases.acls import Acl, AclFilter
from magnetar.protocols.kafka.acls import entry_of, read_filter, resource_of
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import delete_acls as codec
from magnetar.wire.kafka.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

VERSIONS = (1, 3)
FILTERS_MAX = 100  # each filter is compared with every rule


async def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    acls = context.cases.acls
    wanted: list[AclFilter] = []
    results: list[DeleteAclsFilterResult] = []
    for number, one in enumerate(request.filters):
        try:
            acls.check_changes(context.caller)
            if number >= FILTERS_MAX:
                raise InvalidRule(f"a request has {FILTERS_MAX} filters at most")
            wanted.append(read_filter(one))
            results.append(DeleteAclsFilterResult())
        except BrokerError as error:
            results.append(_refused(error))
    try:
        found = iter(await acls.delete(context.caller, wanted) if wanted else ())
    except BrokerError as error:
        return DeleteAclsResponse(
            filter_results=[one if one.error_code else _refused(error) for one in results]
        )
    for result in results:
        if not result.error_code:
            result.matching_acls = [_row(acl) for acl in next(found)]
    return DeleteAclsResponse(filter_results=results)


def _refused(error: BrokerError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code(error), str(error))


def _row(acl: Acl) -> DeleteAclsMatchingAcl:
    (kind, name, pattern), (principal, host, operation, permission) = resource_of(acl), entry_of(acl)
    return DeleteAclsMatchingAcl(0, None, kind, name, pattern, principal, host, operation, permission)


API = Api.of(codec, VERSIONS, handle)
