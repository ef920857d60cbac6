"""Writes that share a commit: what one of them cannot have is not for the others to bear."""

import asyncio
import gc

import pytest

from magnetar.base.errors import MetadataError, MetadataLost
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import VALUE_BYTES_MAX, Put
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.circles import error_stays


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


@pytest.mark.parametrize("is_full", [False, True], ids=["too large", "the disk is full"])
def test_the_error_of_a_write_does_not_stay(monkeypatch: pytest.MonkeyPatch, is_full: bool) -> None:
    async def refuse(*_: object) -> None:
        raise MetadataError("the disk is full")

    async def scenario() -> None:
        store = MemoryMetadataStore()
        commits = SharedCommits(store)
        if is_full:
            monkeypatch.setattr(store, "commit", refuse)
        value = b"1" if is_full else bytes(VALUE_BYTES_MAX + 1)
        assert not await error_stays(MetadataError, lambda: commits.submit([Put("/a", value)], lambda: None))

    asyncio.run(scenario())


def test_a_durable_write_that_cannot_be_published_keeps_no_caller_of_its_round_waiting() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore()
        commits = SharedCommits(store)
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        known: list[str] = []
        unforeseen = RuntimeError("unforeseen")

        def fails() -> None:
            raise unforeseen

        writes = [
            commits.submit([Put("/a", b"1")], lambda: known.append("a")),
            commits.submit([Put("/b", b"1")], fails),
            commits.submit([Put("/c", b"1")], lambda: known.append("c")),
        ]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), MetadataLost, type(None)]
        assert known == ["a", "c"]
        await commits.submit([Put("/d", b"1")], lambda: known.append("d"))
        assert known == ["a", "c", "d"]
        await commits.close()
        gc.collect()
        assert told == [unforeseen], "the log has it"

    asyncio.run(scenario())
