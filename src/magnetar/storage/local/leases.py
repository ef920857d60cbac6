"""Leases: which segment files must not be removed yet, because a process outside of the server reads them.

A ledger may be deleted while it is leased: readers of the server lose it at once, and only its file stays until the
last lease on it has ended.  A lease ends when its holder ends it, when the holder has not renewed it for its length,
and in any case after `LIFE_S_MAX`.  A reader that continues then takes a new lease, on the ledgers that still exist.
So a deleted ledger's file is gone a day later, whatever readers renew.

Leases survive the death of the process: each is a file in the store's `leases` directory, written before the holder
gets its answer.  A start reads the files and lets each lease begin again, for at least a minute.  So a holder that
could not renew it meanwhile has time to do so, and the time of day does not matter.  Leases need not survive a loss
of power, and are not synced.

Lease file, big-endian.  v2; named by the lease's id:

     0  8s   magic             b"MGLEASE2"
     8  u32  lease_s           the lease's length
    12  u32  count
    16  u32  held_s            how long it had been held when this was written, which is every `SAVE_EVERY_S`
    20  u64  ledger ids, ascending
     .  u32  crc32c            of everything before

v1, which a start also reads, has the magic b"MGLEASE1" and no held_s.

All methods run on the event loop, unless their docstring says otherwise.
"""

import asyncio
import logging
import math
import re
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from struct import Struct
from typing import Final

from crc32c import crc32c

from magnetar.base import randomness
from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.errors import LeaseNotFound, TooManyLeases
from magnetar.storage.local.disk import Disk
from magnetar.storage.store import LEASE_S_MAX, LedgerId

log = logging.getLogger(__name__)

LEASES_MAX: Final = 1000
LEDGERS_MAX: Final = 100_000  # of one lease
LEDGERS_TOTAL_MAX: Final = 1_000_000  # a hundred bytes each
LIFE_S_MAX: Final = 24 * 3600
SAVE_EVERY_S: Final = 600
FOUND_S_MIN: Final = 60  # for leases that a start finds: holders cannot reach the server at once
MAGIC: Final = b"MGLEASE2"
_HEAD: Final = Struct(">8sIII")
_MAGIC_1: Final = b"MGLEASE1"
_HEAD_1: Final = Struct(">8sII")
_CRC: Final = Struct(">I")
_NAME: Final = re.compile(r"[0-9a-f]{32}")


class Lease:
    """A lease on some segments, until `ends_at_s`, and never past `life_ends_at_s` (both of the monotonic clock).
    `held_s` is how long it was held before this process took it over.
    """

    __slots__ = ("ends_at_s", "held_s", "lease_id", "ledgers", "length_s", "life_ends_at_s", "saved_at_s")

    def __init__(self, lease_id: str, length_s: int, ledgers: Iterable[int] = (), held_s: int = 0) -> None:
        self.lease_id = lease_id
        self.length_s = length_s
        self.ledgers = set(ledgers)
        self.held_s = held_s
        self.ends_at_s = 0.0
        self.life_ends_at_s = 0.0
        self.saved_at_s = 0.0


def encode(length_s: int, ledgers: Iterable[int], held_s: int = 0) -> bytes:
    """The content of a lease file."""
    ids = array("Q", sorted(ledgers))
    if sys.byteorder == "little":
        ids.byteswap()
    content = _HEAD.pack(MAGIC, length_s, len(ids), held_s) + ids.tobytes()
    return content + _CRC.pack(crc32c(content))


def decode(lease_id: str, content: bytes) -> Lease | None:
    """The lease in a file; None if the content is not a lease, or damaged."""
    head = _HEAD_1 if content.startswith(_MAGIC_1) else _HEAD
    if len(content) < head.size + _CRC.size:
        return None
    magic, length_s, count, *held = head.unpack_from(content)
    body = content[: -_CRC.size]
    if (
        magic not in (MAGIC, _MAGIC_1)
        or not 0 < length_s <= LEASE_S_MAX
        or len(body) != head.size + 8 * count
        or content[-_CRC.size :] != _CRC.pack(crc32c(body))
    ):
        return None
    ids = array("Q", body[head.size :])
    if sys.byteorder == "little":
        ids.byteswap()
    return Lease(lease_id, length_s, ids, *held)


