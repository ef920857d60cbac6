"""The smallest request of each kind to every API, see `authorized_kinds.py`: those of the files beside this one, by
subject, and those for which a client needs no right.
"""

from collections.abc import Mapping
from typing import Any, Final

from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from magnetar.wire.kafka.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from magnetar.wire.kafka.messages.push_telemetry import PushTelemetryRequest
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.unit.protocols.kafka.authorized_config_requests import CONFIG_KINDS
from tests.unit.protocols.kafka.authorized_group_requests import GROUP_KINDS
from tests.unit.protocols.kafka.authorized_kinds import INSTANCE_ID, TELEMETRY_ID
from tests.unit.protocols.kafka.authorized_record_requests import RECORD_KINDS
from tests.unit.protocols.kafka.authorized_security_requests import SECURITY_KINDS
from tests.unit.protocols.kafka.authorized_topic_requests import TOPIC_KINDS

KINDS: Final = [*GROUP_KINDS, *TOPIC_KINDS, *RECORD_KINDS, *CONFIG_KINDS, *SECURITY_KINDS]

ASKS_NOTHING: Final[Mapping[str, tuple[int, Any, str]]] = {
    "sasl_handshake": (1, SaslHandshakeRequest("PLAIN"), "a client that logs in has no rights yet"),
    "sasl_authenticate": (2, SaslAuthenticateRequest(b"x"), "a client that logs in has no rights yet"),
    "api_versions": (
        0,
        ApiVersionsRequest(),
        "a client has to know what is served before it can say who it is",
    ),
    "describe_cluster": (
        1,
        DescribeClusterRequest(),
        "every client has to find the nodes, and is told of them by Metadata as well",
    ),
    "get_telemetry_subscriptions": (
        0,
        GetTelemetrySubscriptionsRequest(),
        "a client is told what it is to push itself, and of no other client",
    ),
    "push_telemetry": (
        0,
        PushTelemetryRequest(INSTANCE_ID, TELEMETRY_ID),
        "what a client says of itself is bounded, and shown to who may see the server's metrics",
    ),
}
