"""The embedded `MetadataStore`: one SQLite file, one writing thread, the whole content in memory.

**Writes.** Operations queue on the event loop.  When no *round* is under way, all queued operations become one.  The
store checks each operation, in order, against the state after the ones before it, so each compare-and-set is decided
before anything is written.  The thread gets the rows of those that succeed, as one transaction.  When that is durable
(WAL, `synchronous=FULL`), the store updates its memory, calls the watchers, and resumes the waiting coroutines.  The
next round fills while one is under way.  The thread only writes rows, so it never has to undo one operation of many.
`commits` counts the rounds.

Reads are answered from memory and therefore show only what is durable.  Ephemeral paths exist in memory
alone.

If a round fails because the disk is full or the file is locked, all its operations fail with `MetadataError`.  Memory
stays as it was, and the next round tries again.  Until one succeeds, the store makes a round without operations every
few seconds.  After any other error (`sqlite_file`), or an unforeseen exception, the store does not know what is on the
disk.  It takes no more writes until the next start, but still answers reads.  `problem` says what is wrong.
"""

import asyncio
import logging
import sqlite3
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from magnetar.base.clock import Clock, SystemClock, TimerHandle
from magnetar.base.errors import BadVersion, MetadataError, MetadataLost
from magnetar.base.lockfile import FileLock
from magnetar.metadata import sqlite_file
from magnetar.metadata.commit_mark import CommitMark
from magnetar.metadata.sqlite_file import Failure, Row, State, row_crc, summed
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    Change,
    Check,
    CommitStep,
    Delete,
    Put,
    Versioned,
    check_operation,
)

log = logging.getLogger(__name__)

_ROUND_STEPS_MAX: Final = (
    4096  # bounds a round's latency, its bytes in the WAL, and the loop's work for it at a time
)
_STEPS_AT_ONCE: Final = 1000  # in one turn of the event loop: a transaction may have any number
_CHECKPOINT_BYTES: Final = 4 << 20  # about what SQLite would let the WAL grow to
_PAGE_BYTES: Final = 4096
_PROBE_S: Final = 5.0  # between attempts to write after a failed one
_SLOW_S: Final = 10.0  # a write that takes longer is a problem
_INSORT_MAX: Final = 64  # at most so many paths are inserted one by one; for more, the list is sorted


class _Operation:
    """One `put`, `delete` or `commit` on its way."""

    __slots__ = ("changes", "error", "future", "steps")

    def __init__(self, steps: Sequence[CommitStep], future: "asyncio.Future[int]") -> None:
        self.steps = steps
        self.future = future
        self.error: MetadataError | None = None
        self.changes: list[tuple[Change, bool]] = []  # with: whether the path is ephemeral now


class _Node:
    __slots__ = ("ephemeral", "versioned")

    def __init__(self, versioned: Versioned, ephemeral: bool) -> None:
        self.versioned = versioned
        self.ephemeral = ephemeral


class _Paths:
    """The sorted paths while a round is applied: it inserts a few paths one by one, and sorts once for many.

    One insertion into a list of a hundred thousand paths moves half of them on average.
    """

    __slots__ = ("_changed", "_sorted")

    def __init__(self, paths: list[str]) -> None:
        self._sorted = paths
        self._changed: dict[str, bool] = {}  # with: whether the path exists now

    def add(self, path: str) -> None:
        self._changed[path] = True

    def remove(self, path: str) -> None:
        self._changed[path] = False

    def settled(self) -> list[str]:
        paths, changed = self._sorted, self._changed
        if len(changed) > _INSORT_MAX:
            kept = [path for path in paths if path not in changed]
            kept += sorted(path for path, is_there in changed.items() if is_there)
            kept.sort()  # two runs in order: one merge
            return kept
        for path, is_there in changed.items():
            index = bisect_left(paths, path)
            was_there = index < len(paths) and paths[index] == path
            if is_there and not was_there:
                insort(paths, path)
            elif was_there and not is_there:
                del paths[index]
        return paths


class Journaled(Protocol):
    """The ledger store beside this metadata: what a transaction notes about it."""

    @property
    def durable_sequence(self) -> int:
        """The last round of its journal that is durable now."""
        ...


