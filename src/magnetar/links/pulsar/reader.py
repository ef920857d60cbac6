"""One partition that is read: where its reader is, and what the broker has said of the partition's end.

A reader is a consumer without a subscription that is kept.  The broker sends as many messages as the reader has given
permits for.  The number of permits follows the size of the messages, so little waits in memory.
"""

from dataclasses import dataclass
from typing import Final

from magnetar.client.links import Position
from magnetar.client.pulsar_line import PulsarLine
from magnetar.links.port import Place
from magnetar.links.pulsar.positions import number_of, position_of
from magnetar.wire.pulsar.commands import EARLIEST
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandFlow,
    CommandGetLastMessageId,
    CommandSubscribe,
    MessageIdData,
)

AHEAD_BYTES: Final = 8 << 20  # what a broker may send ahead
PERMITS_FIRST: Final = 64
PERMITS_MAX: Final = 4000


@dataclass(slots=True)
class PartitionReader:
    """See the module's text.  `next` is the number of the place that is read next (`positions.py`).

    `since_ms`: entries before the first one of that time or a later one are passed over; None: there is none left.
    `last` is the number of the partition's last entry for readers when its broker was asked, None before that.
    `has_lost`: it ended before what this reader had reached when it asked; what has come since may be behind it.
    `is_told`: the caller knows that it has had all up to `last`.
    """

    place: Place
    topic: str  # as clients name the partition
    number: int  # of the consumer
    next: int
    since_ms: int | None
    line: PulsarLine | None = None
    again_at_s: float = 0.0
    last: int | None = None
    has_lost: bool = False
    is_told: bool = True
    asked: int | None = None  # the request that is not answered yet
    asked_at: int = 0  # the number that was read next then
    ask_at_s: float = 0.0
    permits: int = 0  # that the broker has; below 0 if its last entry had more messages than were left
    message_bytes: float = AHEAD_BYTES / PERMITS_FIRST

    def subscribe(self, request_id: int, subscription: str) -> BaseCommand:
        """The command with which a broker begins to serve this reader, behind the last entry that has come."""
        start = MessageIdData(ledgerId=EARLIEST, entryId=EARLIEST)
        if self.next > 0:
            ledger_id, entry_id = position_of(self.next - 1)
            start = MessageIdData(ledgerId=ledger_id, entryId=entry_id)
        subscribing = CommandSubscribe(
            topic=self.topic,
            subscription=subscription,
            subType=CommandSubscribe.Exclusive,
            consumer_id=self.number,
            request_id=request_id,
            consumer_name=subscription,
            durable=False,
            start_message_id=start,
            initialPosition=CommandSubscribe.Earliest,
            force_topic_creation=False,
        )
        return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribing)

    def began(self, line: PulsarLine) -> None:
        """The broker at the other end serves this reader now."""
        self.line, self.asked, self.ask_at_s, self.permits = line, None, 0.0, 0
        self.permit()

    def lost(self, again_at_s: float) -> None:
        """No broker serves it; it is tried again then."""
        self.line, self.asked, self.again_at_s = None, None, again_at_s

    def permit(self) -> None:
        """Let the broker send more, if it has sent half of what it may send ahead.  Raises LineLost."""
        wanted = max(1, min(PERMITS_MAX, int(AHEAD_BYTES / self.message_bytes)))
        if self.line is None or self.permits > wanted // 2:
            return
        flow = CommandFlow(consumer_id=self.number, messagePermits=wanted - self.permits)
        self.line.send(BaseCommand(type=BaseCommand.FLOW, flow=flow))
        self.permits = wanted

    def took(self, count: int, size_bytes: int) -> None:
        """Messages have come."""
        self.permits -= count
        self.message_bytes += (size_bytes / count - self.message_bytes) / 16

    def ask_for_end(self) -> None:
        """Ask where the partition ends.  Raises LineLost."""
        assert self.line is not None, self.topic
        self.asked, self.asked_at = self.line.request_id(), self.next
        asking = CommandGetLastMessageId(consumer_id=self.number, request_id=self.asked)
        self.line.send(BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=asking))

    def answered(self, last: Position) -> None:
        """The broker says where the partition's last entry is; with an entry id of -1 it has none, and no place."""
        self.last = number_of(last)
        self.has_lost = last.entry_id >= 0 and self.last < self.asked_at - 1
        self.is_told, self.asked = False, None
