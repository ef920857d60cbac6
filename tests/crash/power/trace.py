"""What `recorder.c` has recorded: the calls of a server on its files, and between them the marks of its client.

A record, little-endian:

    u64 magic
    u32 size    of the whole record
    u8 kind     `Kind`
    u8 phase    0: the call begins; 1: it has returned
    u8 zeroes   1: the bytes written were all zero and are left out
    u8          0
    u32 call    the same in both records of a call
    i32 descriptor
    i64 first   OPEN: flags; WRITE: position; TRUNCATE: size; when returned: the result
    i64 second  WRITE: how many bytes; when returned with a negative result: errno
    rest        names, each ended by a zero byte; WRITE: the bytes; MARK: JSON

A MARK is appended to the same file by another process.  So a mark that says "acknowledged" stands behind every call
that had returned before the acknowledgement was sent.

A process that is killed while it writes a large record leaves the first part of it, and the next process appends behind
that.  The call that it was to announce has not begun then: such a part is passed over, to the next magic.
"""

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

MAGIC: Final = 0x9D5FC3A17B2E6841
HEAD: Final = struct.Struct("<QIBBBBIiqq")
_MAGIC_BYTES: Final = struct.pack("<Q", MAGIC)
BEGIN: Final = 0
SOURCE: Final = Path(__file__).with_name("recorder.c")


class Kind(IntEnum):
    OPEN = 1
    CLOSE = 2
    WRITE = 3
    TRUNCATE = 4
    SYNC = 5
    RENAME = 6
    UNLINK = 7
    MKDIR = 8
    MAPPED = 9
    OTHER = 10
    MARK = 100


@dataclass(slots=True)
class Record:
    kind: Kind
    begins: bool
    call: int
    descriptor: int
    first: int
    second: int
    rest: bytes

    def event(self) -> dict[str, Any]:
        """What a MARK says."""
        event: dict[str, Any] = json.loads(self.rest)
        return event

    def names(self) -> list[Path]:
        return [Path(os.fsdecode(name)) for name in self.rest.split(b"\0")[:-1]]


def build_recorder(directory: Path) -> Path | None:
    """The recorder as a shared library in `directory`; None on a machine without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library = directory / "recorder.so"
    if not library.exists():
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
    return library


def recording(library: Path, root: Path, log: Path, sync_us: int = 1000) -> dict[str, str]:
    """The environment in which a process is recorded; every sync of it takes `sync_us` longer."""
    return {
        "LD_PRELOAD": str(library),
        "RECORD_ROOT": str(root),
        "RECORD_LOG": str(log),
        "RECORD_SYNC_US": str(sync_us),
    }


def mark(log: Path, event: dict[str, Any]) -> None:
    """Append a mark, in one write."""
    text = json.dumps(event, separators=(",", ":")).encode()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(
            descriptor, HEAD.pack(MAGIC, HEAD.size + len(text), Kind.MARK, BEGIN, 0, 0, 0, -1, 0, 0) + text
        )
    finally:
        os.close(descriptor)


def read(log: Path) -> Iterator[Record]:
    """The records, without those that a killed process had not written to the end."""
    data = log.read_bytes()
    position = 0
    while position + HEAD.size <= len(data):
        _, size, kind, phase, zeroes, _, call, descriptor, first, second = HEAD.unpack_from(data, position)
        end = position + size
        if not (data.startswith(_MAGIC_BYTES, end) or end == len(data)):
            position = data.find(_MAGIC_BYTES, position + 1)
            if position < 0:
                return
            continue
        rest = bytes(second) if zeroes else data[position + HEAD.size : end]
        yield Record(Kind(kind), phase == BEGIN, call, descriptor, first, second, rest)
        position = end
