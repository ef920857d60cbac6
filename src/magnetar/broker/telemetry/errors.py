"""Why the server refuses a client that pushes metrics."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class InvalidTelemetryRequest(BrokerError):
    """The request is invalid, or follows the client's last push."""

    code: ClassVar[str] = "INVALID_TELEMETRY_REQUEST"


class InvalidTelemetry(BrokerError):
    """The pushed bytes are no metrics."""

    code: ClassVar[str] = "INVALID_TELEMETRY"


class TelemetryTooEarly(BrokerError):
    """The client's interval has not passed yet."""

    code: ClassVar[str] = "TELEMETRY_TOO_EARLY"


class TelemetryTooLarge(BrokerError):
    """The metrics are larger than the limit that the server gave the client."""

    code: ClassVar[str] = "TELEMETRY_TOO_LARGE"


class UnknownTelemetrySubscription(BrokerError):
    """The client pushes for a subscription that it no longer has."""

    code: ClassVar[str] = "UNKNOWN_TELEMETRY_SUBSCRIPTION"


class UnsupportedTelemetryCompression(BrokerError):
    """The server did not offer this compression to the client."""

    code: ClassVar[str] = "UNSUPPORTED_TELEMETRY_COMPRESSION"
