"""The way of one topic to one target: what a broker has sent, the producer that sends it on, and the receipts.

A lane has a thread of its own, so a target that is slow or does not answer holds back its own topic alone.  The thread
takes everything that has come meanwhile as one chunk, and sends that until the target has it
(`replicators/delivery.py`).  Only then the broker gets its receipts, in the order in which it sent: a message without
a receipt stays in the broker's backlog.

A lane that fails ends; the broker opens another one, after growing pauses of its own, and sends again what has no
receipt.  The next lane to the same target begins when this one's thread has ended, so no record that is sent again can
be overtaken by an old one.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from magnetar.base.errors import WireError
from magnetar.base.tasks import settle
from magnetar.replicator_service.dead_letters import DeadLetters
from magnetar.replicator_service.entries import records_in
from magnetar.replicators.delivery import deliver
from magnetar.replicators.errors import CredentialsRefused, ReplicatorConfigError, TargetUnavailable
from magnetar.replicators.provider import ReplicatedRecord, ReplicatorProducer
from magnetar.wire.pulsar.entry import EntryView

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 16 << 20
CHUNK_MESSAGES: Final = 20_000
WAITING_BYTES_MAX: Final = 64 << 20  # then the broker's connection is not read

_T = TypeVar("_T")
_FAILURES: Final = (TargetUnavailable, CredentialsRefused, ReplicatorConfigError)


@dataclass(frozen=True, slots=True)
class Sent:
    """A SEND that waits for its receipt."""

    sequence_id: int
    highest_sequence_id: int
    entry: EntryView

    @property
    def size(self) -> int:
        return len(self.entry.data)


class Lane:
    """See the module's text.  All methods are for the event loop.

    open_producer  opens the target's producer, on the lane's thread; raises what `ReplicatorProvider` says
    letters        stores the messages that the target never takes
    delivered      the lane calls it with the messages that the target has, in order
    failed         the lane calls it at most once, when it ends by itself
    """

    def __init__(
        self,
        name: str,
        partition: int,
        open_producer: Callable[[], ReplicatorProducer],
        letters: DeadLetters,
        delivered: Callable[[Sequence[Sent]], None],
        failed: Callable[[], None],
    ) -> None:
        self.name = name
        self.sent = 0  # records that the target has
        self.dead = 0
        self.ended = asyncio.Event()  # its thread does nothing any more, and never will
        self._partition = partition
        self._producers = _Producers(open_producer)
        self._letters = letters
        self._delivered = delivered
        self._failed = failed
        self._waiting: deque[Sent] = deque()
        self._waiting_bytes = 0
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_closing = False
        self._stop = threading.Event()  # ends the thread's pauses
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lane")
        self._numbered = 0

    # --- its life ----------------------------------------------------------------------------------------------------

    async def run(self, opened: "asyncio.Future[None]") -> None:
        """Open the producer, which `opened` reports, and send on what comes, until the lane is closed or fails."""
        try:
            try:
                await self._call(self._producers.get)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                settle(opened, error)
                return
            settle(opened, None)
            await self._forward()
        finally:
            self._is_closing = True
            self._has_room.set()
            self._waiting.clear()
            await self._call(self._producers.drop)
            self._thread.shutdown(wait=False)
            self.ended.set()

    async def _forward(self) -> None:
        while True:
            await self._has_work.wait()
            if self._is_closing:
                return
            taken = self._take()
            try:
                await self._call(self._send_on, taken)
            except _FAILURES as error:
                self._fail(str(error))
                return
            except Exception:
                log.exception("the replication of %s has failed inside the service", self.name)
                self._fail("internal error")
                return
            self._delivered(taken)

    def _fail(self, reason: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            log.warning("the replication of %s ends: %s", self.name, reason)
            self._failed()

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """End after the chunk that is on its way; `ended` is set when that has happened."""
        self._is_closing = True
        self._stop.set()
        self._has_work.set()
        self._has_room.set()

    # --- what comes --------------------------------------------------------------------------------------------------

    def take(self, sent: Sent) -> None:
        """Take the next message; it is dropped if the lane ends before the target has it."""
        if self._is_closing:
            return
        self._waiting.append(sent)
        self._waiting_bytes += sent.size
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self._has_room.clear()
        self._has_work.set()

    async def room(self) -> None:
        """Return when the lane may take more."""
        await self._has_room.wait()

    def _take(self) -> list[Sent]:
        """The next chunk of what waits."""
        taken: list[Sent] = []
        size = messages = 0
        while self._waiting and size < CHUNK_BYTES and messages < CHUNK_MESSAGES:
            sent = self._waiting.popleft()
            taken.append(sent)
            size += sent.size
            messages += sent.entry.num_messages
        self._waiting_bytes -= size
        if self._waiting_bytes <= WAITING_BYTES_MAX:
            self._has_room.set()
        if not self._waiting:
            self._has_work.clear()
        return taken

    # --- on its thread -----------------------------------------------------------------------------------------------

    async def _call(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run `work` on the lane's thread, behind all earlier work."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _send_on(self, taken: Sequence[Sent]) -> None:
        records: list[ReplicatedRecord] = []
        unreadable: list[tuple[memoryview, str]] = []
        for sent in taken:
            try:
                records += records_in(sent.entry, self._partition, self._numbered + len(records))
            except WireError as error:
                unreadable.append((sent.entry.data, str(error)))
        poison = deliver(self._producers, records, self._pause) if records else ()
        self._letters.write(poison, unreadable)
        self._numbered += len(records)
        self.sent += len(records) - len(poison)
        self.dead += len(poison) + len(unreadable)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise TargetUnavailable("the lane was closed while its target did not take records")


class _Producers:
    """The producer of a lane, which its thread opens again if it has failed."""

    def __init__(self, open_producer: Callable[[], ReplicatorProducer]) -> None:
        self._open_producer = open_producer
        self._producer: ReplicatorProducer | None = None

    def get(self) -> ReplicatorProducer:
        if self._producer is None:
            self._producer = self._open_producer()
        return self._producer

    def drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
