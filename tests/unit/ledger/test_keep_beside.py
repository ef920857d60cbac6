"""The ledger that Pulsar's compaction keeps beside a chain: committed, found again, refused when it is lost."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.errors import LedgerNotFound, StorageError
from magnetar.ledger.chain_rows import METADATA_ROOT, document_of, ids_in
from magnetar.ledger.compacted_view import CompactedView, view_of
from magnetar.ledger.entry import Entry
from magnetar.ledger.state import State
from magnetar.server.binding import free_ids
from magnetar.storage.store import LedgerId, LedgerWriter
from magnetar.testing.ledgers import MemoryLedgerStore

from .chain import NAME, Chain, settle


async def written(chain: Chain, last_offsets: list[int]) -> LedgerWriter:
    """A ledger with one-message entries of a Pulsar client, which end at these offsets."""
    writer = await chain.environment.tombstones.make()
    for offset in last_offsets:
        body = (await chain.log.read_stored(offset, 1))[1][0].body
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        writer.append((body,), len(body), offset, offset, done.set_result)
        assert await done is None
    return writer


def play(scenario: Callable[[Chain], Awaitable[None]]) -> None:
    async def main() -> None:
        chain = Chain(MemoryLedgerStore())
        for _ in range(5):
            chain.append()
        await settle()
        await scenario(chain)

    asyncio.run(main())


def test_it_is_found_again_by_the_chains_document() -> None:
    async def scenario(chain: Chain) -> None:
        writer = await written(chain, [1, 3])
        await chain.log.keep_beside(writer)
        stored = await chain.metadata.get(METADATA_ROOT + NAME)
        assert stored is not None
        document = json.loads(stored.value)
        ledger_id = writer.stat.ledger_id
        assert (document["v"], document["compacted"]) == (3, ledger_id)
        assert ids_in(stored.value) == chain.log.stored_ids
        assert ledger_id in chain.log.stored_ids
        assert free_ids({METADATA_ROOT + NAME: stored.value}) > ledger_id
        await chain.restart()
        compacted = chain.log.compacted
        assert compacted is not None
        assert (compacted.ledger_id, compacted.end, compacted.entry_count) == (ledger_id, 4, 2)
        found = await view_of(chain.log, compacted=True).read(0, 1000)
        assert [one.last_offset for one in found] == [1, 3]

    play(scenario)


def test_another_takes_its_place_and_none_leaves_none() -> None:
    async def scenario(chain: Chain) -> None:
        first, second = await written(chain, [1]), await written(chain, [2])
        for writer in (first, second):
            await chain.log.keep_beside(writer)
        await settle()
        assert first.stat.ledger_id not in chain.store.ledgers
        chain.append()
        await settle()
        await chain.log.trim(log_start=1)
        assert second.stat.ledger_id in chain.log.stored_ids, "other changes of the chain leave it"
        await chain.log.keep_beside(None)
        await settle()
        assert chain.log.compacted is None
        assert set(chain.store.ledgers) == set(chain.log.stored_ids)
        await chain.restart()
        assert chain.log.compacted is None
        assert not await chain.environment.tombstones.load()

    play(scenario)


def test_a_log_that_has_lost_it_is_refused() -> None:
    async def scenario(chain: Chain) -> None:
        writer = await written(chain, [1])
        await chain.log.keep_beside(writer)
        del chain.store.ledgers[writer.stat.ledger_id]
        await chain.restart()
        assert chain.log.state is State.REFUSED
        assert f"its ledgers {writer.stat.ledger_id} are not" in (chain.log.problem or "")
        with pytest.raises(StorageError):
            await chain.log.keep_beside(None)

    play(scenario)


def test_it_goes_with_the_log() -> None:
    async def scenario(chain: Chain) -> None:
        await chain.log.keep_beside(await written(chain, [1]))
        await chain.log.erase()
        assert not chain.store.ledgers

    play(scenario)


def test_a_view_goes_on_in_the_ledger_that_took_the_place_of_the_one_that_it_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(chain: Chain) -> None:
        first, second = await written(chain, [1, 4]), await written(chain, [3, 4])
        await chain.log.keep_beside(first)
        view = CompactedView(chain.log)
        assert [one.last_offset for one in await view.read(0, 1)] == [1]
        former = chain.log.compacted
        assert former is not None
        read = former.read

        async def late(offset: int, bytes_max: int, entries_max: int) -> list[Entry]:
            await chain.log.keep_beside(second)
            await settle()
            return await read(offset, bytes_max, entries_max)

        monkeypatch.setattr(former, "read", late)
        assert [one.last_offset for one in await view.read(0, 1)] == [3]
        assert first.stat.ledger_id not in chain.store.ledgers
        assert view.read_cached(2, 1, view.high_watermark) is None
        await chain.store.delete(second.stat.ledger_id)
        with pytest.raises(LedgerNotFound):
            await view.read(0, 1)

    play(scenario)


def test_what_stands_in_a_document_is_what_was_given() -> None:
    assert json.loads(document_of([], 1, 0, 0, 3, LedgerId(9)))["cleaned"] == 3
    assert "compacted" not in json.loads(document_of([], 1, 0, 0, 3))


def test_a_log_that_was_never_compacted_is_looked_at_from_its_start_after_a_restart() -> None:
    """Its document, as those of older versions, does not say how far it is clean."""

    async def scenario(chain: Chain) -> None:
        stored = await chain.metadata.get(METADATA_ROOT + NAME)
        assert stored is not None
        assert "cleaned" not in json.loads(stored.value)
        await chain.restart()
        assert chain.log.high_watermark == 5
        assert chain.log.cleaned == 0

    play(scenario)
