"""The stores that the brokers of a simulated cluster share, as each broker has them behind a network.

The network delays, and loses: a request, which nothing has carried out then, or an answer, whose sender does not know
that.  Messages of one broker to one store stay in order.  A paused broker sends and hears nothing; what it had sent
before arrives.  A dead one hears nothing more.

`Bookies` keeps ledgers, with one copy and a fence; `LedgerClient` is the `LedgerStore` of one log on one broker.
`Session` is the `MetadataStore` of one broker: it ends with its ephemeral paths, and its owner hears of it a little
later.  Ledgers promise what the port promises, and no more: appends that failed may be found when a ledger is sealed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar

from magnetar.base.errors import (
    LedgerFenced,
    LedgerNotFound,
    MetadataError,
    MetadataLost,
    StorageError,
)
from magnetar.metadata.store import ANY_VERSION, Change, CommitStep, Delete, Put, Versioned
from magnetar.storage.store import (
    READ_ENTRIES_MAX,
    Buffer,
    Done,
    EntryId,
    LedgerId,
    LedgerStat,
    StoredEntry,
)
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import stat_of
from magnetar.testing.metadata import MemoryMetadataStore

T = TypeVar("T")

TIME_OUT_S = 0.2  # after which a broker takes a message for lost


@dataclass(slots=True)
class Network:
    """How messages travel; the walk changes it."""

    clock: FakeClock
    random: Random
    delay_s: float = 0.005
    loss: float = 0.0

    def delay(self) -> float:
        return self.random.uniform(0.0, self.delay_s)

    def loses(self) -> bool:
        return self.loss > 0 and self.random.random() < self.loss


class Host:
    """The process of one broker, as the network sees it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.is_dead = False
        self._paused: list[Callable[[], None]] | None = None

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def pause(self) -> None:
        self._paused = []

    def resume(self) -> None:
        waiting, self._paused = self._paused or [], None
        for work in waiting:
            self.run(work)

    def run(self, work: Callable[[], None]) -> None:
        """Do this in the process: now, when it goes on, or never."""
        if self.is_dead:
            return
        if self._paused is not None:
            self._paused.append(work)
        else:
            work()


class Connection:
    """What one broker asks of one store, in order in both directions."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._network = host.network
        self._arrives_s = 0.0
        self._returns_s = 0.0

    def send(self, arrive: Callable[[Callable[[Callable[[], None]], None]], None]) -> None:
        """Let `arrive` run at the store; it gets a function that sends an answer, which runs in the process."""
        self._host.run(lambda: self._send(arrive))

    def _send(self, arrive: Callable[[Callable[[Callable[[], None]], None]], None]) -> None:
        clock = self._network.clock
        self._arrives_s = max(self._arrives_s, clock.monotonic() + self._network.delay())
        clock.call_later(self._arrives_s - clock.monotonic(), arrive, self.tell)

    def tell(self, work: Callable[[], None]) -> None:
        """Run in the process when what the store says now has arrived there."""
        clock = self._network.clock
        self._returns_s = max(self._returns_s, clock.monotonic() + self._network.delay())
        clock.call_later(self._returns_s - clock.monotonic(), self._host.run, work)

    def later(self, work: Callable[[], None]) -> None:
        """Run in the process when a message counts as lost."""
        self._network.clock.call_later(TIME_OUT_S, self._host.run, work)

    async def ask(self, work: Callable[[], T], lost: Exception) -> T:
        """What `work` returns or raises at the store; `lost` is for a message that did not arrive, either way."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def fail(error: Exception) -> None:
            if not future.done():
                future.set_exception(error)

        def succeed(value: T) -> None:
            if not future.done():
                future.set_result(value)

        def arrive(answer: Callable[[Callable[[], None]], None]) -> None:
            if self._network.loses():
                self.later(lambda: fail(lost))
                return
            try:
                value = work()
            except (MetadataError, StorageError) as refusal:
                error = refusal
                answer(lambda: fail(error))
                return
            if self._network.loses():
                self.later(lambda: fail(lost))
            else:
                answer(lambda: succeed(value))

        self.send(arrive)
        return await future


# --- metadata ---------------------------------------------------------------------------------------------------------


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


