"""Which version of its topic's schema each row was written with: an entry's metadata says it for all of its messages.

Only a reader that decodes values of a topic with several versions asks for it.  So Python finds it, entry by entry, and
not the compiled code that makes the columns.
"""

from struct import Struct
from typing import Final

import numpy as np

from magnetar.base.errors import WireError
from magnetar.wire.columns.entries import StoredRecord, stored_records
from magnetar.wire.columns.model import Int64s
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import read_entry

NO_VERSION: Final = -1
_VERSION: Final = Struct(">q")


def schema_versions(data: Buffer, offsets: Int64s) -> Int64s:
    """The version for each of these offsets, which were decoded from `data`; NO_VERSION where the entry names none.

    Raises:
        EntryCorrupt: bytes that are not what was stored.
    """
    ends, versions = [], []
    for stored in stored_records(memoryview(data).cast("B")):
        ends.append(stored.last_offset)
        versions.append(_version(stored))
    if not ends:
        return np.full(len(offsets), NO_VERSION, np.int64)
    found: Int64s = np.array(versions, np.int64)[np.searchsorted(np.array(ends, np.int64), offsets)]
    return found


def _version(stored: StoredRecord) -> int:
    if not stored.is_pulsar:
        return NO_VERSION
    try:
        encoded = read_entry(stored.payload, verify=False).metadata.schema_version
    except WireError:
        return NO_VERSION
    return int(_VERSION.unpack(encoded)[0]) if len(encoded) == _VERSION.size else NO_VERSION
