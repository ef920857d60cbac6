"""The unit of the store's files: readers and writers that go past the page cache take whole blocks."""

from typing import Final

BLOCK_BYTES: Final = 4096


def align_up(size: int) -> int:
    """The least multiple of `BLOCK_BYTES` that is not below `size`."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