class Session:
    """Implements `MetadataStore`, as ZooKeeper would: see the module's text."""

    def __init__(self, host: Host, shared: MemoryMetadataStore, when_over: Callable[[], None]) -> None:
        self._host = host
        self._shared = shared
        self._connection = Connection(host)
        self._when_over = when_over
        self._ephemeral: set[str] = set()
        self.is_over = False

    def expire(self) -> None:
        """The store gives the session up; its owner hears of it when it hears anything."""
        if self.is_over:
            return
        self.is_over = True
        for path in sorted(self._ephemeral):
            at_once(self._shared.delete(path))
        self._connection.later(self._when_over)

    async def get(self, path: str) -> Versioned | None:
        return await self._ask(lambda: at_once(self._shared.get(path)))

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return await self._ask(lambda: at_once(self._shared.scan(prefix)))

    async def put(
        self, path: str, value: bytes, expected_version: int = ANY_VERSION, *, ephemeral: bool = False
    ) -> int:
        def write() -> int:
            if ephemeral:
                self._check_lasts()
            version = at_once(self._shared.put(path, value, expected_version, ephemeral=ephemeral))
            if ephemeral:
                self._ephemeral.add(path)
            return version

        return await self._ask(write)

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self.commit([Delete(path, expected_version)])

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        assert not any(isinstance(one, Put) and one.ephemeral for one in operations)
        await self._ask(lambda: at_once(self._shared.commit(operations)))

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Changes and answers arrive in the order in which the store has sent them."""

        def changed(change: Change) -> None:
            if not self.is_over:
                self._connection.tell(lambda: callback(change))

        return self._shared.watch(prefix, changed)

    async def close(self) -> None:
        self.expire()

    async def _ask(self, work: Callable[[], T]) -> T:
        return await self._connection.ask(
            partial(self._at_store, work), MetadataLost("no answer from the metadata store")
        )

    def _at_store(self, work: Callable[[], T]) -> T:
        self._check_lasts()
        return work()

    def _check_lasts(self) -> None:
        if self.is_over:
            raise MetadataError("the session with the metadata store is over")


# --- ledgers ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ledger:
    """One ledger as the bookies have it."""

    ledger_id: LedgerId
    entries: list[StoredEntry] = field(default_factory=list)
    is_closed: bool = False

    @property
    def stat(self) -> LedgerStat:
        return stat_of(self.ledger_id, self.entries, sealed=self.is_closed)


@dataclass(slots=True)
class Bookies:
    """All ledgers of the cluster, also those that were deleted."""

    ledgers: dict[LedgerId, Ledger] = field(default_factory=dict)
    deleted: set[LedgerId] = field(default_factory=set)
    fences: bool = True

    def create(self) -> Ledger:
        ledger = Ledger(LedgerId(len(self.ledgers) + 1))
        self.ledgers[ledger.ledger_id] = ledger
        return ledger

    def get(self, ledger_id: LedgerId) -> Ledger:
        if ledger_id in self.deleted or ledger_id not in self.ledgers:
            raise LedgerNotFound(f"there is no ledger {ledger_id}")
        return self.ledgers[ledger_id]

    def close(self, ledger_id: LedgerId, *, fence: bool = True) -> LedgerStat:
        ledger = self.get(ledger_id)
        ledger.is_closed = ledger.is_closed or fence
        return ledger.stat


@dataclass(slots=True)
class Pending:
    """An append on its way."""

    writer: "LedgerHandle"
    done: Done
    is_answered: bool = False
    error: StorageError | None = None


class LedgerHandle:
    """A ledger as a broker has opened or created it: implements `LedgerWriter`."""

    def __init__(self, client: "LedgerClient", stat: LedgerStat) -> None:
        self._client = client
        self.stat = stat
        self.is_failed = stat.sealed
        self._next = stat.entry_count

    @property
    def ledger_id(self) -> LedgerId:
        return self.stat.ledger_id

    def append(
        self,
        parts: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp_ms: int,
        done: Done,
        tail_crc: int | None = None,
    ) -> EntryId:
        if self.is_failed:
            raise LedgerFenced(f"ledger {self.ledger_id} takes no more entries")
        entry = StoredEntry(EntryId(self._next), last_offset, max_timestamp_ms, memoryview(b"".join(parts)))
        self._next += 1
        self._client.append(self, entry, done)
        return entry.entry_id

    async def seal(self) -> LedgerStat:
        self.is_failed = True
        await self._client.sent(self)
        self.stat = await self._client.close_ledger(self.ledger_id)
        return self.stat

    async def read(
        self, first: EntryId, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
    ) -> list[StoredEntry]:
        return (await self._client.entries_of(self.ledger_id))[first : first + min(entries_max, 3)]

    async def entry_for_offset(self, offset: int) -> EntryId | None:
        entries = await self._client.entries_of(self.ledger_id)
        return next((entry.entry_id for entry in entries if entry.last_offset >= offset), None)

    async def entry_for_timestamp(self, timestamp_ms: int) -> EntryId | None:
        entries = await self._client.entries_of(self.ledger_id)
        return next((entry.entry_id for entry in entries if entry.max_timestamp_ms >= timestamp_ms), None)


class LedgerClient:
    """Implements `LedgerStore` for one log of one broker."""

    def __init__(self, host: Host, bookies: Bookies) -> None:
        self._network = host.network
        self._bookies = bookies
        self._writes = Connection(host)
        self._asks = Connection(host)
        self._pending: deque[Pending] = deque()
        self._is_dropping = False  # an append did not arrive, so the store takes none of those behind it
        self._failure: StorageError | None = None
        self._drained: list[asyncio.Future[None]] = []

    # --- the port

    async def create(self) -> LedgerHandle:
        return LedgerHandle(self, await self._ask(lambda: self._bookies.create().stat))

    async def open(self, ledger_id: LedgerId) -> LedgerHandle:
        fence = self._bookies.fences
        return LedgerHandle(self, await self._ask(lambda: self._bookies.close(ledger_id, fence=fence)))

    async def delete(self, ledger_id: LedgerId) -> None:
        await self._ask(lambda: self._bookies.deleted.add(ledger_id))

    async def list_ledgers(self) -> list[LedgerStat]:
        return await self._ask(lambda: [ledger.stat for ledger in self._bookies.ledgers.values()])

    async def close(self) -> None:
        """Does nothing: what is on its way arrives."""

    # --- for its handles

    async def close_ledger(self, ledger_id: LedgerId) -> LedgerStat:
        return await self._ask(lambda: self._bookies.close(ledger_id))

    async def entries_of(self, ledger_id: LedgerId) -> list[StoredEntry]:
        return await self._ask(lambda: list(self._bookies.get(ledger_id).entries))

    async def sent(self, writer: LedgerHandle) -> None:
        """Wait until nothing of this writer is on its way."""
        while any(one.writer is writer for one in self._pending):
            drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.append(drained)
            await drained

    def append(self, writer: LedgerHandle, entry: StoredEntry, done: Done) -> None:
        pending = Pending(writer, done)
        self._pending.append(pending)

        def arrive(answer: Callable[[Callable[[], None]], None]) -> None:
            error = self._store(writer.ledger_id, entry)
            self._is_dropping = self._is_dropping or error is not None
            if isinstance(error, LedgerFenced):
                answer(lambda: self._answered(pending, error))
            elif error is not None or self._network.loses():
                lost = error or StorageError("no answer from the bookies")
                self._writes.later(lambda: self._answered(pending, lost))
            else:
                answer(lambda: self._answered(pending, None))

        self._writes.send(arrive)

    def _store(self, ledger_id: LedgerId, entry: StoredEntry) -> StorageError | None:
        ledger = self._bookies.ledgers[ledger_id]
        if ledger.is_closed or ledger_id in self._bookies.deleted:
            return LedgerFenced(f"ledger {ledger_id} is fenced")
        if self._is_dropping or self._network.loses():
            return StorageError("no answer from the bookies")
        assert entry.entry_id == len(ledger.entries), (ledger_id, entry.entry_id, len(ledger.entries))
        ledger.entries.append(entry)
        return None

    def _answered(self, pending: Pending, error: StorageError | None) -> None:
        pending.is_answered, pending.error = True, error
        while self._pending and self._pending[0].is_answered:
            one = self._pending[0]
            self._failure = self._failure or one.error
            failure = self._failure
            one.writer.is_failed = one.writer.is_failed or failure is not None
            self._pending.popleft()
            if not self._pending:
                self._failure, self._is_dropping = None, False
            one.done(failure)
        drained, self._drained = self._drained, []
        for future in drained:
            if not future.done():
                future.set_result(None)

    async def _ask(self, work: Callable[[], T]) -> T:
        return await self._asks.ask(work, StorageError("no answer from the bookies"))
