"""One connected consumer: what it will get, and what its connection takes.

The dispatcher decides which consumer gets a unit, and has counted its permits.  The outbox here holds what was
decided and not yet written.  Units wait in it only while their bytes are read again, or while their peer is slow.  It
holds no payloads then, so a consumer that takes nothing costs a few hundred bytes per message of its receiver queue,
whatever the messages' size.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, cast

from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.dispatch.model import Consumer, Unit
from magnetar.broker.subscriptions.limits import Pace
from magnetar.broker.subscriptions.model import AckedId, Buffer, ConsumerSpec, Delivery
from magnetar.ledger.cursor import Cursor

BURST_BYTES_MAX: Final = 256 << 10  # handed to the connection before it is asked again whether it takes more


class ConsumerPort(Protocol):
    """The consumer's side of the door: its protocol implements it.  No method may call back before it returns."""

    @property
    def is_writable(self) -> bool:
        """Whether the connection takes more bytes now; when that changes, the door calls `Subscription.writable`."""
        ...

    def deliver(self, deliveries: Sequence[Delivery]) -> None: ...

    def active_changed(self, is_active: bool) -> None:
        """The consumer of a Failover subscription has become its active one, or no longer is."""
        ...

    def reached_end(self) -> None:
        """The topic is terminated, and the consumer has acknowledged everything; called once."""
        ...

    def closed(self) -> None:
        """The broker has closed the consumer: its client has to subscribe again."""
        ...


class ConsumerOwner(Protocol):
    """A subscription as its consumers use it."""

    @property
    def name(self) -> str: ...
    @property
    def partition(self) -> Partition: ...
    def flow(self, member: "SubscribedConsumer", permits: int) -> None:
        """A consumer asks for this many more messages."""
        ...

    def writable(self, member: "SubscribedConsumer", is_writable: bool) -> None:
        """A consumer's connection is full, or takes bytes again."""
        ...

    def acknowledge(
        self, member: "SubscribedConsumer", ids: Sequence[AckedId], *, cumulative: bool
    ) -> Awaitable[None] | None:
        """Take up to `IDS_AT_ONCE` acknowledgements; the caller must await the result."""
        ...

    def acknowledge_many(
        self, member: "SubscribedConsumer", pieces: Iterable[Sequence[AckedId]], *, cumulative: bool
    ) -> Awaitable[None] | None:
        """As `acknowledge`, piece by piece."""
        ...

    def redeliver(
        self, member: "SubscribedConsumer", positions: Sequence[tuple[int, int]] | None, epoch: int | None
    ) -> None:
        """A consumer wants entries again, by their positions, or (None) all that it has not acknowledged."""
        ...

    def remove(self, member: "SubscribedConsumer") -> bool:
        """A consumer has gone; false if it was not connected."""
        ...

    def backlog(self) -> int:
        """The number of messages that are not acknowledged."""
        ...


class OutboxOwner(ConsumerOwner, Protocol):
    """A subscription that stores its position, as its consumers' outboxes use it."""

    @property
    def cursor(self) -> Cursor: ...
    @property
    def pace(self) -> Pace: ...
    def payload_at_once(self, unit: Unit) -> Buffer | None:
        """The bytes of a unit, if they are at hand."""
        ...

    def load(self, member: "OutboxConsumer", unit: Unit) -> None:
        """Read the bytes of a unit again, and drain the outbox with them."""
        ...

    def delivery(self, member: "OutboxConsumer", unit: Unit, payload: Buffer) -> Delivery:
        """The message that goes out for a unit."""
        ...

    def count(self, messages: int, redelivered: int) -> None:
        """This many messages went out, and this many of them again."""
        ...


class SubscribedConsumer:
    """One consumer; its owner's `add` makes it.  Counts are of messages."""

    __slots__ = (
        "acked_messages",
        "bytes_out",
        "connected_since_ms",
        "messages_out",
        "messages_redelivered",
        "port",
        "spec",
        "state",
        "subscription",
    )

    def __init__(
        self,
        subscription: ConsumerOwner,
        spec: ConsumerSpec,
        port: ConsumerPort,
        connected_since_ms: int,
        unacked_messages_max: int,
    ) -> None:
        self.subscription = subscription
        self.spec = spec
        self.port = port
        self.connected_since_ms = connected_since_ms
        self.state = Consumer(
            spec.name,  # not this object: they would know each other, and a cycle waits for the collector
            spec.name,
            priority_level=spec.priority_level,
            epoch=spec.epoch or 0,
            unacked_messages_max=unacked_messages_max,
            hash_ranges=spec.hash_ranges,
        )
        self.messages_out = 0
        self.bytes_out = 0
        self.messages_redelivered = 0
        self.acked_messages = 0


