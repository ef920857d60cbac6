"""Clients that push metrics: what the server wants of each, when it may push again, and its last push (KIP-714).

The server gives each client an instance id.  It forgets a client, with its numbers, three of the client's intervals
after the last request, but not before a minute has passed.  So the last push of a client that ends stays for a while.
A push replaces the client's previous push, because the server asks for totals, not for differences.

The numbers of all clients together, and those of one client, are limited; numbers above the limit are counted and not
kept.  Texts are cut, because they come from clients.

No right is needed to push.  So the clients of one principal have a share of the room (`base/shares.py`), and an
instance id is its principal's.
"""

import json
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.randomness import new_uuid
from magnetar.base.shares import NO_OWNER, Shares
from magnetar.broker.security.model import Principal
from magnetar.broker.telemetry.errors import (
    InvalidTelemetryRequest,
    TelemetryTooEarly,
    TelemetryTooLarge,
    UnknownTelemetrySubscription,
    UnsupportedTelemetryCompression,
)
from magnetar.broker.telemetry.model import (
    COMPRESSIONS,
    NO_INSTANCE,
    NOT_COMPRESSED,
    TELEMETRY_BYTES_MAX,
    Push,
    Subscribed,
    TelemetryClient,
    Wanted,
)
from magnetar.broker.telemetry.subscriptions import TelemetrySubscriptions, shown
from magnetar.wire.otlp import Point

CLIENTS_MAX: Final = 16_384  # as Kafka; the client that sent nothing for longest makes room
SERIES_MAX: Final = 50_000
CLIENT_SERIES_MAX: Final = 2_000
NAME_CHARS_MAX: Final = 200
ATTRIBUTES_CHARS_MAX: Final = 400
KEPT_S_MIN: Final = 60.0
_KEPT_INTERVALS: Final = 3
_SWEEP_S: Final = 10.0

_SIGNED: Final = Struct(">i")


class _Instance:
    """One client, with the subscription that the server last gave it."""

    __slots__ = (
        "client",
        "got_s",
        "is_over",
        "may_ask",
        "pushed_s",
        "seen_s",
        "subscription_id",
        "version",
        "wanted",
    )

    def __init__(
        self, client: TelemetryClient, wanted: Wanted, subscription_id: int, version: int, now_s: float
    ) -> None:
        self.client = client
        self.wanted = wanted
        self.subscription_id = subscription_id
        self.version = version  # of the subscriptions
        self.seen_s = now_s
        self.got_s: float | None = None  # when it got the subscription
        self.pushed_s: float | None = None
        self.is_over = False  # it has sent its last push
        self.may_ask = False  # before its interval has passed: the server refused an old subscription

    @property
    def interval_s(self) -> float:
        return self.wanted.interval_ms / 1000

    def is_early(self, now_s: float, since_s: float | None) -> bool:
        return since_s is not None and now_s - since_s < self.interval_s


