"""Reads a partition's log for one subscription, as much as its dispatcher wants.

It reads once per turn of the event loop, so that a long backlog keeps no other client waiting.  It reads from the entry
cache at once, otherwise in a task, of which there is one at a time.  At the end of what may be seen it waits in
`Partition.waiters`.  What was read before a `restart` or `stop` and comes in after it is thrown away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.errors import BrokerError
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.forms import Forms
from magnetar.ledger.compacted_view import LogView
from magnetar.ledger.entry import Entry

log: Final = logging.getLogger(__name__)

READ_BYTES_MAX: Final = 1 << 20
_NOTHING: Final = memoryview(b"")
# After a read that failed: the disk or the entry is broken, and reading on would skip data.
RETRY_S: Final = 5.0


class LogReader:
    """See the module's text.

    `view()` is the part of the log that it reads, and `end()` is where the visible part ends.  `wanted()` says how many
    entries to read now; `skip(offset)` is the first offset at or after `offset` that is to be read.  `offer` gets the
    entries that were read, in order.  `at_end` is called when the wanted entries have not come yet.  `due()` are the
    first offsets, ascending, of entries that are to be read again before anything new, and `offer_due` gets them, with
    the offsets of those that are gone.  `owner` is named in log lines.
    """

    def __init__(
        self,
        partition: Partition,
        forms: Forms,
        clock: Clock,
        owner: object,
        *,
        view: Callable[[], LogView],
        wanted: Callable[[], int],
        skip: Callable[[int], int],
        end: Callable[[], int],
        offer: Callable[[Sequence[Formed]], None],
        due: Callable[[], Sequence[int]],
        offer_due: Callable[[Sequence[Formed], Sequence[Range]], None],
        at_end: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._forms = forms
        self._clock = clock
        self._owner = owner
        self._view = view
        self._wanted = wanted
        self._skip = skip
        self._end = end
        self._offer = offer
        self._due = due
        self._offer_due = offer_due
        self._at_end = at_end
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
        if due := self._due():
            self._start(self._read_again(self._generation, due))
            return
        wanted = self._wanted()
        if wanted <= 0:
            self._unwait()  # so that the next command looks again, if only for what is due
            return
        partition = self._partition
        end = self._end()
        offset = self.offset = self._skip(self.offset)
        entries = self._view().read_cached(offset, READ_BYTES_MAX, end, wanted) if offset < end else []
        if entries is None:
            self._start(self._read(self._generation, offset, wanted))
        elif entries:
            formed = self._forms(partition, entries)
            if isinstance(formed, Awaitable):
                self._start(self._take_later(self._generation, formed))
            else:
                self._take(formed)
        else:
            self._is_at_end = True
            if not self._is_waiting:
                self._is_waiting = True
                partition.waiters.add(self._news)
            self._at_end()

    def _take(self, formed: Sequence[Formed]) -> None:
        formed = _with_gaps(formed, self.offset)
        self.offset = formed[-1].entry.last_offset + 1
        if self._is_waiting and self.offset >= self._end():
            self._is_at_end = True  # unless what is offered now says otherwise
        self._offer(formed)
        self.more()

    # A coroutine begins only in the next turn of the loop: the generation is that of the moment when it was made.

    async def _take_later(self, generation: int, formed: Awaitable[Sequence[Formed]]) -> None:
        ready = await formed
        if generation == self._generation:
            self._take(ready)

    async def _read(self, generation: int, offset: int, wanted: int) -> None:
        entries = await self._view().read(offset, READ_BYTES_MAX, wanted)
        end = self._end()
        visible = [entry for entry in entries if entry.last_offset < end]
        if generation == self._generation and visible:
            formed = self._forms(self._partition, visible)
            ready = await formed if isinstance(formed, Awaitable) else formed
            if generation == self._generation:
                self._take(ready)

    async def _read_again(self, generation: int, bases: Sequence[int]) -> None:
        entries, gone = await self._found_at(bases)
        formed = self._forms(self._partition, entries) if entries else []
        ready = await formed if isinstance(formed, Awaitable) else formed
        if generation == self._generation:
            self._offer_due(ready, gone)

    async def _found_at(self, bases: Sequence[int]) -> tuple[list[Entry], list[Range]]:
        """The entries that begin at the first of these offsets, about as many as make `READ_BYTES_MAX`, and the offsets
        of those that the log no longer has.
        """
        view, found, gone = self._view(), list[Entry](), list[Range]()
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