class Leases:
    """Implements `SegmentLeases`; see the module's text.

    When the last lease on a deleted ledger has ended, `remove(path)` is called with its file.
    """

    def __init__(self, disk: Disk, directory: Path, clock: Clock, remove: Callable[[Path], None]) -> None:
        self._disk = disk
        self._directory = directory
        self._clock = clock
        self._remove = remove
        self._leases: dict[str, Lease] = {}
        self._counts: Counter[int] = Counter()
        self._total = 0
        """The ledgers of all leases, with the number of leases on each."""
        self._waiting: dict[int, tuple[Path, int]] = {}
        """Files of deleted ledgers and their sizes, to remove when no lease is on them."""
        self.waiting_bytes = 0
        self._timer: TimerHandle | None = None
        self._timer_at_s = 0.0
        self._saving = asyncio.Lock()
        self._is_closed = False

    def begin(self, found: Iterable[Lease], orphans: Iterable[tuple[int, Path, int]]) -> None:
        """Take over what a start has found: leases, and files of deleted ledgers that only leases keep."""
        for lease in found:
            self._leases[lease.lease_id] = lease
            self._counts.update(lease.ledgers)
            self._total += len(lease.ledgers)
            self._begin_life(lease)
            self._extend(lease, FOUND_S_MIN)
        for ledger_id, path, size_bytes in orphans:
            self.give_up(ledger_id, path, size_bytes)
        self._set_timer()

    # -- for the store

    def is_leased(self, ledger_id: int) -> bool:
        return ledger_id in self._counts

    def give_up(self, ledger_id: int, path: Path, size_bytes: int) -> None:
        """Have the file of a deleted ledger removed, now or when its last lease ends."""
        if self.is_leased(ledger_id):
            self._waiting[ledger_id] = path, size_bytes
            self.waiting_bytes += size_bytes
        else:
            self._remove(path)

    @property
    def waiting_count(self) -> int:
        """How many files are kept only by leases."""
        return len(self._waiting)

    def __len__(self) -> int:
        return len(self._leases)

    # -- for holders

    def open(self, length_s: int) -> str:
        """A new lease, on no ledger yet; returns its id.  `save` writes its file.

        Raises:
            TooManyLeases
        """
        if len(self._leases) >= LEASES_MAX:
            raise TooManyLeases(f"{LEASES_MAX} leases are held already: end some, or wait for one to lapse")
        lease = Lease(randomness.new_uuid().hex, _checked(length_s))
        self._leases[lease.lease_id] = lease
        self._begin_life(lease)
        self._extend(lease)
        self._set_timer()
        return lease.lease_id

    def add(self, lease_id: str, ledgers: Iterable[LedgerId]) -> None:
        """Add ledgers to a lease: from now on their files stay.

        Raises:
            LeaseNotFound, TooManyLeases
        """
        lease = self._get(lease_id)
        new = set(map(int, ledgers)) - lease.ledgers
        if len(lease.ledgers) + len(new) > LEDGERS_MAX:
            raise TooManyLeases(
                f"a lease is on at most {LEDGERS_MAX} segments: ask for fewer partitions at a time"
            )
        if self._total + len(new) > LEDGERS_TOTAL_MAX:
            raise TooManyLeases(
                f"{self._total} segments are leased already: end some leases, or wait for one to lapse"
            )
        lease.ledgers |= new
        self._total += len(new)
        self._counts.update(new)

    async def save(self, lease_id: str) -> None:
        """Write the lease's file; return when the next start would find it, or when it cannot be written.

        Raises:
            LeaseNotFound: the lease has ended meanwhile.
        """
        loop = asyncio.get_running_loop()
        async with self._saving:
            lease = self._get(lease_id)
            self._extend(lease)
            lease.saved_at_s = self._clock.monotonic()
            held_s = LIFE_S_MAX - max(math.floor(lease.life_ends_at_s - lease.saved_at_s), 0)
            content = lease.length_s, frozenset(lease.ledgers), held_s
            try:
                await loop.run_in_executor(None, self._write, lease_id, *content)
            except OSError as error:
                # A full disk must not prevent clients from reading.
                log.warning("a lease is kept in memory only: lease=%s error=%s", lease_id, error)
            if lease_id not in self._leases:  # it ended while it was written
                await loop.run_in_executor(None, self._disk.remove, self._directory / lease_id)

    async def renew(self, lease_id: str, length_s: int | None) -> None:
        """Let the lease end after its length from now, or after `LIFE_S_MAX` in all; `length_s`, if given, changes
        the length.

        Raises:
            LeaseNotFound
        """
        lease = self._get(lease_id)
        is_changed = length_s is not None and length_s != lease.length_s
        if length_s is not None:
            lease.length_s = _checked(length_s)
        self._extend(lease)
        self._set_timer()
        if is_changed or self._clock.monotonic() - lease.saved_at_s >= SAVE_EVERY_S:
            await self.save(lease_id)

    async def end(self, lease_id: str) -> None:
        """End a lease, because its holder does not need the files any more.

        Raises:
            LeaseNotFound
        """
        lease = self._get(lease_id)
        self._let_go(lease)
        loop = asyncio.get_running_loop()
        async with self._saving:
            await loop.run_in_executor(None, self._disk.remove, self._directory / lease_id)

    def ids(self) -> frozenset[str]:
        """The ids of all leases that are held."""
        return frozenset(self._leases)

    def drop(self, lease_id: str) -> None:
        """As `end`, but without waiting: its file is removed later.  Does nothing if the lease has ended."""
        lease = self._leases.get(lease_id)
        if lease is not None:
            self._let_go(lease)
            self._remove(self._directory / lease_id)

    def close(self) -> None:
        """Stop the timers.  The leases' files stay, for the next start."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- inside

    def _get(self, lease_id: str) -> Lease:
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseNotFound("there is no such lease: it has ended, or was not renewed in time")
        return lease

    def _begin_life(self, lease: Lease) -> None:
        now_s = lease.saved_at_s = self._clock.monotonic()
        lease.life_ends_at_s = now_s + max(LIFE_S_MAX - lease.held_s, 0)

    def _extend(self, lease: Lease, least_s: int = 0) -> None:
        wanted_s = self._clock.monotonic() + max(lease.length_s, least_s)
        lease.ends_at_s = min(wanted_s, lease.life_ends_at_s)

    def _set_timer(self) -> None:
        """Set the timer to the moment when the first lease may end; a timer that is too early does no harm."""
        if not self._leases or self._is_closed:
            return
        first_s = min(lease.ends_at_s for lease in self._leases.values())
        if self._timer is not None:
            if self._timer_at_s <= first_s:
                return
            self._timer.cancel()
        self._timer_at_s = first_s
        self._timer = self._clock.call_later(max(first_s - self._clock.monotonic(), 0.001), self._lapse)

    def _lapse(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic()
        for lease in [one for one in self._leases.values() if one.ends_at_s <= now_s]:
            log.info("lease lapsed: lease=%s segments=%d", lease.lease_id, len(lease.ledgers))
            self.drop(lease.lease_id)
        self._set_timer()

    def _let_go(self, lease: Lease) -> None:
        del self._leases[lease.lease_id]
        self._total -= len(lease.ledgers)
        counts = self._counts
        for ledger_id in lease.ledgers:
            counts[ledger_id] -= 1
            if not counts[ledger_id]:
                del counts[ledger_id]
                if ledger_id in self._waiting:
                    path, size_bytes = self._waiting.pop(ledger_id)
                    self.waiting_bytes -= size_bytes
                    self._remove(path)

    def _write(self, lease_id: str, length_s: int, ledgers: frozenset[int], held_s: int) -> None:
        """Write a lease's file; runs on any thread."""
        content = encode(length_s, ledgers, held_s)
        fresh = self._directory / (lease_id + ".new")
        file = self._disk.open(fresh, create=True)
        try:
            file.write(content, 0)
            file.truncate(len(content))
        finally:
            file.close()
        self._disk.rename(fresh, self._directory / lease_id)


def load_leases(disk: Disk, directory: Path) -> list[Lease]:
    """Blocking.  The leases that the last process left."""
    found = []
    for name in disk.names(directory):
        if _NAME.fullmatch(name) is None:
            disk.remove(directory / name)
            continue
        file = disk.open(directory / name)
        try:
            content = bytearray(min(file.size(), _HEAD.size + 8 * LEDGERS_MAX + _CRC.size + 1))
            file.read(memoryview(content), 0)
        finally:
            file.close()
        lease = decode(name, bytes(content))
        if lease is None:
            log.warning("a lease that cannot be read is given up: file=%s", name)
            disk.remove(directory / name)
        else:
            found.append(lease)
    return found


def _checked(length_s: int) -> int:
    if not 0 < length_s <= LEASE_S_MAX:
        raise ValueError(f"a lease lasts from 1 to {LEASE_S_MAX} seconds, not {length_s}")
    return length_s
