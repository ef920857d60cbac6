"""A log that its next owner takes over: fenced, recovered, and under the generation of the owner."""

import pytest

from magnetar.base.errors import LedgerFenced, LogLost, MetadataError, StorageError
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.ledger.state import State
from magnetar.ledger.stored_log import StoredLog, recover_log
from magnetar.metadata.store import Check
from magnetar.storage.store import LedgerId
from magnetar.testing.ledgers import MemoryLedger, MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore

from .chain import NAME, Chain, run

OWNER = "/owner"
DOCUMENT = METADATA_ROOT + NAME


async def begun(entries: int = 2) -> Chain:
    """A log that has a few entries and an open ledger."""
    chain = Chain(MemoryLedgerStore(automatic=False), owned=[Check(OWNER, 0)])
    await chain.metadata.put(OWNER, b"a")
    await chain.written(*[1] * entries)
    return chain


def next_owner(chain: Chain, stored: StoredLog | None, generation: int) -> ManagedLedger:
    log = ManagedLedger(NAME, chain.environment, LedgerLimits(), owned=[Check(OWNER, 1)])
    log.take_over(stored, generation)
    return log


@run
async def test_an_owner_before_is_fenced_and_what_it_has_acknowledged_is_there() -> None:
    chain = await begun()
    await chain.metadata.put(OWNER, b"b")
    stored = await recover_log(chain.environment, NAME)
    log = next_owner(chain, stored, 9)
    assert (log.high_watermark, log.next_offset, log.leader_epoch) == (2, 2, 9)
    with pytest.raises(LedgerFenced):
        chain.append()
    before, chain.log = chain.log, log
    await chain.written(1)
    assert log.high_watermark == 3
    assert before.state is not State.WRITING
    assert [info.leader_epoch for info in log._chain] == [before.leader_epoch, 9]


@run
async def test_a_log_that_was_never_written_begins_under_its_owners_generation() -> None:
    chain = Chain(MemoryLedgerStore(automatic=False), owned=[Check(OWNER, 0)])
    await chain.metadata.put(OWNER, b"a")
    assert await recover_log(chain.environment, NAME) is None
    log = next_owner(chain, None, 4)
    assert (log.next_offset, log.leader_epoch) == (0, 4)


@run
async def test_a_generation_that_is_over_takes_no_log() -> None:
    chain = await begun()
    stored = await recover_log(chain.environment, NAME)
    assert stored is not None
    await chain.metadata.put(OWNER, b"b")
    chain.log = next_owner(chain, stored, 5)
    await chain.written(1)
    late = await recover_log(chain.environment, NAME)
    with pytest.raises(LogLost):
        next_owner(chain, late, 5)
    assert next_owner(chain, late, 6).leader_epoch == 6


@run
async def test_a_log_whose_ledger_the_store_lacks_is_refused() -> None:
    chain = await begun()
    chain.store.ledgers.clear()
    log = next_owner(chain, await recover_log(chain.environment, NAME), 9)
    assert log.state is State.REFUSED
    assert log.problem is not None


class Changing(MemoryLedgerStore):
    """Has none of the ledgers: an owner writes the chain without them while they are looked for."""

    def __init__(self, metadata: MemoryMetadataStore) -> None:
        super().__init__()
        self._metadata = metadata

    async def open(self, ledger_id: LedgerId) -> MemoryLedger:
        await self._metadata.put(DOCUMENT, b"{}")
        return await super().open(ledger_id)


@run
async def test_a_log_that_changes_while_it_is_opened_is_not_taken_for_a_damaged_one() -> None:
    chain = await begun()
    chain.environment.store = Changing(chain.metadata)
    with pytest.raises(StorageError, match="has changed"):
        await recover_log(chain.environment, NAME)


@run
async def test_a_chain_that_cannot_be_read_is_not_taken_for_none() -> None:
    chain = await begun()
    await chain.metadata.close()
    with pytest.raises(MetadataError):
        await recover_log(chain.environment, NAME)
