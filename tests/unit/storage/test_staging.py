"""How runs of entries become writes: whole blocks, every byte in its place, small pieces where latency counts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.segment import PIECE_BYTES_SHORT, RUN_BYTES_SHORT, STAGING_BYTES, Staging
from magnetar.storage.store import Buffer
from magnetar.testing.disk import CrashDisk

PATH = Path("/segment")


class Recorder:
    """A file that notes the size of each write."""

    def __init__(self, disk: CrashDisk) -> None:
        self.file = disk.open(PATH, create=True, direct=True)
        self.sizes: list[int] = []

    def write(self, data: Buffer, position: int) -> None:
        self.sizes.append(len(data))
        self.file.write(data, position)

    def read(self, buffer: memoryview, position: int) -> int:
        return self.file.read(buffer, position)

    def sync(self) -> None:
        self.file.sync()

    def truncate(self, size: int) -> None:
        self.file.truncate(size)

    def size(self) -> int:
        return self.file.size()

    def close(self) -> None:
        self.file.close()

    @property
    def descriptor(self) -> None:
        return None


def write(position: int, sizes: list[int]) -> tuple[bytes, bytes, Recorder, bytes]:
    """What was to be written from the first block on, what the disk has, the writes, and the rest returned."""
    before = b"r" * (position % BLOCK_BYTES)
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    disk = CrashDisk()
    recorder = Recorder(disk)
    staging = Staging(disk, direct=True)
    rest = staging.write_run(recorder, position, before, iter(pieces), sum(sizes))
    start = position - len(before)
    return before + b"".join(pieces), bytes(disk.content(PATH)[start:]), recorder, rest


@given(
    st.integers(0, 3 * BLOCK_BYTES),
    st.lists(st.one_of(st.integers(1, 500), st.integers(1, 600_000)), min_size=1, max_size=6),
)
def test_a_run_is_written_whole_and_its_last_block_is_handed_back(position: int, sizes: list[int]) -> None:
    wanted, found, recorder, rest = write(position, sizes)
    assert found[: len(wanted)] == wanted
    assert not any(found[len(wanted) :])
    assert len(found) % BLOCK_BYTES == 0
    assert rest == wanted[len(wanted) - len(wanted) % BLOCK_BYTES :]
    assert all(size % BLOCK_BYTES == 0 for size in recorder.sizes)


@pytest.mark.parametrize(
    ("run", "largest"), [(RUN_BYTES_SHORT, PIECE_BYTES_SHORT), (RUN_BYTES_SHORT + 1, STAGING_BYTES)]
)
def test_a_short_run_goes_in_small_pieces_which_the_journal_does_not_wait_for(run: int, largest: int) -> None:
    _, _, recorder, _ = write(0, [run])
    assert max(recorder.sizes) == largest
    assert len(recorder.sizes) == -(-run // largest)
