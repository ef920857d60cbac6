"""What clients send to subscriptions, and what they get from them: values."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, NamedTuple

PERMITS_MAX = (1 << 31) - 1


class SubscriptionType(Enum):
    """The values are those of CommandSubscribe.SubType."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


IDS_AT_ONCE: Final = 500
"""Ids of messages in one call that acknowledges them."""


class AckedId(NamedTuple):
    """One message id of an ACK: an entry, or with a non-empty `ack_set` a part of it."""

    ledger_id: int
    entry_id: int
    ack_set: Sequence[int] = ()


Buffer = bytes | bytearray | memoryview

Within = Callable[[], AbstractAsyncContextManager[object]]
"""Makes what a new subscription is stored within, so that the caller that has asked for it can record it."""


class Delivery(NamedTuple):
    """One MESSAGE.  `payload` is the entry from its checksum's magic on; `ack_set` is empty for a whole entry."""

    ledger_id: int
    entry_id: int
    payload: Buffer
    redelivery_count: int
    ack_set: Sequence[int]
    consumer_epoch: int


@dataclass(slots=True)
class Counters:
    """Counts of all subscriptions since the start, in messages."""

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    unseen: int = 0  # markers, control batches, aborted and undecodable entries, acknowledged by the broker

    def went_out(self, messages: int, redelivered: int) -> None:
        """So many messages went out, so many of them again."""
        self.delivered += messages
        self.redelivered += redelivered


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """What a consumer says about itself.  `hash_ranges` make a Key_Shared consumer a sticky one; both ends are
    included.

    `epoch` is None if the client does not use epochs.  `returns_hidden_permits`: its client gives permits back for
    messages that an ack set hides from it, as C++ and Go do and Java does not.  `address` and `client_version` are
    its client's, for statistics.  `identity` is the same when it reconnects: a subscribe rate counts by it.
    `reads_compacted`: where compaction has looked, it wants only the last value of each key.
    """

    name: str
    type: SubscriptionType
    priority_level: int = 0
    epoch: int | None = None
    is_sticky: bool = False
    hash_ranges: tuple[tuple[int, int], ...] = ()
    allows_out_of_order: bool = False
    returns_hidden_permits: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    client_version: str = ""
    identity: Hashable = None
    reads_compacted: bool = False


class InitialPosition(Enum):
    """The values are those of CommandSubscribe.InitialPosition."""

    LATEST = 0
    EARLIEST = 1


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a consumer asks for.

    `start`: a reader's start_message_id as (ledger id, entry id), None when it has none.
    `rollback_s`: begin so long ago instead, 0 for not.
    `may_create`: whether a durable subscription that is not there is made.
    `holds_data`: whether what it has not acknowledged is kept for it; Kafka's groups hold nothing back.
    """

    subscription: str
    consumer: ConsumerSpec
    is_durable: bool = True
    initial_position: InitialPosition = InitialPosition.LATEST
    start: tuple[int, int] | None = None
    rollback_s: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    may_create: bool = True
    holds_data: bool = True


@dataclass(frozen=True, slots=True)
class MessagePosition:
    """A message id as administrators write it.  `batch_index` is -1 for a whole entry."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    is_excluded: bool = False


class ShareRules(NamedTuple):
    """The rules for the records of a share group.

    `rollback_s` is how far back a group begins that has no position yet, 0 for its end or beginning.  Records that
    the group gives up go to `dead_letter_topic`, if it has one.
    """

    lock_ms: int
    deliveries_max: int
    locks_max: int
    begins_at_start: bool
    rollback_s: int
    reads_committed: bool
    may_renew: bool
    dead_letter_topic: str = ""
    copies_dead_letters: bool = False


class Acknowledge(IntEnum):
    """How a share consumer acknowledges a record; the values are those of Kafka's protocol."""

    GAP = 0  # there is no record at this offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acknowledged(NamedTuple):
    """How a share consumer acknowledges the records of a half-open range of offsets."""

    start: int
    stop: int
    kind: Acknowledge


class Acquired(NamedTuple):
    """Records that a share consumer has got, as a half-open range; the first delivery has count 1."""

    start: int
    stop: int
    delivery_count: int


class AnalyzedBacklog(NamedTuple):
    """Entries, and messages in them, that are not acknowledged; where the first and the last one of them are, in lists
    of one or none, as (ledger id, entry id).  `is_whole`: there are no others.
    """

    first: list[tuple[int, int]]
    last: list[tuple[int, int]]
    entries: int
    messages: int
    is_whole: bool
