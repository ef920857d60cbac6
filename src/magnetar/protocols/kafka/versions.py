"""What ApiVersions says about served APIs (KIP-35), and about features (KIP-584).

The levels of features are fixed, and UpdateFeatures is not served.  `transaction.version` 2 tells clients that
Produce and TxnOffsetCommit may come without AddPartitionsToTxn and AddOffsetsToTxn before them, and that EndTxn
returns the next epoch (KIP-890).
"""

from collections.abc import Mapping
from typing import Any, Final

from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_PRODUCE: Final = 0
_TELEMETRY: Final = frozenset((71, 72))
_FEATURES: Final = {"transaction.version": 2}
_FEATURES_EPOCH: Final = 0  # of the finalized features, which never change


def served(apis: Mapping[int, Api[Any]], *, asks_for_metrics: bool) -> list[ApiVersion]:
    """A row for each API.

    The APIs of telemetry have one only if the server asks clients for metrics.  Each client that sees them sends
    requests of its own, and librdkafka's clients print a line.  Kafka's broker has them only with a plug-in.
    """
    # librdkafka before 2.11 rejects a broker as too old unless Produce starts at 0 (KAFKA-18659): as in Kafka 4,
    # versions below 3 are advertised, and refused.
    return [
        ApiVersion(api.key, 0 if api.key == _PRODUCE else api.min_version, api.max_version)
        for api in apis.values()
        if asks_for_metrics or api.key not in _TELEMETRY
    ]


def describe(apis: Mapping[int, Api[Any]], *, asks_for_metrics: bool) -> ApiVersionsResponse:
    """The whole answer to ApiVersions."""
    return ApiVersionsResponse(
        api_keys=served(apis, asks_for_metrics=asks_for_metrics),
        supported_features=[SupportedFeatureKey(name, 0, level) for name, level in _FEATURES.items()],
        finalized_features_epoch=_FEATURES_EPOCH,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in _FEATURES.items()],
    )


def unsupported(apis: Mapping[int, Api[Any]]) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that is not served; it is sent in v0."""
    rows = served(apis, asks_for_metrics=False)  # the client asks again, in a version that both know
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)
