"""Metrics that Kafka clients push: what they are asked for, and what they send (KIP-714).

Nothing here asks for a right: a client learns only about itself, and what it sends is bounded.  `configs.py` says which
callers may ask clients for metrics, and `metrics.py` which may see them.
"""

from itertools import islice
from typing import Final

from magnetar.base.errors import WireError
from magnetar.broker.log.opening import Opener
from magnetar.broker.telemetry.clients import CLIENT_SERIES_MAX, TelemetryClients
from magnetar.broker.telemetry.errors import InvalidTelemetry, TelemetryTooLarge
from magnetar.broker.telemetry.model import TELEMETRY_BYTES_MAX, Push, Subscribed, TelemetryClient
from magnetar.wire.kafka.record_reader import TooLargeExpanded, expand
from magnetar.wire.kafka.record_scan import Budget
from magnetar.wire.otlp import Point, points

_POINTS_MAX: Final = 2 * CLIENT_SERIES_MAX  # that are looked at; what is behind them finds no room


class TelemetryCases:
    """See the module's text."""

    def __init__(self, clients: TelemetryClients, opener: Opener) -> None:
        self._clients = clients
        self._opener = opener

    @property
    def is_asked_for(self) -> bool:
        """Whether any client is to push metrics."""
        return self._clients.are_asked

    def subscribe(self, client: TelemetryClient, instance_id: bytes) -> Subscribed:
        """What a client is to push, and how often.

        Raises:
            TelemetryTooEarly
        """
        return self._clients.subscribe(instance_id, client)

    async def push(self, client: TelemetryClient, push: Push) -> None:
        """Keep a client's numbers, in place of those before.

        Raises:
            InvalidTelemetryRequest, TelemetryTooEarly, UnknownTelemetrySubscription, UnsupportedTelemetryCompression,
            TelemetryTooLarge, InvalidTelemetry
            StorageError: the server stops.
        """
        self._clients.admit(push, client)
        if push.metrics:
            found = await self._opener.run(push.instance_id, lambda budget: _opened(push, budget))
            self._clients.keep(push.instance_id, found)


def _opened(push: Push, _budget: Budget) -> list[Point]:
    try:
        data = expand(push.metrics, push.compression, TELEMETRY_BYTES_MAX)
        return list(islice(points(data), _POINTS_MAX))
    except TooLargeExpanded:
        raise TelemetryTooLarge(
            f"a push may have {TELEMETRY_BYTES_MAX} bytes behind its compression"
        ) from None
    except WireError as error:
        raise InvalidTelemetry(str(error)) from None
