"""Recycled, page-aligned memory: what sockets receive into and what disks read into.

Fresh memory is the dearest thing a large request touches (the kernel clears and maps every page), so an
`Arena` keeps what it once mapped.  `take` hands out a `memoryview`; the block goes back to the arena by
itself when the *last* view of it is gone, however often the view was sliced and wherever the slices
went.  No code frees a block, so none can free it too early.

How: a block is handed out as a ctypes array over its mapping, and every `memoryview` of it keeps that array
alive. The array dies with the last view, and a weak reference on it then puts the block's place into the free
list.

Blocks come in size classes, four to each power of two, cut from slabs.  Slabs are private mappings that ask for huge
pages: the first use of a gigabyte costs 0.1 s of CPU that way, against 0.6 s in small pages and 1.4 s in the shared
ones that Python maps by default (measured).  On a guest whose host took the memory back it costs 2.4 s, 4.6 ms at each
huge page, which would hold up the event loop ten times a second at 20 MB/s.  So a class that wants another slab gets
one that lies idle in another class, else one that a thread has touched ahead of need, and only else a fresh one.  What
a full arena cannot serve is served from plain memory, which is right in everything but speed (and counted:
`bytes_overflowed`).

`take` and the return of blocks are safe in every thread.
"""

import contextlib
import ctypes
import mmap
import threading
import weakref
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

PAGE_BYTES: Final = 4096
HUGE_PAGE_BYTES: Final = 2 << 20
SLAB_BYTES: Final = 256 * 1024  # the least; large arenas cut larger ones
SLAB_BYTES_MAX: Final = 8 << 20  # larger ones would be touched ahead for classes that use little of them
SLABS_PER_ARENA: Final = 32
SLABS_AHEAD: Final = 2  # touched before they are wanted, once an arena grows
BLOCKS_PER_SHARED_SLAB: Final = 4  # larger blocks have slabs of their own size, which fit no other class
BLOCK_BYTES_MAX: Final = 1 << 31
PLAIN_COPY_BYTES_MAX: Final = 64 << 10  # up to there ordinary memory is cheaper than a block


