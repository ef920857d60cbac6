"""Checks that the two stores of a data folder belong together, and that neither is older than the other.

The metadata says which ledgers exist and what is in them; the ledger store has their entries.  If an operator
restored an older copy of only one store, the server would lose everything since that copy.  So a start first compares
the stores, and refuses.  Each store notes the state of the other:

* every start raises a *generation* by one in both stores, first in the metadata (`/store-binding`);
* the ledger store's file `binding` (`storage/local/binding.py`) has the number of metadata transactions that were
  durable when it was written: at the start, every minute, and at the end;
* each metadata transaction has the number of the last journal round that was durable before it.  It has no number if
  the journal is not synced (`journal.sync.data=false`), because a loss of power may then take acknowledged rounds.

JSON at `/store-binding`::

    {"v": 1, "store": "<store id>", "generation": 7,
     "raised_at": 1234,       the number of the transaction that wrote this
     "free_from": 57}         smaller ledger ids were used, even if the ledger store does not know them

A ledger id that the metadata names is never used again, either.  The ledger store may not know it any more, because a
loss of power took an unsynced journal, or because a repair gave a damaged round up.  If a new ledger got the id, the
log that names it would get that ledger's entries.

A crash between the two steps of a start leaves the metadata one generation ahead and without any transaction since
`raised_at`; the next start finishes the step.  The first start binds a folder of an older version, which has no
notes.  With `magnetar doctor --repair` an operator may bind two stores that contradict each other.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from magnetar.base.errors import ConfigError
from magnetar.base.upkeep import Job, Upkeep
from magnetar.ledger.chain_rows import METADATA_ROOT as LEDGERS_ROOT
from magnetar.ledger.chain_rows import ids_in
from magnetar.ledger.tombstones import ROOT as TOMBSTONES_ROOT
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.storage.local.binding import NotedBinding, read_binding, write_binding
from magnetar.storage.local.store import LocalLedgerStore

log = logging.getLogger(__name__)

PATH: Final = "/store-binding"
NOTE_INTERVAL_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class MetadataSide:
    """What the metadata store knows.  `generation` 0: it was never bound; `sequence` 0: no journal round is noted."""

    store_id: str
    generation: int
    raised_at: int
    commits: int
    sequence: int
    is_empty: bool
    names_ledgers: bool


@dataclass(frozen=True, slots=True)
class LedgerSide:
    """What the ledger store knows.  `generation` 0: it was never bound."""

    store_id: str
    bound_id: str
    generation: int
    commits: int
    sequence: int
    ledger_count: int


def is_unfinished(metadata: MetadataSide, ledgers: LedgerSide) -> bool:
    """Whether a crash interrupted a start between its two steps, and no transaction was made since."""
    return (
        metadata.generation == ledgers.generation + 1
        and metadata.store_id == ledgers.store_id
        and metadata.commits == metadata.raised_at
    )


def contradiction(metadata: MetadataSide, ledgers: LedgerSide) -> str | None:
    """What is wrong with the two stores together, as a clause for the operator; None if they belong together."""
    if ledgers.generation and ledgers.bound_id != ledgers.store_id:
        return "the files store-id and binding are of different data folders"
    if metadata.is_empty and (ledgers.generation or ledgers.ledger_count):
        return f"metadata.sqlite is missing or empty, and there are {ledgers.ledger_count} ledgers beside it"
    if not metadata.generation:
        if ledgers.generation:
            return "metadata.sqlite is an old copy: it does not know the ledgers beside it"
        if metadata.names_ledgers and not ledgers.ledger_count:
            return "the ledgers that metadata.sqlite names are missing"
        return None
    if metadata.store_id != ledgers.store_id:
        if not ledgers.generation:
            return "the ledgers that metadata.sqlite belongs to (journal, segments, catalogue) are missing"
        return "metadata.sqlite and the ledgers beside it are of different data folders"
    if is_unfinished(metadata, ledgers):
        return None
    if metadata.generation < ledgers.generation or metadata.commits < ledgers.commits:
        lost = max(ledgers.commits - metadata.commits, 1)
        return (
            f"metadata.sqlite is older than the ledgers beside it: at least {lost} transactions are missing"
        )
    if metadata.generation > ledgers.generation or metadata.sequence > ledgers.sequence:
        return "the ledgers (journal, segments, catalogue) are older than metadata.sqlite beside them"
    return None


def metadata_side(values: Mapping[str, bytes], commits: int, sequence: int) -> MetadataSide:
    """From all values of a metadata store, its number of transactions, and the journal round that it notes."""
    document = binding_document(values.get(PATH))
    return MetadataSide(
        document.get("store", ""),
        document.get("generation", 0),
        document.get("raised_at", 0),
        commits,
        sequence,
        not values,
        any(ids_in(value) for path, value in values.items() if path.startswith(LEDGERS_ROOT)),
    )


def ledger_side(store_id: str, noted: NotedBinding | None, sequence: int, ledger_count: int) -> LedgerSide:
    if noted is None:
        return LedgerSide(store_id, store_id, 0, 0, sequence, ledger_count)
    return LedgerSide(store_id, noted.store_id, noted.generation, noted.commits, sequence, ledger_count)


def binding_document(value: bytes | None) -> dict[str, Any]:
    document: dict[str, Any] = {} if value is None else json.loads(value)
    return document


def free_ids(values: Mapping[str, bytes]) -> int:
    """The smallest ledger id that is greater than all that the metadata knows."""
    free_from = int(binding_document(values.get(PATH)).get("free_from", 1))
    for path, value in values.items():
        if path.startswith(LEDGERS_ROOT):
            free_from = max([free_from, *(one + 1 for one in ids_in(value))])
        elif path.startswith(TOMBSTONES_ROOT):
            free_from = max(free_from, int(path[len(TOMBSTONES_ROOT) :], 16) + 1)
    return free_from


def raised(
    values: Mapping[str, bytes], store_id: str, generation: int, raised_at: int, *, skips: bool
) -> bytes:
    """The next value of `/store-binding`; `skips`: the ledger store may not know all ids that were used."""
    free_from = free_ids(values) if skips else int(binding_document(values.get(PATH)).get("free_from", 1))
    document = {"v": 1, "store": store_id, "generation": generation, "raised_at": raised_at}
    return json.dumps(document | {"free_from": free_from}).encode()


class StoreBinding:
    """The binding of two stores that are in use; `bind` creates it."""

    def __init__(self, metadata: SqliteMetadataStore, store: LocalLedgerStore, generation: int) -> None:
        self._metadata = metadata
        self._store = store
        self._generation = generation
        self._noted = -1
        self._job: Job | None = None
        self._writing: asyncio.Future[None] | None = None

    def start(self, upkeep: Upkeep) -> None:
        """Note the number of metadata transactions every `NOTE_INTERVAL_S` seconds."""
        self._job = upkeep.every(NOTE_INTERVAL_S, "the binding of metadata and ledgers", self._try_to_note)

    async def close(self) -> None:
        """Note the final number of metadata transactions; call it after the last write."""
        if self._job is not None:
            await self._job.stop()
        if self._writing is not None:
            # The thread may still write, even if its caller no longer waits.
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._try_to_note()

    async def note(self) -> None:
        """Note the number of metadata transactions in the ledger store.  Raises OSError."""
        commits = self._metadata.commits
        if commits != self._noted:
            binding = NotedBinding(self._store.segment_files.store_id, self._generation, commits)
            self._writing = asyncio.get_running_loop().run_in_executor(
                None, write_binding, self._store.disk, self._store.data_dir, binding
            )
            await asyncio.shield(self._writing)
            self._noted = commits

    async def _try_to_note(self) -> None:
        try:
            await self.note()
        except OSError as error:  # the older note is still valid
            log.warning("the server cannot note the state of the metadata now: %s", error)


async def bind(metadata: SqliteMetadataStore, store: LocalLedgerStore) -> StoreBinding:
    """Compare the stores, and bind them for this run; call it before the broker writes to them.

    Raises:
        ConfigError: the stores do not belong together.
        MetadataError, StorageError, OSError: one of the stores cannot be written or read.
    """
    values = {path: stored.value for path, stored in await metadata.scan("/")}
    metadata_knows = metadata_side(values, metadata.commits, metadata.noted_sequence)
    noted = await asyncio.to_thread(read_binding, store.disk, store.data_dir)
    count = len(await store.list_ledgers())
    ledgers_know = ledger_side(store.segment_files.store_id, noted, store.durable_sequence, count)
    wrong = contradiction(metadata_knows, ledgers_know)
    if wrong is not None:
        raise ConfigError(
            f"{wrong}; nothing was changed: put back the data folder ({store.data_dir}) as a whole, or see"
            " `magnetar doctor`"
        )
    if store.settings.journal_sync_data:
        metadata.bind(store)
    generation = metadata_knows.generation
    if not is_unfinished(metadata_knows, ledgers_know):
        generation += 1
        at = metadata.commits + 1
        await metadata.put(PATH, raised(values, ledgers_know.store_id, generation, at, skips=False))
    store.next_ledger_id = max(store.next_ledger_id, free_ids(values))
    binding = StoreBinding(metadata, store, generation)
    await binding.note()
    return binding
