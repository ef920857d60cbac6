"""Version 1 on disk, byte for byte.  A difference here is a new version, with golden files of its own."""

from pathlib import Path

import pytest
from crc32c import crc32c

from magnetar.storage.local.format import (
    BLOCK_BYTES,
    NOTHING_BEFORE,
    RECORD_BYTES,
    ROUND_BYTES,
    TRAILER_BYTES,
    Control,
    FactKind,
    control_record,
    fact,
    footer,
    points_bytes,
    points_columns,
    round_header,
)
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.replay import parse_head, parse_round

GOLDEN = Path(__file__).parent / "golden"


def index() -> SparseIndex:
    index = SparseIndex()
    index.add(0, 0, NOTHING_BEFORE, NOTHING_BEFORE)
    index.add(7, 33_000, 69, 1_700_000_000_000)
    return index


EXAMPLES = {
    "control-create.bin": control_record(7, Control.CREATE),
    "control-cut.bin": control_record(7, Control.CUT, 12),
    "round-header.bin": round_header(3, 99, 80, 2, 0x01020304),
    "points.bin": index().to_bytes(0, 2),
    "footer.bin": footer(7, 12, 50_000, 119, 1_700_000_000_500, index().to_bytes(0, 2)),
    "fact-progress.bin": fact(
        FactKind.PROGRESS, 7, 12, 50_000, 119, 1_700_000_000_500, index().to_bytes(1, 2)
    ),
    "fact-checkpoint.bin": fact(FactKind.CHECKPOINT, 8, 99),
}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_bytes_of_version_1(name: str) -> None:
    assert EXAMPLES[name].hex() == (GOLDEN / name).read_bytes().hex()


def test_every_golden_file_is_compared() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(EXAMPLES)


def test_sizes_are_as_documented() -> None:
    assert (RECORD_BYTES, ROUND_BYTES, TRAILER_BYTES) == (40, 64, 64)
    assert len(EXAMPLES["footer.bin"]) == BLOCK_BYTES
    assert len(EXAMPLES["points.bin"]) == 64


def test_points_come_back() -> None:
    columns = points_columns(EXAMPLES["points.bin"])
    assert [list(column) for column in columns] == [
        [0, 7],
        [0, 33_000],
        [NOTHING_BEFORE, 69],
        [NOTHING_BEFORE, 1_700_000_000_000],
    ]
    assert points_bytes(columns) == EXAMPLES["points.bin"]


def test_a_footer_of_many_points_fills_whole_blocks() -> None:
    for count in (0, 1, 125, 126, 127, 1000):
        data = footer(1, count, 5, 5, 5, bytes(32 * count))
        assert len(data) % BLOCK_BYTES == 0
        assert len(data) - 32 * count - TRAILER_BYTES < BLOCK_BYTES
        assert data[-64:-60] == b"MGSF"


def a_round(epoch: int = 3) -> bytearray:
    records = control_record(1, Control.CREATE) + control_record(2, Control.DELETE)
    digest = crc32c(records[4:8] + records[44:48])
    return bytearray(round_header(epoch, 5, len(records), 2, digest) + records)


def test_a_whole_round_is_read() -> None:
    data = memoryview(a_round())
    head = parse_head(data)
    assert head is not None
    records = parse_round(head, data[ROUND_BYTES:])
    assert records is not None
    assert [(r.ledger_id, r.entry_id) for r in records] == [(1, -1), (2, -2)]


def test_any_flipped_bit_is_seen() -> None:
    for position in range(len(a_round())):
        for bit in range(8):
            data = a_round()
            data[position] ^= 1 << bit
            head = parse_head(memoryview(data))
            if head is not None:
                end = min(ROUND_BYTES + head.length, len(data))
                assert parse_round(head, memoryview(data)[ROUND_BYTES:end]) is None


def test_consistent_records_of_an_older_round_are_not_taken_for_the_new_ones() -> None:
    data = a_round()
    data[ROUND_BYTES : ROUND_BYTES + RECORD_BYTES] = control_record(9, Control.CREATE)
    head = parse_head(memoryview(data))
    assert head is not None
    assert parse_round(head, memoryview(data)[ROUND_BYTES:]) is None
