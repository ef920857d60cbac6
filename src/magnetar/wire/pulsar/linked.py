"""Entries as a link sends them to a server: one after the other, each behind where it is in the other cluster.

    i64  ledger id
    i64  entry id
    u32  size of the entry in bytes
    ...  the entry (`entry.py`), from its checksum on

Big-endian.
"""

from struct import Struct
from struct import error as StructError
from typing import Final

from magnetar.base.errors import WireError

HEAD: Final = Struct(">qqI")


def framed(ledger_id: int, entry_id: int, entry: bytes | memoryview) -> bytes:
    """An entry behind its position."""
    return b"".join((HEAD.pack(ledger_id, entry_id, len(entry)), entry))


def next_entry(data: memoryview, at: int) -> tuple[int, int, memoryview]:
    """(ledger id, entry id, entry) of what begins at `at`; the next one begins where the entry ends.

    Raises:
        WireError: the bytes end before it does.
    """
    try:
        ledger_id, entry_id, size = HEAD.unpack_from(data, at)
    except StructError as error:
        raise WireError("an entry that ends before its position") from error
    start = at + HEAD.size
    if size > len(data) - start:
        raise WireError(f"an entry says {size} bytes, which are not there")
    return ledger_id, entry_id, data[start : start + size]
