"""Writes that share a commit: what one of them cannot have is not for the others to bear."""

import asyncio

import pytest

from magnetar.base.errors import MetadataError
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import VALUE_BYTES_MAX, Put
from magnetar.testing.metadata import MemoryMetadataStore


def test_a_write_that_no_store_takes_fails_alone() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore()
        commits = SharedCommits(store)
        known: list[str] = []
        good = commits.submit([Put("/a", b"1")], lambda: known.append("a"))
        large = commits.submit([Put("/b", bytes(VALUE_BYTES_MAX + 1))], lambda: known.append("b"))
        last = commits.submit([Put("/c", b"1")], lambda: known.append("c"))
        await asyncio.wait({good, large, last})
        with pytest.raises(MetadataError):
            large.result()
        await good
        await last
        assert known == ["a", "c"]
        assert [path for path, _ in await store.scan("/")] == ["/a", "/c"]

    asyncio.run(scenario())
