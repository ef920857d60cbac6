"""What ApiVersions tells of the APIs that are served (KIP-35)."""

from collections.abc import Mapping
from typing import Any, Final

from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse

_PRODUCE: Final = 0


def served(apis: Mapping[int, Api[Any]]) -> list[ApiVersion]:
    """A row for each API."""
    # librdkafka before 2.11 takes a broker for one that is too old unless Produce starts at 0 (KAFKA-18659): versions
    # below 3 are advertised, as Kafka 4 does, and refused.
    return [
        ApiVersion(api.key, 0 if api.key == _PRODUCE else api.min_version, api.max_version)
        for api in apis.values()
    ]


def unsupported(apis: Mapping[int, Api[Any]]) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that is not served; it is sent in v0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served(apis))
