"""The form of a partition's snapshot of its producers in the metadata store: values, each with a checksum.

A value of the store is limited in size, so the snapshot is cut into as many values as it needs, and unchanged ones
are not written again.  Their paths differ only in a suffix::

    ""                  the snapshot's head, or its first piece
    "/piece-00000001"   ... and the others
    "/aborted-0000002a" a block of aborted transactions (`aborted_index.py`), by its number in hex

Each value, version 3, big-endian::

    0  u8   magic     0xC7, more than one bit away from the first byte of older versions
    1  u8   version   3
    2  u32  crc32c    of the suffix in ASCII and all that follows
    6  ...            of the head: u32 piece_count, then the first piece's bytes; of the others their bytes

Versions 1 and 2 were one value without any of this: the pieces' bytes alone, which begin with their own version
(`producer_state.py`), and nothing that would show damage.
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.log.producer_state import snapshot_end

HEAD: Final = ""
PIECE_BYTES_MAX: Final = 512 << 10
_MAGIC: Final = 0xC7
_VERSION: Final = 3
_SEAL: Final = Struct(">BBI")
_COUNT: Final = Struct(">I")
_PIECE: Final = "/piece-"
_ABORTED: Final = "/aborted-"
_NAME_END: Final = 1 + 32  # the topic's id after the last "@" ends a log's name


class Snapshot(NamedTuple):
    """`body` is the memory of the producers, and `blocks` has the aborted transactions in it."""

    body: bytes
    blocks: Mapping[int, bytes]


def encode(snapshot: Snapshot) -> dict[str, bytes]:
    """The values to store, by suffix.  A value that has not changed has the same bytes as last time."""
    body = snapshot.body
    pieces = [body[begin : begin + PIECE_BYTES_MAX] for begin in range(0, len(body), PIECE_BYTES_MAX)]
    values = {HEAD: _COUNT.pack(len(pieces)) + pieces[0]}
    values |= {f"{_PIECE}{number:08x}": piece for number, piece in enumerate(pieces) if number}
    values |= {f"{_ABORTED}{number:08x}": block for number, block in snapshot.blocks.items()}
    return {suffix: _sealed(suffix, value) for suffix, value in values.items()}


def _sealed(suffix: str, value: bytes) -> bytes:
    return _SEAL.pack(_MAGIC, _VERSION, crc32c(value, crc32c(suffix.encode()))) + value


def _unsealed(suffix: str, stored: bytes) -> bytes:
    if len(stored) < _SEAL.size:
        raise EntryCorrupt("a producer snapshot is cut short")
    magic, version, checksum = _SEAL.unpack_from(stored)
    if (magic, version) != (_MAGIC, _VERSION):
        raise EntryCorrupt("a value is no producer snapshot, or of a version that this build does not know")
    value = stored[_SEAL.size :]
    if crc32c(value, crc32c(suffix.encode())) != checksum:
        raise EntryCorrupt(f"a producer snapshot fails its checksum at {suffix or 'its head'}")
    return value


def decode(stored: Mapping[str, bytes]) -> Snapshot:
    """The snapshot in the values of all suffixes.

    Raises:
        EntryCorrupt: there is no head, or a part is damaged or missing.
    """
    head = stored.get(HEAD)
    if head is None:
        raise EntryCorrupt("a producer snapshot has lost its head")
    if head[:1] in (b"\1", b"\2"):
        return Snapshot(head, {})
    values = {suffix: _unsealed(suffix, value) for suffix, value in stored.items()}
    try:
        (count,) = _COUNT.unpack_from(values[HEAD])
    except StructError as error:
        raise EntryCorrupt("a producer snapshot is cut short") from error
    pieces = [values[HEAD][_COUNT.size :]]
    for number in range(1, count):
        piece = values.get(f"{_PIECE}{number:08x}")
        if piece is None:
            raise EntryCorrupt(f"a producer snapshot has lost its piece {number}")
        pieces.append(piece)
    blocks = {
        int(suffix[len(_ABORTED) :], 16): value
        for suffix, value in values.items()
        if suffix.startswith(_ABORTED)
    }
    return Snapshot(b"".join(pieces), blocks)


def covered(stored: Mapping[str, bytes]) -> int:
    """The offset up to which the snapshot in these values covers the log; 0 if there is none that can be read."""
    head = stored.get(HEAD)
    if head is None:
        return 0
    try:
        return snapshot_end(head if head[:1] in (b"\1", b"\2") else _unsealed(HEAD, head)[_COUNT.size :])
    except EntryCorrupt:
        return 0


def split_path(path: str) -> tuple[str, str]:
    """Split a path, without the root, into the log's name and the suffix."""
    end = path.rfind("@") + _NAME_END
    return path[:end], path[end:]
