"""A consumer of one connection: it turns what the broker sends it into frames.

It is in its session's table from SUBSCRIBE on, so that CLOSE_CONSUMER or the connection's end finds it even while the
subscription is still being opened.  If the consumer has gone meanwhile, what was opened for it is closed at once.
"""

from collections.abc import Sequence
from enum import Enum, auto

from magnetar.base.clock import TimerHandle
from magnetar.broker.subscriptions.model import Delivery
from magnetar.broker.usecases.subscribing import OpenedConsumer
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.commands import NO_REQUEST_ID, Buffer, MessageFrames
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandReachedEndOfTopic,
)

_ACTIVE_CHANGE_SINCE = 12  # the protocol version
# How long to wait for a consumer that asks for no messages, in seconds.
_ACTIVE_CHANGE_DELAY_S = 1.0
# C++, Python and Go clients close their connection on an unknown command, and reconnect for ever.
_KNOWS_END_OF_TOPIC = "Pulsar-Java"  # the beginning of CONNECT's client_version


class ConsumerState(Enum):
    OPENING = auto()
    OPEN = auto()
    CLOSED = auto()


class ConnectedConsumer:
    """See the module's text.  Implements the broker's `ConsumerPort` and the session's `Attached`."""

    __slots__ = (
        "_frames",
        "_has_ended",
        "_is_active",
        "_is_ready",
        "_tell_active",
        "consumer_id",
        "member",
        "session",
        "state",
        "uses_epochs",
    )

    def __init__(
        self, session: PulsarSession, consumer_id: int, partition: int, *, uses_epochs: bool
    ) -> None:
        self.session = session
        self.consumer_id = consumer_id
        self.uses_epochs = uses_epochs
        self.state = ConsumerState.OPENING
        self.member: OpenedConsumer | None = None  # only while it is `OPEN`
        self._frames = MessageFrames(consumer_id, partition)
        # Whether it is the active consumer; None if there is nothing to send.  The client is notified once it has
        # asked for messages: Go's client loses a command directly after SUCCESS, because it registers the consumer
        # only after that.
        self._is_active: bool | None = None
        self._tell_active: TimerHandle | None = None
        self._is_ready = False
        # Events before SUCCESS was sent, which are sent after it:
        self._has_ended = False

    def opened(self, member: OpenedConsumer) -> None:
        """Note that the subscription has the consumer, and its SUCCESS has been sent."""
        self.member = member
        self.state = ConsumerState.OPEN
        self.session.when_writable.add(self.writable_again)
        self._tell_active = self.session.service.clock.call_later(_ACTIVE_CHANGE_DELAY_S, self.ready)
        if self._has_ended:
            self.reached_end()

    def ready(self) -> None:
        """Notify the client, because it has asked for messages, or has had enough time to do so."""
        if self._is_ready or self.state is not ConsumerState.OPEN:
            return
        self._is_ready = True
        if self._tell_active is not None:
            self._tell_active.cancel()
            self._tell_active = None
        if self._is_active is not None:
            self.active_changed(self._is_active)

    def writable_again(self) -> None:
        if self.member is not None:
            self.member.writable()

    # --- the broker's side -------------------------------------------------------------------------------------------

    @property
    def is_writable(self) -> bool:
        return self.session.is_writable

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        parts: list[Buffer] = []
        front = self._frames.front
        if self.uses_epochs and deliveries:
            self._frames.set_epoch(deliveries[0].consumer_epoch)
        size = 0
        for ledger_id, entry_id, payload, redelivery_count, ack_set, _ in deliveries:
            head = front(ledger_id, entry_id, len(payload), redelivery_count, ack_set)
            parts.append(head)
            parts.append(payload)
            size += len(head) + len(payload)
        self.session.send_parts(parts, size)

    def active_changed(self, is_active: bool) -> None:
        if not self._is_ready:
            self._is_active = is_active
        elif self.session.protocol_version >= _ACTIVE_CHANGE_SINCE:
            change = CommandActiveConsumerChange(consumer_id=self.consumer_id, is_active=is_active)
            self.session.send(
                BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)
            )

    def reached_end(self) -> None:
        if self.state is ConsumerState.OPENING:
            self._has_ended = True
        elif self.session.client_version.startswith(_KNOWS_END_OF_TOPIC):
            notice = CommandReachedEndOfTopic(consumer_id=self.consumer_id)
            self.session.send(BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC, reachedEndOfTopic=notice))

    def closed(self) -> None:
        self.detach()
        self.session.send(self.close_notice())

    # --- the session's side ------------------------------------------------------------------------------------------

    def detach(self) -> None:
        """Remove it from its connection."""
        self.state = ConsumerState.CLOSED
        self.member = None  # it refers to this object: a cycle would need the collector
        if self._tell_active is not None:
            self._tell_active.cancel()
            self._tell_active = None
        self.session.when_writable.discard(self.writable_again)
        if self.session.consumers.get(self.consumer_id) is self:
            del self.session.consumers[self.consumer_id]

    def connection_lost(self) -> None:
        member = self.member
        self.detach()
        if member is not None:
            self.session.cases.subscribing.leave_later(member)

    def close_notice(self) -> BaseCommand:
        notice = CommandCloseConsumer(consumer_id=self.consumer_id, request_id=NO_REQUEST_ID)
        return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=notice)
