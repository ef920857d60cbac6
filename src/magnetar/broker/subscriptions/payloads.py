"""The bytes of units whose payload is no longer in memory: from the cache at once, or read again from the log."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.tasks import Tasks
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions import forms
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.consumer import OutboxConsumer
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.model import Buffer
from magnetar.broker.subscriptions.reader import RETRY_S
from magnetar.ledger.compacted_view import LogView
from magnetar.ledger.entry import Entry

log: Final = logging.getLogger(__name__)


class PayloadOwner(Protocol):
    """The subscription whose units they are."""

    @property
    def partition(self) -> Partition: ...
    @property
    def view(self) -> LogView: ...
    def pulsar_forms(
        self, partition: Partition, entries: Sequence[Entry]
    ) -> Sequence[Formed] | Awaitable[Sequence[Formed]]: ...
    def has(self, member: OutboxConsumer) -> bool: ...
    def read_anew(self) -> None: ...
    def advance(self, ranges: Sequence[Range]) -> None: ...
    def flow(self, member: OutboxConsumer, permits: int) -> None: ...
    def writable(self, member: OutboxConsumer, is_writable: bool) -> None: ...


class Payloads:
    """See the module's text."""

    def __init__(self, owner: PayloadOwner, clock: Clock, tasks: Tasks) -> None:
        self._owner = owner
        self._clock = clock
        self._tasks = tasks

    def at_once(self, unit: Unit) -> Buffer | None:
        """The unit's bytes, if they can be read without waiting."""
        owner = self._owner
        cached = owner.view.read_cached(unit.base_offset, 1, owner.partition.log.high_watermark)
        if not cached:
            return None
        return forms.payload_at_once(unit, owner.pulsar_forms(owner.partition, cached[:1]))

    def load(self, member: OutboxConsumer, unit: Unit) -> None:
        """Read the bytes of the unit at the head of the member's outbox, then continue with it."""
        owner = self._owner
        task = self._tasks.begin(
            "read a message again", forms.load(owner.partition, owner.view, unit, owner.pulsar_forms)
        )
        task.add_done_callback(lambda done: self._loaded(done, member, unit))

    def _loaded(self, task: "asyncio.Future[Buffer | None]", member: OutboxConsumer, unit: Unit) -> None:
        owner = self._owner
        member.is_loading = False
        if task.cancelled() or not owner.has(member):
            return
        error = task.exception()
        if isinstance(error, forms.EntryChanged):
            owner.read_anew()  # what is not acknowledged is read, and goes out, as it is now
        elif error is not None:
            log.warning("%s cannot read a message again: %s", owner, error)
            member.is_loading = True
            self._clock.call_later(RETRY_S, self._load_again, member)
            return
        elif (payload := task.result()) is not None:
            unit.payload = payload
        else:  # retention has taken it, or compaction
            permits = member.take_back({unit.entry})
            owner.advance([(unit.base_offset, unit.end_offset)])
            owner.flow(member, permits)
        owner.writable(member, member.port.is_writable)

    def _load_again(self, member: OutboxConsumer) -> None:
        member.is_loading = False
        self._owner.writable(member, member.port.is_writable)
