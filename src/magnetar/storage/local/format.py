"""The bytes of the local ledger store's journal and catalogue; all integers big-endian.

docs/internals/disk-format.md explains the formats; golden files in tests/unit/storage/golden have examples of the
bytes.  `storage/segment_format.py` has those of segments.

Record: one entry, or one control fact in the journal.  `wire/stored.py` has its bytes; the entry id of a control fact
is below 0 (see `Control`).  Journal and segment hold the same bytes, so an entry's checksum is computed once.

Journal file: rounds side by side from position 0, each padded with zeroes to a multiple of `BLOCK_BYTES`.  The file is
filled with zeroes once and then used again and again, each time with a greater epoch.  Bytes that do not carry the
epoch of the file's first round are left from an older use.  Rounds are numbered without a gap over all files.

     0  4s   magic             b"MGJR"
     4  u16  version           2; version 1 differs in having no flags and no salt, and is read as well
     6  u16  flags             1: written without syncing
     8  u64  epoch             which use of the file this round belongs to
    16  u64  sequence          of the round
    24  u64  length            bytes of the records that follow the header
    32  u32  record_count
    36  u32  digest            crc32c over the crc32c fields of the records, in order: a round that was only
                               partly written over an older one has whole records in it, but not these
    40  u64  salt              the store's own random number (see the catalogue), which no client ever sees
    48  12s  zero
    60  u32  crc32c            of bytes 0 to 60
    64  ...  records           none in a round that only says that the one before it was whole

A torn tail is legal: replay stops at the first bad round.  But if a round with the same epoch and salt and a greater
sequence follows it, or a later file does, the bad round is damage.  A round that is whole but for one bit is damage,
too.  If a file's first round carries a sequence that an older file has, too, the older file's round failed and was
given up: the newer one counts.

Catalogue, version 2: a log of facts about ledgers; the last one about a ledger counts.  Written at checkpoints, each
of them a commit that ends with a fact of kind checkpoint; rewritten whole (and renamed into place) when most of it is
outdated.  A torn tail is legal, because the checkpoint that wrote it did not finish and the journal still has its
entries.  A part that is not whole is damage if it is before `base_bytes`, or before the beginning of a commit whose
last fact is whole.

     0  8s   magic             b"MGCATLG2"
     8  u64  base_bytes        the file's size when it got its name
    16  u32  crc32c            of bytes 0 to 16
    20  ...  facts

A fact:

     0  u32  length            bytes after the next field
     4  u32  crc32c            of everything after this field
     8  u8   kind              1 progress, 2 sealed, 3 deleted, 4 checkpoint
     9  u64  ledger_id         for a checkpoint: the smallest ledger id never used
    17  u64  entry_count       for a checkpoint: the last journal round that is no longer needed
    25  u64  data_bytes        for a checkpoint: where in the file its commit begins
    33  i64  last_offset       for a checkpoint: the newest epoch of a journal file, or 0
    41  i64  max_timestamp_ms  for a checkpoint: the salt of the journal's rounds
    49  ...  index points that the ledger has gained since its last fact (progress only), as in segments

A ledger's fact of kind 3 stays until its segment is surely gone: only segments named by such a fact are ever removed.

Version 1 begins with b"MGCATLG1", and the facts follow directly; its checkpoints have no beginning, epoch or salt.  A
start reads it, and rewrites it as version 2.
"""

from enum import IntEnum
from struct import Struct
from typing import Final

from crc32c import crc32c

from magnetar.storage.segment_format import NOTHING_BEFORE
from magnetar.wire.stored import RECORD_REST, RECORD_START

ROUND: Final = Struct(">4sHHQQQIIQ12xI")
ROUND_BYTES: Final = 64
ROUND_MAGIC: Final = b"MGJR"
ROUND_VERSION: Final = 2
ROUND_VERSIONS: Final = (1, 2)
UNSYNCED: Final = 1
assert ROUND.size == ROUND_BYTES

CATALOGUE_MAGIC: Final = b"MGCATLG2"
CATALOGUE_MAGIC_1: Final = b"MGCATLG1"
CATALOGUE_HEAD: Final = Struct(">8sQI")
FACT: Final = Struct(">BQQQqq")
FACT_START: Final = Struct(">II")
FACT_BYTES: Final = 49
FACT_BYTES_MAX: Final = 1 << 28
assert FACT_START.size + FACT.size == FACT_BYTES


class Control(IntEnum):
    """Entry ids that are no entries: facts which must survive a crash before the next checkpoint."""

    CREATE = -1  # the ledger exists
    DELETE = -2  # the ledger is gone
    CUT = -3  # the ledger ends before entry `last_offset`: those writes failed


class FactKind(IntEnum):
    PROGRESS = 1
    SEALED = 2
    DELETED = 3
    CHECKPOINT = 4


def control_record(ledger_id: int, control: Control, value: int = 0) -> bytes:
    """A complete record without a body."""
    rest = RECORD_REST.pack(ledger_id, control, value, 0)
    return RECORD_START.pack(0, crc32c(rest)) + rest


def round_header(
    epoch: int, sequence: int, length: int, record_count: int, digest: int, salt: int, flags: int
) -> bytes:
    header = ROUND.pack(
        ROUND_MAGIC, ROUND_VERSION, flags, epoch, sequence, length, record_count, digest, salt, 0
    )
    return header[:-4] + crc32c(header[:-4]).to_bytes(4, "big")


def catalogue_head(base_bytes: int) -> bytes:
    head = CATALOGUE_HEAD.pack(CATALOGUE_MAGIC, base_bytes, 0)[:-4]
    return head + crc32c(head).to_bytes(4, "big")


def fact(
    kind: FactKind,
    ledger_id: int,
    entry_count: int = 0,
    data_bytes: int = 0,
    last_offset: int = NOTHING_BEFORE,
    max_timestamp_ms: int = NOTHING_BEFORE,
    points: bytes = b"",
) -> bytes:
    """One line of the catalogue."""
    rest = FACT.pack(kind, ledger_id, entry_count, data_bytes, last_offset, max_timestamp_ms) + points
    return FACT_START.pack(len(rest), crc32c(rest)) + rest
