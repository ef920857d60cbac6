"""What is stored about a group: that it exists, its protocols, its last generation or epoch, and since when it is
empty.

Members are not stored: after a restart the next request of each fails with UNKNOWN_MEMBER_ID, and it joins again.
The record decides how long the group keeps its offsets (KIP-211).  A group of consumers keeps them for
`offsets.retention.minutes` after its last member has left, which may be long after its last commit.  So a record is
written when a group first becomes stable, and again when it becomes empty.  A group that was active when the process
ended counts as empty since the next start.
"""

import asyncio
import logging
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from magnetar.base.errors import EntryCorrupt
from magnetar.metadata.path_parts import escape, unescape

log: Final = logging.getLogger(__name__)

ROOT: Final = "/groups/"

FORMAT: Final = """Group record, big-endian.  v2

     0  u8   magic              0xC6
     1  u8   version            2
     2  u16  protocol type size, then that many bytes of UTF-8
     .  i32  generation         of a classic group the last one; of another the last epoch that may be given: it
                                goes on counting above it after a restart
     .  i64  empty_since        ms since the epoch, -1: it had members when this was written
     .  u8   group type         1 classic, 2 consumer, 3 share, 4 streams; v1 has not got it, and is
                                classic
     .  u32  crc32c             of everything before
"""
MAGIC: Final = 0xC6
VERSION: Final = 2
_V1: Final = 1
_TYPES: Final = {1: "classic", 2: "consumer", 3: "share", 4: "streams"}
_TYPE_CODES: Final = {name: code for code, name in _TYPES.items()}
PROTOCOL_TYPE_BYTES_MAX: Final = 0xFFFF
_HEAD: Final = struct.Struct(">BBH")
_TAIL: Final = struct.Struct(">iq")
_CRC: Final = struct.Struct(">I")
_SIZE_MIN: Final = 20
assert _HEAD.size + _TAIL.size + _CRC.size == _SIZE_MIN


@dataclass(frozen=True, slots=True)
class GroupRecord:
    protocol_type: str
    generation: int
    empty_since_ms: int | None
    group_type: str = "classic"

    def encode(self) -> bytes:
        name = self.protocol_type.encode()[:PROTOCOL_TYPE_BYTES_MAX]
        since = -1 if self.empty_since_ms is None else self.empty_since_ms
        body = _HEAD.pack(MAGIC, VERSION, len(name)) + name + _TAIL.pack(self.generation, since)
        body += bytes([_TYPE_CODES[self.group_type]])
        return body + _CRC.pack(crc32c(body))

    @staticmethod
    def decode(value: bytes) -> "GroupRecord":
        """The inverse of `encode`.  Raises EntryCorrupt if `value` is no record."""
        if len(value) < _SIZE_MIN or value[0] != MAGIC or value[1] not in (_V1, VERSION):
            raise EntryCorrupt("a value is no stored group, or of a version that this build does not know")
        if crc32c(value[:-4]) != _CRC.unpack_from(value, len(value) - 4)[0]:
            raise EntryCorrupt("a stored group fails its checksum")
        size = _HEAD.unpack_from(value)[2]
        end = _HEAD.size + size + _TAIL.size
        group_type = "classic" if value[1] == _V1 else _TYPES.get(value[-_CRC.size - 1], "")
        if len(value) != end + _CRC.size + (value[1] != _V1) or not group_type:
            raise EntryCorrupt("a stored group is malformed")
        generation, since = _TAIL.unpack_from(value, _HEAD.size + size)
        protocol_type = value[_HEAD.size : _HEAD.size + size].decode(errors="replace")
        return GroupRecord(protocol_type, generation, None if since < 0 else since, group_type)


def record_path(group_id: str) -> str:
    return ROOT + escape(group_id)


def read_records(stored: Iterable[tuple[str, bytes]]) -> tuple[dict[str, GroupRecord], list[str]]:
    """Group records by name, from (path, value) pairs, and the names of the damaged ones."""
    records: dict[str, GroupRecord] = {}
    damaged: list[str] = []
    for path, value in stored:
        name = unescape(path[len(ROOT) :])
        try:
            records[name] = GroupRecord.decode(value)
        except EntryCorrupt:
            damaged.append(name)
    return records, damaged


def log_failure(written: "asyncio.Future[None]", group_id: str) -> None:
    """Log that a group's record could not be written, if that is so."""
    if not written.cancelled() and written.exception() is not None:
        log.warning("the server could not record group %r: %s", group_id, written.exception())