class OutboxConsumer(SubscribedConsumer):
    """A consumer of a `Subscription`.  See the module's text.

    `takes_bare`: it reads the entries itself, so units need no payload.  `takes_undecided`: it gets records of
    transactions that are not committed.
    """

    takes_bare = False
    takes_undecided = False

    __slots__ = ("has_waited", "is_loading", "knows_end", "outbox")

    def __init__(
        self,
        subscription: OutboxOwner,
        spec: ConsumerSpec,
        port: ConsumerPort,
        connected_since_ms: int,
        unacked_messages_max: int,
    ) -> None:
        super().__init__(subscription, spec, port, connected_since_ms, unacked_messages_max)
        self.outbox: deque[Unit] = deque()
        self.is_loading = False  # the payload of the outbox's first unit is being read
        self.has_waited = False  # the outbox: what is in it may have been acknowledged meanwhile
        self.knows_end = False  # the broker has told it that its topic is terminated

    def drain(self, subscription: OutboxOwner) -> None:
        """Hand over as much of the outbox as the connection takes."""
        outbox, port, pace = self.outbox, self.port, subscription.pace
        refund = 0
        may_go_on = True
        while outbox and may_go_on and not self.is_loading and port.is_writable:
            burst: list[Delivery] = []
            size = messages = redelivered = 0
            while outbox and size < BURST_BYTES_MAX:
                unit = outbox[0]
                if self.has_waited and _is_acknowledged(unit, subscription.cursor):
                    refund += unit.permits
                    outbox.popleft()
                    continue
                payload = cast("Buffer | None", unit.payload)
                if payload is None:
                    # What was read was let through then; what has to be read again is not ahead of others.
                    may_go_on = pace.may_go_on()
                    if not may_go_on:
                        break
                    payload = subscription.payload_at_once(unit)
                if payload is None:
                    self.is_loading = True
                    subscription.load(self, unit)
                    break
                outbox.popleft()
                unit.payload = (
                    None  # its memory is the cache's again, however long the message stays unacknowledged
                )
                unit_bytes, unit_messages = len(payload), unit.message_count
                size += unit_bytes
                messages += unit_messages
                if unit.redelivery_count:
                    redelivered += unit_messages
                if pace.limits:
                    pace.used(unit_messages, unit_bytes)
                delivery = subscription.delivery(self, unit, payload)
                if delivery.ack_set and not self.spec.returns_hidden_permits:
                    refund += unit.permits - unit_messages
                burst.append(delivery)
            if burst:
                self.bytes_out += size
                self.messages_out += messages
                self.messages_redelivered += redelivered
                subscription.count(messages, redelivered)
                port.deliver(burst)
        if outbox and not self.is_loading:
            for unit in outbox:
                unit.payload = None
        self.has_waited = bool(outbox)
        if refund:
            subscription.flow(self, refund)

    def take_back(self, chosen: Container[object] | None = None) -> int:
        """Forget what waits in the outbox, or the units of it with these as their `entry`; what permits it had cost."""
        kept: list[Unit] = []
        permits = 0
        for unit in self.outbox:
            if chosen is None or unit.entry in chosen:
                permits += unit.permits
            else:
                kept.append(unit)
        self.outbox.clear()
        self.outbox.extend(kept)
        return permits


MakeConsumer: TypeAlias = Callable[..., OutboxConsumer]
"""Takes what `OutboxConsumer` takes."""


def _is_acknowledged(unit: Unit, cursor: Cursor) -> bool:
    """Whether nothing of a unit is left to deliver."""
    ranges = unit.offsets or ((unit.base_offset, unit.end_offset),)
    return not any(cursor.unacknowledged(start, end) for start, end in ranges)
