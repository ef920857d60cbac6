"""ApiVersions: what is served here, computed from the handlers that exist (KIP-35, KIP-511).

Served: v0-4.  A client that knows a newer version is answered in v0 with UNSUPPORTED_VERSION and the range, so that it
steps down.  One feature is finalized (KIP-584): `transaction.version` 2, transactions of KIP-890.  The two APIs of
telemetry are advertised while there is a subscription to clients' metrics (KIP-714).
"""

import re

from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.versions import describe
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import api_versions as codec
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

VERSIONS = (0, 4)

_SOFTWARE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?", re.ASCII)  # KIP-511


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.api_version >= 3:
        context.software.name = request.client_software_name
        context.software.version = request.client_software_version
    return describe(context.service.apis, asks_for_metrics=context.cases.telemetry.is_asked_for)


API = Api.of(codec, VERSIONS, handle)
