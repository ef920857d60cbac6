"""What a ledger store notes about the metadata store that belongs to it: a small file beside the journal,
`data_dir/binding`.

The file is replaced as a whole (written, synced, renamed into place).  Version 1, 44 bytes, big-endian:

     0  8s   magic       b"MGBIND01"
     8  16s  store_id    the UUID that is also in `store-id`
    24  u64  generation  how often both stores were started together
    32  u64  commits     transactions of the metadata store that were durable when this was written
    40  u32  crc32c      of everything before

`server/binding.py` compares it with what the metadata store says.
"""

import uuid
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.errors import StorageError
from magnetar.storage.local.disk import Disk

FILE: Final = "binding"
_MAGIC: Final = b"MGBIND01"
_LAYOUT: Final = Struct(">8s16sQQI")


class NotedBinding(NamedTuple):
    store_id: str
    generation: int
    commits: int


def read_binding(disk: Disk, data_dir: Path) -> NotedBinding | None:
    """Blocking.  None if there is no file: the store was never started together with metadata.

    Raises:
        StorageError: the file is damaged.
        OSError: it cannot be read.
    """
    path = data_dir / FILE
    if FILE not in disk.names(data_dir):
        return None
    file = disk.open(path)
    try:
        data = bytearray(min(file.size(), _LAYOUT.size + 1))
        file.read(memoryview(data), 0)
    finally:
        file.close()
    if len(data) == _LAYOUT.size:
        magic, store_id, generation, commits, crc = _LAYOUT.unpack(data)
        if magic == _MAGIC and crc == crc32c(data[:-4]):
            return NotedBinding(str(uuid.UUID(bytes=store_id)), generation, commits)
    raise StorageError(
        f"{path} is damaged: it says which metadata belongs to the ledgers; see `magnetar doctor`"
    )


def write_binding(disk: Disk, data_dir: Path, binding: NotedBinding) -> None:
    """Blocking.  Durable when this returns.  Raises OSError."""
    fresh = data_dir / (FILE + ".new")
    body = _LAYOUT.pack(_MAGIC, uuid.UUID(binding.store_id).bytes, binding.generation, binding.commits, 0)[
        :-4
    ]
    disk.remove(fresh)
    file = disk.open(fresh, create=True)
    try:
        file.write(body + crc32c(body).to_bytes(4, "big"), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(fresh, data_dir / FILE)
    disk.sync_directory(data_dir)
