"""Appending and reading as tests want it: awaitable, and whole ledgers at once."""

import asyncio
import resource
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec

from magnetar.storage.store import EntryId, LedgerReader, LedgerWriter, StoredEntry

P = ParamSpec("P")


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that awaits."""

    @wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def append(
    ledger: LedgerWriter, body: bytes, last_offset: int, timestamp_ms: int = 0
) -> "asyncio.Future[EntryId]":
    """A future of the entry's id, done when the entry is acknowledged."""
    future: asyncio.Future[EntryId] = asyncio.get_running_loop().create_future()
    middle = len(body) // 3

    def done(error: Exception | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(entry_id)

    entry_id = ledger.append(
        [body[:middle], memoryview(body)[middle:]], len(body), last_offset, timestamp_ms, done
    )
    return future


async def fill(ledger: LedgerWriter, bodies: list[bytes]) -> None:
    """Append `bodies` as entries whose offsets are ten apart, and wait for all of them."""
    first = ledger.stat.entry_count
    await asyncio.gather(
        *[append(ledger, body, (first + n) * 10 + 9, 1000 + first + n) for n, body in enumerate(bodies)]
    )


async def read_all(ledger: LedgerReader, bytes_max: int = 50_000) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    while entries := await ledger.read(EntryId(len(found)), bytes_max):
        found.extend(entries)
    return found


async def bodies_of(ledger: LedgerReader, bytes_max: int = 50_000) -> list[bytes]:
    return [bytes(entry.body) for entry in await read_all(ledger, bytes_max)]


def pattern(number: int, size: int) -> bytes:
    """`size` bytes that no other number has."""
    seed = number.to_bytes(8, "big")
    return (seed * (size // 8 + 1))[:size]


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process grows, or is written, behind `size`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
