"""What goes into a dispatcher and what comes out.

The shell reads the log and offers units in the order of their offsets.  A dispatcher answers every call with a list
of actions, to be carried out in that order before the next call.  It does not wait, look at a clock or touch
bytes.  A dispatcher delivers what it was offered, or keeps it until it is acknowledged.  Only when it says `Rewind` has
it forgotten everything, and the shell reads again from the first unacknowledged message.  Of an entry that is delayed
it keeps only the place: when its time has come, the shell reads it once more (`due`) and offers that (`offer_due`).

Permits count messages, but a delivery is an entry with all its messages.  So the last entry may take more permits than
there are, and a consumer's permits may then be negative (Pulsar's rule, reference `Consumer.sendMessages`).  A delivery
takes as many permits as its batch has messages, acknowledged ones too: C++'s and Go's clients give permits back for
messages that the ack set hides.  Java's clients do not, so the shell gives these permits back itself (`flow`).

Offsets are those of the partition's log; ranges are half-open.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.broker.subscriptions.dispatch.ranges import OffsetRange, without
from magnetar.broker.subscriptions.model import SubscriptionType

READ_ENTRIES_MAX = 100  # Pulsar's dispatcherMaxReadBatchSize


class Place(IntEnum):
    """Where a unit is, seen from the dispatcher that was offered it."""

    FRESH = 0  # waits, and was never anywhere else
    REPLAY = 1  # waits after it was delivered or delayed
    PARKED = 2  # waits for one particular consumer
    HELD = 3  # delivered and not acknowledged
    DONE = 4  # acknowledged, or forgotten by a rewind


class Unit:
    """What is delivered at once: an entry, or those messages of it that belong to one key.

    `entry` and `payload` are the shell's; `entry` should be a light handle, since a unit lives until it is
    acknowledged.  `payload` is what the shell has read already and may be taken away at any time: a delivery
    without one means to read the entry again.
    `offsets` are the messages still to be acknowledged, None for the whole entry; the dispatcher narrows them and
    `message_count` as acknowledgements arrive.  `permits` is what a delivery costs: all messages in the batch as the
    client gets it; by default as many as the entry has offsets.  `chunk_id` is the uuid of a chunked message.  `slot`
    is the hash of the key (`hashing.py`).
    """

    __slots__ = (
        "base_offset",
        "chunk_id",
        "deliver_at_ms",
        "end_offset",
        "entry",
        "holder",
        "message_count",
        "offsets",
        "order",
        "payload",
        "permits",
        "place",
        "redelivery_count",
        "sibling",
        "slot",
    )

    def __init__(
        self,
        entry: object,
        base_offset: int,
        end_offset: int,
        *,
        payload: object = None,
        offsets: Sequence[OffsetRange] | None = None,
        message_count: int | None = None,
        permits: int | None = None,
        slot: int = 0,
        deliver_at_ms: int = 0,
        chunk_id: str | None = None,
    ) -> None:
        self.entry = entry
        self.payload = payload
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.offsets = offsets
        if message_count is None:
            message_count = (
                end_offset - base_offset if offsets is None else sum(stop - start for start, stop in offsets)
            )
        self.message_count = message_count
        self.permits = end_offset - base_offset if permits is None else permits
        self.slot = slot
        self.deliver_at_ms = deliver_at_ms
        self.chunk_id = chunk_id
        self.redelivery_count = 0
        self.place = Place.FRESH
        self.holder: Consumer | None = None
        self.order = -1  # the dispatcher's number for it: ascends with offsets
        self.sibling: Unit | None = None  # another unit of the same entry

    def __repr__(self) -> str:
        return f"<Unit [{self.base_offset}, {self.end_offset}) {self.place.name} x{self.message_count}>"

    def __lt__(self, other: "Unit") -> bool:
        """Which of two units of one entry comes first, by what is left of them."""
        return (self.offsets or ((self.base_offset, 0),))[0] < (other.offsets or ((other.base_offset, 0),))[0]

    @property
    def is_acknowledged(self) -> bool:
        """Whether `subtract` has left nothing."""
        return self.offsets is not None and not self.offsets

    def subtract(self, cuts: Sequence[OffsetRange]) -> int:
        """Take acknowledged offsets away; how many messages that were not acknowledged before.

        `cuts` are ascending and do not overlap (`ranges.merged`).
        """
        before = [(self.base_offset, self.end_offset)] if self.offsets is None else self.offsets
        left, gone = without(before, cuts)
        if gone:
            # A compacted Kafka batch has fewer messages than offsets: what is gone then is an estimate.
            gone = min(gone, self.message_count) if left else self.message_count
            self.message_count -= gone
            self.offsets = left
        return gone


class Consumer:
    """One consumer of a subscription as the dispatcher sees it; the shell makes it and reads its figures.

    `hash_ranges` are what a sticky Key_Shared consumer declares, both ends included.
    """

    __slots__ = (
        "blocked",
        "epoch",
        "handle",
        "hash_ranges",
        "held",
        "in_turn",
        "name",
        "permits",
        "priority_level",
        "unacked_messages",
        "unacked_messages_max",
        "writable",
    )

    def __init__(
        self,
        handle: object,
        name: str,
        *,
        priority_level: int = 0,
        epoch: int = 0,
        unacked_messages_max: int = 0,
        hash_ranges: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.handle = handle
        self.name = name
        self.priority_level = priority_level
        self.epoch = epoch
        self.unacked_messages_max = unacked_messages_max  # 0: no limit
        self.hash_ranges = tuple(hash_ranges)
        self.permits = 0
        self.unacked_messages = 0
        self.blocked = False  # it holds too many unacknowledged messages
        self.writable = True  # its connection takes more bytes
        self.held: set[Unit] = set()
        self.in_turn = False  # the ring has it

    def __repr__(self) -> str:
        return f"<Consumer {self.name} permits={self.permits} unacked={self.unacked_messages}>"

    @property
    def available(self) -> bool:
        """Whether it may be given another unit now."""
        return self.permits > 0 and self.writable and not self.blocked


@dataclass(slots=True)
class Deliver:
    """Send these units to this consumer, in this order, each with its `redelivery_count`."""

    consumer: Consumer
    units: list[Unit]


@dataclass(slots=True)
class ActiveChange:
    """Tell a Failover consumer whether it is the active one."""

    consumer: Consumer
    is_active: bool


@dataclass(slots=True)
class Rewind:
    """Read again from the first unacknowledged message: the dispatcher has forgotten what it was offered.

    What the shell has read but not offered, and reads under way, are to be thrown away.
    """


Action = Deliver | ActiveChange | Rewind
Actions = list[Action]


class Dispatcher(ABC):
    """One subscription of one partition, while it has consumers.

    Consumers that have left, or never joined, may be named in any call: it does nothing.
    """

    type: SubscriptionType
    consumers: list[Consumer]
    active: Consumer | None = None  # the one that gets everything, where one consumer does
    blocked = False  # too many unacknowledged messages: nothing new goes out
    remembers: ClassVar[bool] = (
        False  # it keeps units until they are acknowledged, and an index of delayed messages
    )
    wants_ticks: ClassVar[bool] = False  # there may be a `next_tick_ms`

    def __init__(self) -> None:
        self.consumers = []
        self._messages_per_entry = 1.0

    @abstractmethod
    def add_consumer(self, consumer: Consumer) -> Actions:
        """A consumer joins; it has no permits yet.  Raises ConsumerBusy or ConsumerAssignError."""

    @abstractmethod
    def remove_consumer(self, consumer: Consumer) -> Actions:
        """A consumer is gone: what it holds goes to the others; `Rewind` when there are none."""

    @abstractmethod
    def flow(self, consumer: Consumer, permits: int) -> Actions:
        """A consumer asks for so many more messages; 0 or less is ignored."""

    @abstractmethod
    def set_writable(self, consumer: Consumer, is_writable: bool) -> Actions:
        """A consumer's connection is full, or takes bytes again."""

    @abstractmethod
    def offer(self, units: Sequence[Unit], now_ms: int) -> Actions:
        """Units that follow what was offered before; units of one entry come in one call, next to each other."""

    @abstractmethod
    def acked(self, ranges: Iterable[OffsetRange]) -> Actions:
        """These offsets are acknowledged, by any client; offsets that were never offered are ignored."""

    @abstractmethod
    def redeliver(
        self,
        consumer: Consumer,
        base_offsets: Iterable[int] | None = None,
        epoch: int | None = None,
        entries: Container[object] | None = None,
    ) -> Actions:
        """A consumer wants entries again, by their base offsets, or all that it holds.

        Of entries that were cut into several units only those come again whose `entry` is among `entries`.
        """

    @abstractmethod
    def rewind(self) -> None:
        """Forget what was offered: the shell goes on reading elsewhere (seek, cursor moved by another client)."""

    @abstractmethod
    def wanted(self) -> int:
        """How many entries to read now, from the average number of messages in one; 0: none."""

    def limit_unacked(self, limits: UnackedLimits) -> Actions:
        """From now on so many messages may be unacknowledged, where several consumers share a subscription."""
        return []

    def pending(self, ranges: Iterable[OffsetRange], count_of: Callable[[Unit], int]) -> Actions:
        """What open transactions have acknowledged in these ranges has changed; `count_of` says how many messages of a
        unit that is.  They wait for an end, not for their consumer, so they do not count as unacknowledged.
        """
        return []

    def tick(self, now_ms: int) -> Actions:
        """Time has come for `next_tick_ms`."""
        return []

    def wanted_due(self) -> int:
        """As `wanted`, of entries whose time has come; they come before others."""
        return 0

    def due(self, count: int) -> list[int]:
        """Where the first of them begin, ascending: so many at most.  They are due until they are offered."""
        return []

    def offer_due(self, units: Sequence[Unit], entries: Sequence[OffsetRange], now_ms: int) -> Actions:
        """The units of these entries, which were due and have been read again, ascending; an entry may have none."""
        return []

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` is to be called next; None: no need."""
        return None

    def rows(self, row_bytes: int) -> int:
        """What it remembers, in rows of so many bytes: one for each unit, and those of the delayed index."""
        return 0

    @property
    def unit_count(self) -> int:
        """Units that it keeps until they are acknowledged."""
        return 0

    @property
    def delayed_count(self) -> int:
        """Messages whose time has not come, or that have not been read again since."""
        return 0

    @property
    def delayed_bytes(self) -> int:
        """About what the index of those takes in memory."""
        return 0

    @property
    def waiting_count(self) -> int:
        """Units that wait for a consumer that may have them."""
        return 0

    def _entries_for(self, permits: int, entries_max: int = READ_ENTRIES_MAX) -> int:
        """Entries that hold about so many messages: at least one, at most a read's worth or `entries_max`."""
        if permits <= 0 or entries_max <= 0:
            return 0
        return max(1, min(READ_ENTRIES_MAX, entries_max, int(permits / self._messages_per_entry)))

    def _observe(self, units: Sequence[Unit]) -> None:
        """Keep the average number of permits that an entry costs, the newest tenth of it from `units`."""
        average = sum([unit.permits for unit in units]) / len(units)
        self._messages_per_entry = max(1.0, self._messages_per_entry * 0.9 + average * 0.1)
