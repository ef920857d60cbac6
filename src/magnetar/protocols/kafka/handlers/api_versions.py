"""ApiVersions: what is served here, computed from the handlers that exist (KIP-35, KIP-511).

Served: v0-4.  A client that knows a newer version is answered in v0 with UNSUPPORTED_VERSION and the range, so that it
steps down.
"""

import re
from typing import TYPE_CHECKING, Final

from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import Api, RequestContext

MESSAGE = "api_versions"
VERSIONS = (0, 4)

_PRODUCE: Final = 0
_SOFTWARE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?", re.ASCII)  # KIP-511
_served: list[ApiVersion] = []


def publish(apis: "dict[int, Api]") -> None:
    """Take the table of served APIs; it is the same for every broker of this process."""
    # librdkafka before 2.11 takes a broker for one that is too old unless Produce starts at 0 (KAFKA-18659): versions
    # below 3 are advertised, as Kafka 4 does, and refused.
    _served[:] = [
        ApiVersion(api.key, 0 if api.key == _PRODUCE else api.min_version, api.max_version)
        for api in apis.values()
    ]


def unsupported() -> ApiVersionsResponse:
    """The answer to a version that is not served; it is sent in v0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served)


def handle(context: "RequestContext", request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=_served, finalized_features_epoch=0)