def class_bytes(size: int) -> int:
    """The block size that serves `size` bytes: whole pages, at most 25 % over `size` from 16 KiB on."""
    pages = -(-size // PAGE_BYTES) or 1
    if pages <= 4:
        return pages * PAGE_BYTES
    step = 1 << ((pages - 1).bit_length() - 3)
    return -(-pages // step) * step * PAGE_BYTES


def map_memory(size: int) -> mmap.mmap:
    """Fresh anonymous memory, in huge pages where that makes sense.  Only what is written to costs anything."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE_PAGE_BYTES:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def block_of(view: memoryview) -> int:
    """The size of the block, or whatever else it is, that `view` keeps from being used again."""
    try:
        return len(view.obj)  # type: ignore[arg-type]  # asked for each large entry: no look at what it is first
    except TypeError:
        return len(view)


class _Slab:
    """One mapping, cut into equal blocks."""

    __slots__ = ("block_bytes", "blocks", "mapping", "size")

    def __init__(self, block_bytes: int, mapping: mmap.mmap) -> None:
        self.block_bytes = block_bytes
        self.size = len(mapping)
        self.mapping = mapping
        self.blocks: list[_Block] = []


class _Block:
    """One place in a slab.  `watch` is the weak reference that sees the last view of it go."""

    __slots__ = ("free", "position", "slab", "watch")

    def __init__(self, slab: _Slab, position: int, free: "deque[_Block]") -> None:
        self.slab = slab
        self.position = position
        self.free = free
        self.watch: weakref.ref[object] | None = None

    def recycle(self, _: object) -> None:
        # May run in any thread and inside any allocation: it must take no lock.
        self.watch = None
        self.free.append(self)


class Arena:
    """At most `bytes_max` bytes of recycled memory; see the module's text."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._slab_bytes = min(max(bytes_max // SLABS_PER_ARENA, SLAB_BYTES), SLAB_BYTES_MAX)
        self.bytes_mapped = 0
        self.bytes_overflowed = 0
        self._lock = threading.Lock()
        self._free: dict[int, deque[_Block]] = {}
        self._arrays: dict[int, type[ctypes.Array[ctypes.c_ubyte]]] = {}
        self._slabs: set[_Slab] = set()  # holds every block, and so every live weak reference
        self._idle: deque[mmap.mmap] = deque()  # of `_slab_bytes` each, for any class to cut; touched before
        self._toucher: ThreadPoolExecutor | None = None
        self._touching: Future[None] | None = None

    def take(self, size: int) -> memoryview:
        """A writable view of `size` bytes at an address divisible by `PAGE_BYTES`.  What it contains is
        undefined.

        Its capacity is the whole block: a `size` that is a multiple of `PAGE_BYTES` suits direct I/O.
        """
        if not 0 <= size <= BLOCK_BYTES_MAX:
            raise ValueError(f"a block has between 0 and {BLOCK_BYTES_MAX} bytes, not {size}")
        block_bytes = class_bytes(size)
        try:
            block = self._free[block_bytes].pop()
        except (KeyError, IndexError):
            found = self._grow(block_bytes)
            if found is None:
                self.bytes_overflowed += size
                return memoryview(map_memory(block_bytes))[:size]
            block = found
        array = self._arrays[block_bytes].from_buffer(block.slab.mapping, block.position)
        block.watch = weakref.ref(array, block.recycle)
        return memoryview(array).cast("B")[:size]

    def unpinned(self, view: memoryview) -> memoryview:
        """`view`, or a copy if it is less than half of its block: for what is kept long after the rest of it."""
        if len(view) * 2 >= block_of(view):
            return view
        copy = self.take(len(view)) if len(view) > PLAIN_COPY_BYTES_MAX else memoryview(bytearray(len(view)))
        copy[:] = view
        return copy

    def bytes_free(self) -> int:
        """Mapped memory that no view holds."""
        free = sum(block_bytes * len(free) for block_bytes, free in list(self._free.items()))
        return free + len(self._idle) * self._slab_bytes

    def _grow(self, block_bytes: int) -> _Block | None:
        """Cut one more slab and take its first block; None when that would exceed `bytes_max`."""
        with self._lock:
            free = self._free.setdefault(block_bytes, deque())
            self._arrays.setdefault(block_bytes, ctypes.c_ubyte * block_bytes)
            if block_bytes * BLOCKS_PER_SHARED_SLAB <= self._slab_bytes:
                mapping = self._shared_mapping()
                self._touch_ahead(block_bytes)
            else:
                mapping = self._map(max(self._slab_bytes // block_bytes, 1) * block_bytes)
            if mapping is None:
                return None
            slab = _Slab(block_bytes, mapping)
            last = slab.size - block_bytes
            slab.blocks = [_Block(slab, at, free) for at in range(0, last + 1, block_bytes)]
            self._slabs.add(slab)
            free.extend(slab.blocks[1:])
            return slab.blocks[0]

    def _shared_mapping(self) -> mmap.mmap | None:
        if not self._idle:
            self._collect_idle()
        try:
            return self._idle.pop()
        except IndexError:
            return self._map(self._slab_bytes)

    def _map(self, size: int) -> mmap.mmap | None:
        """A fresh mapping, with slabs given back for it if need be; None where even that makes no room."""
        if self.bytes_mapped + size > self.bytes_max:
            self._give_back(self.bytes_mapped + size - self.bytes_max)
            if self.bytes_mapped + size > self.bytes_max:
                return None
        self.bytes_mapped += size
        return map_memory(size)

    def _touch_ahead(self, block_bytes: int) -> None:
        """Have the next slabs ready, if this class has grown before: a server that moves little needs none."""
        if self._slab_bytes < HUGE_PAGE_BYTES or (self._touching is not None and not self._touching.done()):
            return
        if len(self._idle) < SLABS_AHEAD and any(slab.block_bytes == block_bytes for slab in self._slabs):
            if self._toucher is None:
                self._toucher = ThreadPoolExecutor(1, thread_name_prefix="magnetar-arena")
            self._touching = self._toucher.submit(self._map_and_touch)

    def _map_and_touch(self) -> None:
        while len(self._idle) < SLABS_AHEAD:
            with self._lock:
                if self.bytes_mapped + self._slab_bytes > self.bytes_max:
                    return
                mapping = map_memory(self._slab_bytes)
                self.bytes_mapped += self._slab_bytes
            place = ctypes.addressof(ctypes.c_ubyte.from_buffer(mapping))
            for at in range(0, self._slab_bytes, HUGE_PAGE_BYTES):
                ctypes.memset(
                    place + at, 0, 1
                )  # without the interpreter, unlike an assignment to the mapping
            self._idle.appendleft(mapping)

    def _collect_idle(self) -> None:
        """Take slabs from classes that have none of their blocks in use; each class keeps one."""
        counts = Counter(slab.block_bytes for slab in self._slabs)
        found = {
            slab.block_bytes
            for slab in self._slabs
            if counts[slab.block_bytes] > 1
            and slab.size == self._slab_bytes
            and all(block.watch is None for block in slab.blocks)
        }
        for block_bytes in found:
            for slab, blocks in self._take_free(block_bytes).items():
                if (
                    counts[block_bytes] > 1
                    and len(blocks) == len(slab.blocks)
                    and slab.size == self._slab_bytes
                ):
                    counts[block_bytes] -= 1
                    self._slabs.discard(slab)
                    slab.blocks = []
                    self._idle.append(slab.mapping)
                else:
                    blocks[0].free.extend(blocks)

    def _take_free(self, block_bytes: int) -> dict[_Slab, list[_Block]]:
        """The free blocks of a class, by slab.

        Taken out first: what is in our hands cannot be handed out by a `take` in another thread meanwhile.
        """
        found: dict[_Slab, list[_Block]] = {}
        free = self._free[block_bytes]
        for _ in range(len(free)):
            try:
                block = free.popleft()
            except IndexError:
                break
            found.setdefault(block.slab, []).append(block)
        return found

    def _give_back(self, bytes_wanted: int) -> None:
        """Unmap slabs none of whose blocks is in use, until `bytes_wanted` bytes are gone or no such slab is
        left."""
        while bytes_wanted > 0 and self._idle:
            bytes_wanted -= len(self._idle.pop())
            self.bytes_mapped -= self._slab_bytes
        for block_bytes in list(self._free):
            for slab, blocks in self._take_free(block_bytes).items():
                if bytes_wanted > 0 and len(blocks) == len(slab.blocks):
                    self._slabs.discard(slab)
                    self.bytes_mapped -= slab.size
                    bytes_wanted -= slab.size
                    slab.blocks = []
                else:
                    blocks[0].free.extend(blocks)
