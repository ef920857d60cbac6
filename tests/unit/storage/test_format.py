"""What is on disk, byte for byte.  A difference here is a new version, with golden files of its own.

`folders/version-1.tar.gz` is a data folder as version 1 left it when it was killed behind a checkpoint.
"""

import asyncio
import tarfile
from pathlib import Path

import pytest
from crc32c import crc32c

from magnetar.base.clock import SystemClock
from magnetar.base.errors import StorageError
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.format import (
    ROUND_BYTES,
    Control,
    FactKind,
    catalogue_head,
    control_record,
    fact,
    round_header,
)
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.rounds import RoundHead, parse_head, parse_round
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.segment_format import (
    NOTHING_BEFORE,
    TRAILER_BYTES,
    footer,
    points_bytes,
    points_columns,
)
from magnetar.wire.stored import RECORD_BYTES

from .helpers import bodies_of, fill

GOLDEN = Path(__file__).parent / "golden"
FOLDERS = Path(__file__).parent / "folders"


def index() -> SparseIndex:
    index = SparseIndex()
    index.add(0, 0, NOTHING_BEFORE, NOTHING_BEFORE)
    index.add(7, 33_000, 69, 1_700_000_000_000)
    return index


EXAMPLES = {
    "control-create.bin": control_record(7, Control.CREATE),
    "control-cut.bin": control_record(7, Control.CUT, 12),
    "round-header-2.bin": round_header(3, 99, 80, 2, 0x01020304, 0x0A0B0C0D0E0F1011, 1),
    "points.bin": index().to_bytes(0, 2),
    "footer.bin": footer(7, 12, 50_000, 119, 1_700_000_000_500, index().to_bytes(0, 2)),
    "fact-progress.bin": fact(
        FactKind.PROGRESS, 7, 12, 50_000, 119, 1_700_000_000_500, index().to_bytes(1, 2)
    ),
    "fact-checkpoint.bin": fact(FactKind.CHECKPOINT, 8, 99),
    "fact-checkpoint-2.bin": fact(FactKind.CHECKPOINT, 8, 99, 1234, 5, 0x0A0B0C0D0E0F1011),
    "catalogue-head-2.bin": catalogue_head(4321),
}
OLD = {"round-header.bin"}  # of version 1, which is read and not written


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_bytes_on_disk(name: str) -> None:
    assert EXAMPLES[name].hex() == (GOLDEN / name).read_bytes().hex()


def test_every_golden_file_is_compared() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(EXAMPLES) | OLD


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
    return bytearray(round_header(epoch, 5, len(records), 2, digest, 77, 0) + records)


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


def test_a_round_of_version_1_is_read() -> None:
    head = parse_head(memoryview((GOLDEN / "round-header.bin").read_bytes()))
    assert head == RoundHead(3, 99, 80, 2, 0x01020304, salt=0, is_synced=True, version=1)


async def _contents(store: LocalLedgerStore) -> dict[int, list[bytes]]:
    found = {}
    for stat in await store.list_ledgers():
        found[int(stat.ledger_id)] = await bodies_of(await store.open(stat.ledger_id))
    return found


def test_a_data_folder_of_version_1_is_upgraded_by_a_start(tmp_path: Path) -> None:
    with tarfile.open(FOLDERS / "version-1.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    settings = LocalStoreSettings(
        journal_file_bytes=64 * 1024, journal_file_count=3, round_bytes_max=16 * 1024, flush_bytes=8 * 1024
    )
    counts = {1: 20, 2: 6, 4: 5}
    expected = {
        ledger_id: [number.to_bytes(4, "big") * (25 + number % 7) for number in range(count)]
        for ledger_id, count in counts.items()
    }

    async def scenario() -> None:
        for _ in range(2):
            store = await LocalLedgerStore.start(tmp_path, settings=settings, clock=SystemClock())
            assert await _contents(store) == expected
            fresh = await store.create()
            expected[int(fresh.stat.ledger_id)] = [b"new"]
            await fill(fresh, [b"new"])
            await store.close()
            assert (tmp_path / "catalogue").read_bytes()[:8] == b"MGCATLG2"

    asyncio.run(scenario())


@pytest.mark.parametrize("is_first", [False, True])
def test_damage_in_the_journal_of_version_1_is_named(tmp_path: Path, is_first: bool) -> None:
    with tarfile.open(FOLDERS / "version-1.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    path = max((tmp_path / "journal").iterdir(), key=lambda path: path.read_bytes()[8:16])  # by epoch
    data = bytearray(path.read_bytes())
    # The first round, or the last one but one.
    place = 0 if is_first else data.rindex(b"MGJR", 0, data.rindex(b"MGJR"))
    data[place + 30] ^= 1
    path.write_bytes(data)
    settings = LocalStoreSettings(
        journal_file_bytes=64 * 1024, journal_file_count=3, round_bytes_max=16 * 1024
    )
    with pytest.raises(StorageError, match=f"damaged: {path.name} at byte {place}, round"):
        asyncio.run(LocalLedgerStore.start(tmp_path, settings=settings, clock=SystemClock()))
