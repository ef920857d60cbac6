"""What a client that pushes metrics can be refused for."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class InvalidTelemetryRequest(BrokerError):
    """It makes no sense, or comes behind the client's last one."""

    code: ClassVar[str] = "INVALID_TELEMETRY_REQUEST"


class InvalidTelemetry(BrokerError):
    """What was pushed are no metrics."""

    code: ClassVar[str] = "INVALID_TELEMETRY"


class TelemetryTooEarly(BrokerError):
    """The client's interval is not over."""

    code: ClassVar[str] = "TELEMETRY_TOO_EARLY"


class TelemetryTooLarge(BrokerError):
    """The metrics are larger than the client was told that they may be."""

    code: ClassVar[str] = "TELEMETRY_TOO_LARGE"


class UnknownTelemetrySubscription(BrokerError):
    """The client pushes by a subscription that is not its own any more."""

    code: ClassVar[str] = "UNKNOWN_TELEMETRY_SUBSCRIPTION"


class UnsupportedTelemetryCompression(BrokerError):
    """The client was not told that it may compress so."""

    code: ClassVar[str] = "UNSUPPORTED_TELEMETRY_COMPRESSION"
