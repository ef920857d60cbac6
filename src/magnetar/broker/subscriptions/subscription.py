"""One subscription of one partition: the shell around its dispatcher.

It offers to the dispatcher what its reader has read (`reader.py`), does what that decides, and keeps the cursor.

**Position.**  The cursor is live (`CursorStore.attach`) while there are consumers, so that Kafka's committed offset
of the group of this name is the same thing at any moment.  What is stored follows soon (`stored_positions.py`), and at
once when the last consumer leaves, on a seek and at a stop.  After a kill the stored position counts: messages come
again, and none is lost.  A non-durable cursor is in memory only, is this subscription's alone, and holds nothing back.

**Entries that were acknowledged in part.**  The rest is delivered with an ack set, but only to consumers that are known
to acknowledge message by message: others never acknowledge an entry of which they got a part, so they get all of it.
The first ack set shows that they do so, and the cursor keeps this fact.  Once there have been share consumers of Kafka,
which acknowledge record by record, all consumers get just the rest, as an entry of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar.base.clock import Clock
from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.base.tasks import Tasks
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions import forms
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.acknowledgements import USES_ACK_SETS, Acknowledgements
from magnetar.broker.subscriptions.bare_forms import bare, has_undecided
from magnetar.broker.subscriptions.consumer import (
    ConsumerPort,
    MakeConsumer,
    OutboxConsumer,
    SubscribedConsumer,
)
from magnetar.broker.subscriptions.delivery_counts import HAS_SHARERS, DeliveryCounts
from magnetar.broker.subscriptions.dispatch.model import (
    Actions,
    ActiveChange,
    Consumer,
    Deliver,
    Dispatcher,
    Rewind,
    Unit,
)
from magnetar.broker.subscriptions.dispatch.multi import MultiConsumerDispatcher
from magnetar.broker.subscriptions.dispatchers import check_fits
from magnetar.broker.subscriptions.errors import SubscriptionClosed
from magnetar.broker.subscriptions.limits import Pace
from magnetar.broker.subscriptions.model import (
    AckedId,
    Buffer,
    ConsumerSpec,
    Counters,
    Delivery,
    SubscriptionType,
)
from magnetar.broker.subscriptions.offers import Offers
from magnetar.broker.subscriptions.payloads import Payloads
from magnetar.broker.subscriptions.pending_acks import PendingAcks
from magnetar.broker.subscriptions.pending_units import PendingUnits
from magnetar.broker.subscriptions.reader import LogReader
from magnetar.broker.subscriptions.remembered import Remembered, Rows
from magnetar.broker.subscriptions.ticker import Ticker
from magnetar.ledger.compacted_view import LogView, view_of
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.entry import Entry

MakeDispatcher = Callable[["Subscription", ConsumerSpec], Dispatcher]


@dataclass(frozen=True, slots=True)
class Environment:
    """What all subscriptions share.

    `changed` is called for cursors that are to be stored soon, `dropped` for those that were deleted.
    """

    clock: Clock
    cursors: CursorStore
    forms: forms.Forms
    make_dispatcher: MakeDispatcher
    changed: Callable[["Subscription"], None]
    dropped: Callable[["Subscription"], None]
    counters: Counters
    tasks: Tasks
    pending: PendingAcks
    rows: Rows


class Subscription:
    """See the module's text."""

    def __init__(
        self, environment: Environment, partition: Partition, name: str, cursor: Cursor, *, is_durable: bool
    ) -> None:
        self.partition = partition
        self.name = name
        self.is_durable = is_durable
        self.key = CursorKey(name, partition.topic.name.full, partition.index)
        self.cursor = cursor
        self.is_closed = False  # dropped, or let go of: there is another object for it, or none
        self.dispatcher: Dispatcher | None = None
        self.changing = asyncio.Lock()  # held by the task that opens, moves or drops it
        self.is_attached = False
        self.counts = DeliveryCounts(self, lambda: self._reader.offset)
        self.pace = Pace(self.key, self._go_on)
        self._environment = environment
        self._members: dict[Consumer, OutboxConsumer] = {}
        self._reads_compacted = False  # any of them does; asked several times for each read
        self._takes_bare = False  # likewise
        self._pending = PendingUnits(environment.pending, self.key)
        self._acks = Acknowledgements(self, environment.forms)
        self._remembered = Remembered(environment.rows, self._acks.delivered, lambda: self._reader.more())
        offers = Offers(self, environment.clock, environment.counters, self._remembered)
        self._reader = LogReader(self, offers, environment.clock)
        self._ticker = Ticker(environment.clock, self._tick)
        payloads = Payloads(self, environment.clock, environment.tasks)
        # A consumer's side: no call is between it and these.
        self.payload_at_once = payloads.at_once
        self.load = payloads.load
        self.count = environment.counters.went_out

    # --- consumers ---------------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> list[OutboxConsumer]:
        return list(self._members.values())

    def has(self, member: SubscribedConsumer) -> bool:
        """Whether the consumer is connected to it."""
        return member.state in self._members

    @property
    def is_in_use(self) -> bool:
        return bool(self._members)

    @property
    def type(self) -> SubscriptionType | None:
        """That of its consumers; None while there are none."""
        return None if self.dispatcher is None else self.dispatcher.type

    @property
    def active_consumer(self) -> OutboxConsumer | None:
        """The one that gets everything, of an Exclusive or Failover subscription."""
        if self.dispatcher is None or self.dispatcher.active is None:
            return None
        return self._members.get(self.dispatcher.active)

    @property
    def view(self) -> LogView:
        """The log as its active consumer reads it."""
        if self._reads_compacted and (active := self.active_consumer) is not None:
            return view_of(self.partition.log, compacted=active.spec.reads_compacted)
        return self.partition.log

    def add(
        self,
        spec: ConsumerSpec,
        port: ConsumerPort,
        unacked_messages_max: int,
        make: MakeConsumer = OutboxConsumer,
    ) -> OutboxConsumer:
        """Connect a consumer; it gets nothing before it asks (`flow`).

        Raises:
            SubscriptionClosed: it was dropped meanwhile.
            SubscriptionBusy, ConsumerBusy, ConsumerAssignError: it cannot be one of this subscription's.
        """
        if self.is_closed:
            raise SubscriptionClosed(f"{self} was closed meanwhile")
        dispatcher = self.dispatcher
        if dispatcher is None:
            dispatcher = self._environment.make_dispatcher(self, spec)
        else:
            check_fits(dispatcher, spec)
        member = make(self, spec, port, self._environment.clock.now_ms(), unacked_messages_max)
        showed_undecided = self._shows_undecided
        actions = dispatcher.add_consumer(member.state)
        self._members[member.state] = member
        self._members_changed()
        if member.takes_bare:
            self.cursor.properties.setdefault(HAS_SHARERS, "")
        if self.dispatcher is None:
            self.dispatcher = dispatcher
            self._restart_reading()
        elif showed_undecided and not self._shows_undecided and has_undecided(self.partition, self.cursor):
            self.read_anew()  # some of what waits is not for this one
        self.carry_out(actions)
        self.tell_end()
        return member

    def remove(self, member: SubscribedConsumer) -> bool:
        """A consumer has gone; what it had goes to the others.  False when it was not connected."""
        mine = self._members.pop(member.state, None)
        if mine is None or self.dispatcher is None:
            return False
        self._members_changed()
        mine.outbox.clear()
        actions = self.dispatcher.remove_consumer(member.state)
        if self._members:
            self.carry_out(actions)
        else:
            self._stop()
        return True

    def disconnect_all(self) -> None:
        """Close every consumer: their clients subscribe again."""
        if self.is_closed:
            return
        members, self._members = self._members, {}
        self._members_changed()
        self._stop()
        for member in members.values():
            member.outbox.clear()
            member.port.closed()

    def let_go(self) -> None:
        """Nothing uses it any more.

        Its parts know it, so it forgets them: the memory of such a circle waits for a full collection, which a server
        that works never has (`server/garbage.py`).  What still waits for one of the parts finds no dispatcher here.
        """
        assert not self._members, self
        if not self.is_closed:
            self.is_closed = True
            self._acks.cut_off()
            self.pace.end()
            del self.counts, self.payload_at_once, self.load
            del self._acks, self._reader, self._remembered, self._ticker

    def _members_changed(self) -> None:
        if not self._members:
            self.counts.note()
        self._reads_compacted = any(member.spec.reads_compacted for member in self._members.values())
        self._takes_bare = any(member.takes_bare for member in self._members.values())

    def _stop(self) -> None:
        """No consumer is left to deliver to, and none holds anything any more."""
        dispatcher, self.dispatcher = self.dispatcher, None
        if dispatcher is not None:
            dispatcher.rewind()
        self._acks.delivered.clear()
        self.recount()
        self._reader.stop()
        self.pace.leave()
        self._ticker.stop()

    # --- what consumers say ------------------------------------------------------------------------------------------

    def flow(self, member: SubscribedConsumer, permits: int) -> None:
        if self.dispatcher is not None:
            self.carry_out(self.dispatcher.flow(member.state, permits))

    def writable(self, member: SubscribedConsumer, is_writable: bool) -> None:
        """The member's connection is full, or takes bytes again."""
        mine = self._members.get(member.state)
        if self.dispatcher is None or mine is None:
            return
        if is_writable:
            mine.drain(self)
        self.carry_out(self.dispatcher.set_writable(mine.state, is_writable and not mine.outbox))

    def acknowledge(
        self, member: SubscribedConsumer, ids: Sequence[AckedId], *, cumulative: bool
    ) -> Awaitable[None] | None:
        """Take up to `IDS_AT_ONCE` message ids (others change nothing); what is returned is to be awaited.

        It raises SubscriptionClosed if the subscription was dropped or moved meanwhile, or another broker has it, and
        StorageError if ids could not be looked up; all others count.
        """
        return None if self.is_closed else self._acks.take(member, ids, cumulative)

    def acknowledge_many(
        self, member: SubscribedConsumer, pieces: Iterable[Sequence[AckedId]], *, cumulative: bool
    ) -> Awaitable[None] | None:
        """As `acknowledge`, piece by piece."""
        return None if self.is_closed else self._acks.take_many(member, pieces, cumulative)

    async def all_taken(self) -> None:
        """Return when every acknowledgement that has come so far is taken, or refused because that takes too long."""
        if not self.is_closed:
            await self._acks.taken(self._environment.clock)

    async def to_acknowledge(self, ids: Sequence[AckedId], *, cumulative: bool) -> list[Range]:
        """The offsets that a transaction acknowledges by these ids, also if the last consumer has left since.

        Raises as `offsets_of`.
        """
        acks = Acknowledgements(self, self._environment.forms) if self.is_closed else self._acks
        return await acks.offsets_of(ids, cumulative=cumulative)

    def now_pending(self, ranges: Sequence[Range]) -> None:
        """A transaction has acknowledged these: they wait for its end, and for no consumer."""
        if self.dispatcher is not None:
            self.carry_out(self.dispatcher.pending(ranges, self._pending.count))

    def no_longer_pending(self, ranges: Sequence[Range]) -> None:
        """The transaction that had acknowledged these was aborted: they are delivered again."""
        dispatcher = self.dispatcher
        if isinstance(dispatcher, MultiConsumerDispatcher):
            for consumer in list(dispatcher.consumers):
                units = {unit for start, end in ranges for unit in dispatcher.held_in(consumer, start, end)}
                self.carry_out(dispatcher.give_back(sorted(units, key=lambda unit: unit.order), counts=True))
                self.counts.changed()
        else:
            self.read_anew()

    def advance(self, ranges: Sequence[Range], member: SubscribedConsumer | None = None) -> None:
        """Acknowledge ranges of offsets, and tell the dispatcher."""
        cursor = self.cursor
        if not ranges or not cursor.ack_individual(ranges):
            return
        if member is not None:
            acked = sum([end - start for start, end in ranges])
            member.acked_messages += acked
            self._environment.counters.acknowledged += acked
        self.changed()
        self.tell_end()
        if self.dispatcher is not None:
            self.carry_out(self.dispatcher.acked(ranges))

    def changed(self) -> None:
        """What is to be known of it after a restart has changed: it is stored soon."""
        self._environment.changed(self)

    def redeliver(
        self, member: SubscribedConsumer, positions: Sequence[tuple[int, int]] | None, epoch: int | None
    ) -> None:
        """A consumer wants entries again, by their positions, or (None) all that it has not acknowledged."""
        mine = self._members.get(member.state)
        if self.dispatcher is None or mine is None:
            return
        bases, entries = (None, None) if positions is None else self._acks.delivered.units_at(positions)
        if self._pending.acks.by_key:
            bases, entries = self._pending.without(mine.state.held, bases, entries)
        permits = mine.take_back(entries)
        self.carry_out(self.dispatcher.redeliver(mine.state, bases, epoch, entries))
        self.counts.changed()
        self.flow(mine, permits)

    def tell_end(self) -> None:
        """Tell every consumer, once, that there is nothing more and never will be."""
        partition = self.partition
        if partition.is_terminated and self.cursor.mark_delete >= partition.log.next_offset:
            for member in self._members.values():
                if not member.knows_end:
                    member.knows_end = True
                    member.port.reached_end()

    def limit_unacked(self, limits: UnackedLimits) -> None:
        """From now on so many of its messages may be unacknowledged."""
        if self.dispatcher is not None:
            self.carry_out(self.dispatcher.limit_unacked(limits))

    # --- carrying out ------------------------------------------------------------------------------------------------

    def carry_out(self, actions: Actions) -> None:
        for action in actions:
            match action:
                case Deliver(consumer, units):
                    member = self._members.get(consumer)
                    if member is not None:
                        if (pending := self._pending.acks.by_key) and self.key in pending:
                            ranges = [(unit.base_offset, unit.end_offset) for unit in units]
                            units, permits = self._pending.parted(units)
                            asyncio.get_running_loop().call_soon(self.now_pending, ranges)
                            if permits:
                                asyncio.get_running_loop().call_soon(self.flow, member, permits)
                        if self.shows_rest and not member.takes_bare:
                            forms.show_rest(units)
                        self._acks.delivered.remember(units, self._remembered.ids_max)
                        member.outbox.extend(units)
                        self._drain(member)
                case ActiveChange(consumer, is_active):
                    member = self._members.get(consumer)
                    if member is not None:
                        member.port.active_changed(is_active)
                case Rewind():
                    self._restart_reading()
        dispatcher = self.dispatcher
        self._remembered.recount(dispatcher)
        self._reader.more()
        if dispatcher is not None and dispatcher.wants_ticks:
            self._ticker.set(dispatcher.next_tick_ms)

    def recount(self) -> None:
        """What it remembers may have changed."""
        self._remembered.recount(self.dispatcher)

    def _drain(self, member: OutboxConsumer) -> None:
        member.drain(self)
        if member.outbox and self.dispatcher is not None:
            self.dispatcher.set_writable(member.state, False)

    def delivery(self, member: OutboxConsumer, unit: Unit, payload: Buffer) -> Delivery:
        entry: Any = unit.entry  # as `position_of` has it; this is done for each message
        offsets = self._pending.left(unit) if self._pending.acks.by_key else unit.offsets
        ack_set = (
            forms.ack_set_left(unit, offsets) if offsets is not None and self._hides_acknowledged else ()
        )
        return Delivery(entry[0], entry[1], payload, unit.redelivery_count, ack_set, member.state.epoch)

    @property
    def shows_rest(self) -> bool:
        return HAS_SHARERS in self.cursor.properties

    @property
    def _hides_acknowledged(self) -> bool:
        return USES_ACK_SETS in self.cursor.properties

    def _tick(self) -> None:
        if self.dispatcher is not None:
            self.carry_out(self.dispatcher.tick(self._environment.clock.now_ms()))
            if self.dispatcher is not None and self.dispatcher.due(1):
                self._reader.some_are_due()

    # --- reading -----------------------------------------------------------------------------------------------------

    def form(
        self, partition: Partition, entries: Sequence[Entry]
    ) -> Sequence[Formed] | Awaitable[Sequence[Formed]]:
        """Entries as this subscription's consumers get them: the first ones, as many as may go out."""
        if self.pace.limits:
            entries = self.pace.fitting(entries)
        if self._takes_bare:
            return bare(partition, entries, self.pulsar_forms, shows_undecided=self._shows_undecided)
        return self.pulsar_forms(partition, entries)

    @property
    def _shows_undecided(self) -> bool:
        """Whether its consumers, all of them, are shown records of transactions that are not committed."""
        return self._takes_bare and all(member.takes_undecided for member in self._members.values())

    def visible_end(self) -> int:
        """Where what its consumers may see ends."""
        partition = self.partition
        return partition.log.high_watermark if self._shows_undecided else partition.last_stable_offset

    def pulsar_forms(
        self, partition: Partition, entries: Sequence[Entry]
    ) -> Sequence[Formed] | Awaitable[Sequence[Formed]]:
        by_key = self.type is SubscriptionType.KEY_SHARED
        cutting = forms.Cutting(by_key, self.view.cleaned if self.is_durable else 0)
        return forms.cut(self._environment.forms(partition, entries), entries, cutting)

    def read_anew(self) -> None:
        """Forget what was read: what is not acknowledged is read, and goes out, as it is now."""
        if self.dispatcher is not None:
            self.counts.note()
            self.dispatcher.rewind()
            self._restart_reading()

    def _restart_reading(self) -> None:
        """Read again from the first message that is not acknowledged."""
        self._reader.restart(self.cursor.mark_delete)
        for member, permits in [(member, member.take_back()) for member in self._members.values()]:
            if permits and self.dispatcher is not None:
                self.carry_out(self.dispatcher.flow(member.state, permits))

    def _go_on(self) -> None:
        """Its pace lets it go on: with what waits for consumers, then with reading."""
        for member in self.pace.by_turns([member for member in self._members.values() if member.outbox]):
            self.writable(member, member.port.is_writable)
        self._reader.more()

    # --- the cursor --------------------------------------------------------------------------------------------------

    def move(self, offset: int) -> None:
        """Start over from `offset`; no consumer may be connected."""
        assert not self._members, self
        self.cursor.reset(offset)

    def skip_to(self, offset: int) -> None:
        """Acknowledge everything below `offset`."""
        self.advance([(self.cursor.mark_delete, offset)] if offset > self.cursor.mark_delete else [])

    def replaced(self, cursor: Cursor | None) -> None:
        """A Kafka commit, or a transaction's, writes the stored cursor; or it was dropped (None)."""
        if cursor is None:
            self.disconnect_all()
            self._environment.dropped(self)
        elif self._members:
            # Either a transaction of Kafka was decided, or one of Pulsar, which has told this subscription before.  In
            # both cases consumers continue where they are, even if Kafka's has committed an offset before that.
            self.skip_to(cursor.mark_delete)
            self.changed()
        else:
            self.cursor = cursor.copy()

    def backlog(self) -> int:
        """Messages that are not acknowledged."""
        return self.cursor.backlog(self.partition.log.high_watermark, self.partition.log.log_start)

    def __str__(self) -> str:
        return f"subscription {self.name} of {self.key.topic}, partition {self.key.partition}"