class SqliteMetadataStore:
    """A `MetadataStore` in the file `path`, which it creates if there is none.

    It belongs to the event loop that first uses it.

    Raises:
        ConfigError: another process has the file open, or it is not a metadata file of this version.
        OSError: the file or its directory cannot be written.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        try:
            self._connection = sqlite_file.open_file(path)
            nodes, self._state = sqlite_file.load(path, self._connection)
            self._mark = _checked_mark(path, self._connection, self._state)
        except BaseException:
            self._lock.release()
            raise
        self._path = path
        self._nodes = {name: _Node(value, False) for name, value in nodes.items()}
        self._paths = sorted(self._nodes)
        self._ledgers: Journaled | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="magnetar-metadata")
        self._queue: list[_Operation] = []
        self._watchers: dict[int, tuple[str, Callable[[Change], None]]] = {}
        self._next_watcher = 0
        self._writing: asyncio.Task[None] | None = None
        self._round_began_s: float | None = None
        self._unchecked_bytes = 0  # written to the WAL since the last checkpoint, about
        self._failed_for_now: str | None = None
        self._failed_for_good: str | None = None
        self._probe: TimerHandle | None = None
        self._closed = False

    @property
    def commits(self) -> int:
        """How many transactions were ever made durable in this file."""
        return self._state.commits

    @property
    def noted_sequence(self) -> int:
        """The ledger store's last durable journal round at the last transaction (`bind`); 0 if it was not known."""
        return self._state.sequence

    def bind(self, ledgers: Journaled) -> None:
        """Note with each transaction from now on how far the journal of `ledgers`, which belong to this metadata, is
        durable.
        """
        self._ledgers = ledgers

    @property
    def problem(self) -> str | None:
        """For the operator: why nothing can be written, or that a write takes long; None if neither is so."""
        if self._failed_for_good is not None:
            return self._failed_for_good
        if self._failed_for_now is not None:
            return (
                f"metadata cannot be written now: {self._failed_for_now}; it is tried again every few seconds"
            )
        if self._round_began_s is not None:
            waiting_s = self._clock.monotonic() - self._round_began_s
            if waiting_s > _SLOW_S:
                return f"a write of metadata has been waiting for the disk for {waiting_s:.0f} s"
        return None

    async def get(self, path: str) -> Versioned | None:
        self._check_open()
        node = self._nodes.get(path)
        return None if node is None else node.versioned

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        self._check_open()
        nodes, paths = self._nodes, self._paths
        found = []
        for index in range(bisect_left(paths, prefix), len(paths)):
            path = paths[index]
            if not path.startswith(prefix):
                break
            found.append((path, nodes[path].versioned))
        return found

    async def put(
        self, path: str, value: bytes, expected_version: int = ANY_VERSION, *, ephemeral: bool = False
    ) -> int:
        return await self._submit((Put(path, value, expected_version, ephemeral),))

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self._submit((Delete(path, expected_version),))

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        if operations:
            await self._submit(tuple(operations))

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        key = self._next_watcher
        self._next_watcher += 1
        self._watchers[key] = (prefix, callback)

        def end() -> None:
            self._watchers.pop(key, None)

        return end

    async def close(self) -> None:
        """Finish the queued writes, then release the file.  Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        loop = asyncio.get_running_loop()
        if self._failed_for_good is None:
            await self._checkpoint(loop, truncate=True)
        await loop.run_in_executor(self._thread, self._connection.close)
        self._mark.close()
        self._thread.shutdown()
        self._lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise MetadataError("the metadata store is closed")

    async def _submit(self, steps: Sequence[CommitStep]) -> int:
        self._check_open()
        if self._failed_for_good is not None:
            raise MetadataError(self._failed_for_good)
        for step in steps:
            check_operation(step)
        loop = asyncio.get_running_loop()
        operation = _Operation(steps, loop.create_future())
        self._queue.append(operation)
        self._start(loop)
        try:
            return await operation.future
        finally:
            # It has the error that is raised, whose traceback has this frame (`base/errors.kept`).
            del operation

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._writing is None:
            # The task begins only after the coroutines that are ready now have run, so all their writes join its
            # first round.
            self._writing = loop.create_task(self._write_rounds(loop))

    async def _write_rounds(self, loop: asyncio.AbstractEventLoop) -> None:
        operations: list[_Operation] = []
        try:
            while self._queue or self._failed_for_now is not None:
                operations = self._take()
                await self._write_round(loop, operations)
                operations = []
                if self._failed_for_good is not None or (
                    self._failed_for_now is not None and not self._queue
                ):
                    break
                if self._unchecked_bytes >= _CHECKPOINT_BYTES:
                    await self._checkpoint(loop)
                    if self._failed_for_good is not None:
                        break
        except asyncio.CancelledError:
            self._stop_writing("a write was cancelled")
            self._fail_waiting(operations, "the metadata store is closing", MetadataLost)
            raise
        except Exception as error:
            log.exception("the metadata store takes no more writes")
            self._stop_writing(f"an unforeseen error ({type(error).__name__}: {error})")
            self._fail_waiting(operations, self._failed_for_good or "", MetadataLost)
        else:
            self._fail_waiting([], self._failed_for_good or "")
        finally:
            self._writing = None
        if self._failed_for_now is not None and not self._closed:
            if self._probe is not None:
                self._probe.cancel()
            self._probe = self._clock.call_later(_PROBE_S, self._start, loop)

    def _take(self) -> list[_Operation]:
        steps = 0
        for count, operation in enumerate(self._queue):
            steps += len(operation.steps)
            if count and steps > _ROUND_STEPS_MAX:
                taken, self._queue = self._queue[:count], self._queue[count:]
                return taken
        taken, self._queue = self._queue, []
        return taken

    async def _write_round(self, loop: asyncio.AbstractEventLoop, operations: Sequence[_Operation]) -> None:
        rows, gone, state = await self._decide(operations)
        failure = None
        if rows or gone or self._failed_for_now is not None:
            self._round_began_s = self._clock.monotonic()
            try:
                failure = await loop.run_in_executor(
                    self._thread, _write, self._connection, self._mark, rows, gone, state
                )
            finally:
                self._round_began_s = None
            self._unchecked_bytes += sum(_PAGE_BYTES + len(row[1]) for row in rows) + _PAGE_BYTES * len(gone)
            if failure is None:
                self._state = state
                self._failed_for_now = None
            else:
                self._note(failure)
        self._finish(loop, operations, failure)

    async def _checkpoint(self, loop: asyncio.AbstractEventLoop, *, truncate: bool = False) -> None:
        self._unchecked_bytes = 0
        failure = await loop.run_in_executor(
            self._thread, lambda: sqlite_file.checkpoint(self._connection, truncate=truncate)
        )
        if failure is not None and failure.is_final:
            self._note(failure)
        elif failure is not None:  # meanwhile the WAL grows, and has everything
            log.warning("metadata stays in the WAL for now: %s", failure.text)

    def _note(self, failure: Failure) -> None:
        if not failure.is_final:
            self._failed_for_now = failure.text
            return
        self._stop_writing(failure.text)
        log.error("%s", self._failed_for_good)

    def _stop_writing(self, why: str) -> None:
        self._failed_for_now = None
        self._failed_for_good = (
            f"metadata cannot be written until the server is started again: {why} ({self._path});"
            " look at the disk first"
        )

    def _fail_waiting(
        self, operations: Sequence[_Operation], why: str, error: type[MetadataError] = MetadataError
    ) -> None:
        for operation in (*operations, *self._queue):
            if not operation.future.done():
                operation.future.set_exception(error(why))
        self._queue.clear()

    async def _decide(self, operations: Sequence[_Operation]) -> tuple[list[Row], list[tuple[str]], State]:
        """Check every operation; the rows to write and the paths to remove, one at most for each path, and what the
        file will say of itself.

        Nothing but a round's end changes what this looks at, so others may have turns between.
        """
        count = 0
        ahead: dict[str, _Node | None] = {}
        for operation in operations:
            mine: dict[str, _Node | None] = {}
            for step in operation.steps:
                path = step.path
                old = mine[path] if path in mine else ahead[path] if path in ahead else self._nodes.get(path)
                version = old.versioned.version if old is not None else MUST_NOT_EXIST
                if step.expected_version not in (ANY_VERSION, version):
                    operation.error = _bad_version(path, step.expected_version, version)
                    break
                match step:
                    case Put():
                        new = Versioned(step.value, version + 1 if version >= 0 else 0)
                        mine[path] = _Node(new, step.ephemeral)
                        operation.changes.append((Change(path, new), step.ephemeral))
                    case Delete() if old is not None:
                        mine[path] = None
                        operation.changes.append((Change(path, None), False))
                    case Delete() | Check():
                        continue
                count += 1
                if count % _STEPS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            else:
                ahead.update(mine)
        rows: list[Row] = []
        gone: list[tuple[str]] = []
        replaced: list[int] = []
        for count, (path, node) in enumerate(ahead.items(), 1):
            if count % _STEPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            before = self._nodes.get(path)
            was_stored = before is not None and not before.ephemeral
            if before is not None and was_stored:
                replaced.append(row_crc(path, before.versioned.value, before.versioned.version))
            if node is not None and not node.ephemeral:
                value, version = node.versioned.value, node.versioned.version
                rows.append((path, value, version, row_crc(path, value, version)))
            elif was_stored:
                gone.append((path,))
        now = self._state
        sequence = 0 if self._ledgers is None else self._ledgers.durable_sequence
        digest = summed(now.digest, replaced, (row[3] for row in rows))
        return rows, gone, State(now.commits + 1, now.rows + len(rows) - len(replaced), digest, sequence)

    def _finish(
        self, loop: asyncio.AbstractEventLoop, operations: Sequence[_Operation], failure: Failure | None
    ) -> None:
        refusal: MetadataError | None = None
        if failure is not None:
            if self._failed_for_good is not None:
                refusal = MetadataLost(self._failed_for_good)
            else:
                refusal = MetadataError(f"metadata cannot be written now: {failure.text}")
        paths = _Paths(self._paths)
        for operation in operations:
            error = refusal or operation.error
            if error is None:
                for change, ephemeral in operation.changes:
                    self._apply(paths, change, ephemeral)
                    # The loop calls watchers later: one that raises must not prevent this round's other results.
                    for key, (prefix, _) in self._watchers.items():
                        if change.path.startswith(prefix):
                            loop.call_soon(self._notify, key, change)
            future = operation.future
            if future.done():  # its caller was cancelled; this does not undo the write
                continue
            if error is not None:
                future.set_exception(error)
                continue
            value = operation.changes[-1][0].value if operation.changes else None
            future.set_result(value.version if value is not None else 0)
        self._paths = paths.settled()

    def _apply(self, paths: "_Paths", change: Change, ephemeral: bool) -> None:
        path, value = change.path, change.value
        if value is None:
            del self._nodes[path]
            paths.remove(path)
            return
        if path not in self._nodes:
            paths.add(path)
        self._nodes[path] = _Node(value, ephemeral)

    def _notify(self, key: int, change: Change) -> None:
        watcher = self._watchers.get(key)
        if watcher is not None:
            watcher[1](change)


def _bad_version(path: str, expected: int, found: int) -> BadVersion:
    if expected == MUST_NOT_EXIST:
        return BadVersion(f"metadata path {path} exists already")
    if found == MUST_NOT_EXIST:
        return BadVersion(f"metadata path {path} does not exist, version {expected} was expected")
    return BadVersion(f"metadata path {path} has version {found}, {expected} was expected")


def _checked_mark(path: Path, connection: sqlite3.Connection, state: State) -> CommitMark:
    try:
        mark = CommitMark(path)
        try:
            mark.check(path, state.commits)
        except BaseException:
            mark.close()
            raise
    except BaseException:
        connection.close()
        raise
    return mark


def _write(
    connection: sqlite3.Connection,
    mark: CommitMark,
    rows: Sequence[Row],
    gone: Sequence[tuple[str]],
    state: State,
) -> Failure | None:
    failure = sqlite_file.write(connection, rows, gone, state)
    if failure is None:
        with suppress(OSError):  # an older number in the note is still valid
            mark.note(state.commits)
    return failure