class TelemetryClients:
    """See the module's text.  The numbers may be read on another thread."""

    def __init__(self, subscriptions: TelemetrySubscriptions, clock: Clock) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._instances: OrderedDict[bytes, _Instance] = (
            OrderedDict()
        )  # the client that sent nothing for longest comes first
        self._by_owner: dict[Principal, OrderedDict[bytes, None]] = {}  # in the same order
        self._places = Shares(CLIENTS_MAX)
        self._series: dict[bytes, dict[tuple[str, str], float]] = {}
        self._room = Shares(SERIES_MAX)
        self._swept_s = clock.monotonic()
        self.left_out = 0  # numbers that were not kept

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def are_asked(self) -> bool:
        """Whether there is a subscription to metrics."""
        return bool(self._subscriptions.names)

    def subscribe(self, instance_id: bytes, client: TelemetryClient) -> Subscribed:
        """What a client must push; a client without an id gets one.

        Raises:
            TelemetryTooEarly
        """
        if instance_id == NO_INSTANCE:
            instance_id = new_uuid().bytes
        now_s = self._clock.monotonic()
        instance = self._seen(instance_id, client, now_s)
        last_s = max((at for at in (instance.got_s, instance.pushed_s) if at is not None), default=None)
        if not instance.is_early(now_s, last_s):
            instance.got_s = now_s
        elif not instance.may_ask:
            raise TelemetryTooEarly("the interval is not over")
        instance.may_ask = False
        return Subscribed(instance_id, instance.subscription_id, instance.wanted)

    def admit(self, push: Push, client: TelemetryClient) -> None:
        """Check that a client may push this now.

        Raises:
            InvalidTelemetryRequest, TelemetryTooEarly, UnknownTelemetrySubscription, UnsupportedTelemetryCompression,
            TelemetryTooLarge
        """
        if push.instance_id == NO_INSTANCE:
            raise InvalidTelemetryRequest("the client has no instance id")
        now_s = self._clock.monotonic()
        instance = self._seen(push.instance_id, client, now_s)
        if instance.is_over and not push.is_last:
            raise InvalidTelemetryRequest("the client has said that its last push was its last one")
        instance.is_over = push.is_last
        # Clients push for the first time after a random part of their interval.
        is_first = instance.got_s is not None and (
            instance.pushed_s is None or instance.got_s > instance.pushed_s
        )
        instance.may_ask = False
        if instance.is_early(now_s, instance.pushed_s) and not is_first and not push.is_last:
            raise TelemetryTooEarly("the interval is not over")
        instance.pushed_s = now_s
        if push.subscription_id != instance.subscription_id:
            instance.may_ask = True
            raise UnknownTelemetrySubscription("the client has another subscription now")
        if push.compression not in (NOT_COMPRESSED, *COMPRESSIONS):
            instance.may_ask = True
            raise UnsupportedTelemetryCompression(f"unknown compression {push.compression}")
        if len(push.metrics) > TELEMETRY_BYTES_MAX:
            raise TelemetryTooLarge(f"a push may have {TELEMETRY_BYTES_MAX} bytes")

    def keep(self, instance_id: bytes, points: Iterable[Point]) -> None:
        """Keep a client's numbers in the place of its last ones; does nothing if the client was forgotten meanwhile."""
        instance = self._instances.get(instance_id)
        if instance is None:
            return
        found: dict[tuple[str, str], float] = {}
        owner = instance.client.owner
        self._drop_series(instance_id, owner)
        room = min(CLIENT_SERIES_MAX, self._room.room(owner))
        for point in points:
            key = (point.name[:NAME_CHARS_MAX], _joined(point.attributes))
            if key in found or len(found) < room:
                found[key] = point.value
            else:
                self.left_out += 1
        if found:
            self._series[instance_id] = found
            self._room.take(owner, len(found))

    def numbers(self) -> Iterator[tuple[tuple[str, str, str, str], float]]:
        """For each metric: its name, its client's id and instance id, its attributes; and its number."""
        for instance_id, series in list(self._series.items()):
            instance = self._instances.get(instance_id)
            if instance is not None:
                client_id, name = instance.client.client_id[:NAME_CHARS_MAX], shown(instance_id)
                for (metric, attributes), value in series.items():
                    yield (metric, client_id, name, attributes), value

    def _seen(self, instance_id: bytes, client: TelemetryClient, now_s: float) -> _Instance:
        self._sweep(now_s)
        instance = self._instances.get(instance_id)
        if instance is not None and instance.client.owner != client.owner:
            raise InvalidTelemetryRequest("the instance id is that of another client")
        if instance is None or instance.version < self._subscriptions.version:
            if instance is None:
                self._make_place(instance_id, client.owner)
            wanted = self._subscriptions.wanted(client, instance_id)
            version = self._subscriptions.version
            instance = _Instance(client, wanted, _subscription_id(wanted, instance_id), version, now_s)
            self._instances[instance_id] = instance
        instance.seen_s = now_s
        self._instances.move_to_end(instance_id)
        if client.owner is not NO_OWNER:
            self._by_owner[client.owner].move_to_end(instance_id)
        return instance

    def _make_place(self, instance_id: bytes, owner: Principal | None) -> None:
        """Count one more client.  Where that is too many, the one that was silent for longest is forgotten: of its
        principal's, if that has any.
        """
        own = None if owner is NO_OWNER else self._by_owner.get(owner)
        if self._places.room(owner) <= 0:
            self._forget(next(iter(own or self._instances)))
        self._places.take(owner)
        if owner is not NO_OWNER:
            self._by_owner.setdefault(owner, OrderedDict())[instance_id] = None

    def _sweep(self, now_s: float) -> None:
        """From time to time, forget the clients that have sent nothing for too long."""
        if now_s - self._swept_s < _SWEEP_S:
            return
        self._swept_s = now_s
        silent = [
            instance_id
            for instance_id, instance in self._instances.items()
            if now_s - instance.seen_s > max(KEPT_S_MIN, _KEPT_INTERVALS * instance.interval_s)
        ]
        for instance_id in silent:
            self._forget(instance_id)

    def _forget(self, instance_id: bytes) -> None:
        owner = self._instances.pop(instance_id).client.owner
        self._places.give(owner)
        if owner is not NO_OWNER:
            own = self._by_owner[owner]
            del own[instance_id]
            if not own:
                del self._by_owner[owner]
        self._drop_series(instance_id, owner)

    def _drop_series(self, instance_id: bytes, owner: Principal | None) -> None:
        self._room.give(owner, len(self._series.pop(instance_id, ())))


def _subscription_id(wanted: Wanted, instance_id: bytes) -> int:
    """The id of what the server wants of a client; it changes only if that changes."""
    said = zlib.crc32(json.dumps(wanted).encode() + instance_id)
    number: int = _SIGNED.unpack(said.to_bytes(4, "big"))[0]
    return number


def _joined(attributes: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{name}={value}" for name, value in attributes)[:ATTRIBUTES_CHARS_MAX]
