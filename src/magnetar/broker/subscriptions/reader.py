"""Reads a partition's log for one subscription, as much as its dispatcher wants.

It reads once per turn of the event loop, so that a long backlog keeps no other client waiting.  It reads from the entry
cache at once, otherwise in a task, of which there is one at a time.  At the end of what may be seen it waits in
`Partition.waiters`.  What was read before a `restart` or `stop` and comes in after it is thrown away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Final, Protocol

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.errors import BrokerError
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.limits import Pace
from magnetar.broker.subscriptions.offers import Offers
from magnetar.ledger.compacted_view import LogView
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.entry import Entry

log: Final = logging.getLogger(__name__)

READ_BYTES_MAX: Final = 1 << 20
_NOTHING: Final = memoryview(b"")
# After a read that failed: the disk or the entry is broken, and reading on would skip data.
RETRY_S: Final = 5.0


class Reading(Protocol):
    """The subscription that reads."""

    @property
    def partition(self) -> Partition: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def pace(self) -> Pace: ...
    @property
    def view(self) -> LogView: ...
    def visible_end(self) -> int:
        """Where what its consumers may see ends."""
        ...

    def form(
        self, partition: Partition, entries: Sequence[Entry]
    ) -> Sequence[Formed] | Awaitable[Sequence[Formed]]:
        """Entries as its consumers get them."""
        ...


class LogReader:
    """See the module's text.  `offers` say what to read, and get what was read."""

    def __init__(self, owner: Reading, offers: Offers, clock: Clock) -> None:
        self._owner = owner
        self._partition = owner.partition
        self._offers = offers
        self._clock = clock
        self.offset = 0  # everything below was offered
        self._generation = 0
        self._reading: asyncio.Future[None] | None = None
        self._is_scheduled = False
        self._is_waiting = False  # its `_news` is called when there is more
        self._is_at_end = False  # ... and there was nothing more when it last looked
        self._retry: TimerHandle | None = None

    def restart(self, offset: int) -> None:
        """Continue at `offset`."""
        self._generation += 1
        self.offset = offset
        self._is_at_end = False
        self._wake()

    def stop(self) -> None:
        """Read nothing more until `restart`."""
        self._generation += 1
        self._unwait()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def more(self) -> None:
        """More may be wanted: call this after each command of a consumer.  At the end of the log it changes nothing."""
        if not self._is_at_end:
            self._wake()

    def some_are_due(self) -> None:
        """There are entries that are to be read again, also at the end of the log."""
        self._is_at_end = False
        self._wake()

    def _news(self, _partition: Partition) -> None:
        """There is more to read; called for every entry of a round."""
        self._is_at_end = False
        self._wake()

    def _wake(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _unwait(self) -> None:
        if self._is_waiting:
            self._is_waiting = self._is_at_end = False
            self._partition.waiters.discard(self._news)

    def _pump(self) -> None:
        self._is_scheduled = False
        if self._reading is not None or self._retry is not None:
            return
        if due := self._offers.due():
            self._start(self._read_again(self._generation, due))
            return
        wanted = self._offers.wanted()
        if wanted <= 0:
            self._unwait()  # so that the next command looks again, if only for what is due
            return
        partition, owner = self._partition, self._owner
        end = owner.visible_end()
        offset = self.offset = owner.cursor.next_unacknowledged(self.offset)
        entries = owner.view.read_cached(offset, READ_BYTES_MAX, end, wanted) if offset < end else []
        if entries is None:
            self._start(self._read(self._generation, offset, wanted))
        elif entries:
            formed = owner.form(partition, entries)
            if isinstance(formed, Awaitable):
                self._start(self._take_later(self._generation, formed))
            else:
                self._take(formed)
        else:
            self._is_at_end = True
            if not self._is_waiting:
                self._is_waiting = True
                partition.waiters.add(self._news)
            owner.pace.pass_turns()

    def _take(self, formed: Sequence[Formed]) -> None:
        formed = _with_gaps(formed, self.offset)
        self.offset = formed[-1].entry.last_offset + 1
        if self._is_waiting and self.offset >= self._owner.visible_end():
            self._is_at_end = True  # unless what is offered now says otherwise
        self._offers.offer(formed)
        self.more()

    # A coroutine begins only in the next turn of the loop: the generation is that of the moment when it was made.

    async def _take_later(self, generation: int, formed: Awaitable[Sequence[Formed]]) -> None:
        ready = await formed
        if generation == self._generation:
            self._take(ready)

    async def _read(self, generation: int, offset: int, wanted: int) -> None:
        entries = await self._owner.view.read(offset, READ_BYTES_MAX, wanted)
        end = self._owner.visible_end()
        visible = [entry for entry in entries if entry.last_offset < end]
        if generation == self._generation and visible:
            formed = self._owner.form(self._partition, visible)
            ready = await formed if isinstance(formed, Awaitable) else formed
            if generation == self._generation:
                self._take(ready)

    async def _read_again(self, generation: int, bases: Sequence[int]) -> None:
        entries, gone = await self._found_at(bases)
        formed = self._owner.form(self._partition, entries) if entries else []
        ready = await formed if isinstance(formed, Awaitable) else formed
        if generation == self._generation:
            self._offers.offer_due(ready, gone)

    async def _found_at(self, bases: Sequence[int]) -> tuple[list[Entry], list[Range]]:
        """The entries that begin at the first of these offsets, about as many as make `READ_BYTES_MAX`, and the offsets
        of those that the log no longer has.
        """
        view, found, gone = self._owner.view, list[Entry](), list[Range]()
        index = size = 0
        while index < len(bases) and size < READ_BYTES_MAX:
            base = bases[index]
            count = 1  # of entries that follow each other: one read for all
            while index + count < len(bases) and bases[index + count] == base + count:
                count += 1
            entries = await self._from(view, base, READ_BYTES_MAX - size, count)
            following = entries[0].base_offset if entries else view.log_start
            assert following >= base, f"{self._owner}: the entry at {base} begins at {following}"
            if following > base:
                gone.append((base, following))
                index += 1
                continue
            for entry in entries:
                if index == len(bases) or entry.base_offset != bases[index]:
                    break
                found.append(entry)
                size += len(entry.payload)
                index += 1
        return found, gone

    async def _from(self, view: LogView, offset: int, size_bytes: int, count: int) -> list[Entry]:
        offset = max(offset, view.log_start)
        cached = view.read_cached(offset, size_bytes, view.high_watermark, count)
        return await view.read(offset, size_bytes, count) if cached is None else cached

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._reading = asyncio.ensure_future(work)
        self._reading.add_done_callback(self._ended)

    def _ended(self, reading: asyncio.Future[None]) -> None:
        self._reading = None
        error = None if reading.cancelled() else reading.exception()
        if error is not None:
            if isinstance(error, BrokerError):
                log.warning("%s cannot read its log now: %s", self._owner, error)
            else:
                log.error("reading for %s failed", self._owner, exc_info=error)
            self._retry = self._clock.call_later(RETRY_S, self._try_again)
        self._wake()

    def _try_again(self) -> None:
        self._retry = None
        self._wake()


def _with_gaps(formed: Sequence[Formed], offset: int) -> Sequence[Formed]:
    """The same, read from `offset` on, and what compaction has left no entry for: nothing that a consumer sees."""
    found: list[Formed] = []
    for number, one in enumerate(formed):
        base = one.entry.base_offset
        if base > offset:
            if not found:
                found = list(formed[:number])
            found.append(Formed(Entry(offset, base - 1, -1, _NOTHING), None, None))
        if found or base > offset:
            found.append(one)
        offset = one.entry.last_offset + 1
    return found or formed
