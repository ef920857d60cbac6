"""That the two stores of a data folder belong together, and neither is older than the other.

The metadata says which ledgers there are and what is in them; the ledger store has them.  An operator who puts an older
copy of one beside the other would lose what came since, so a start compares them first and refuses.  Each store notes
the other:

* a *generation*, which every start raises by one in both, in the metadata (`/store-binding`) first;
* the ledger store's file `binding` (`storage/local/binding.py`) has the number of metadata transactions that were
  durable when it was written: at the start, every minute, and at the end;
* each metadata transaction has the number of the last journal round that was durable before it, unless the journal is
  not synced (`journal.sync.data=false`), when the power may take rounds away that were acknowledged.

JSON at `/store-binding`::

    {"v": 1, "store": "<store id>", "generation": 7,
     "raised_at": 1234,       the transaction that wrote this
     "free_from": 57}         ledger ids below were given before, whatever the ledger store knows of them

A ledger id that the metadata names is never given again, either: the store may not know of it any more, because the
power took a journal that is not synced, or a damaged round was given up.  Otherwise the log that names the id would get
the next ledger's entries.

A crash between the two steps of a start leaves the metadata one generation ahead and without any transaction since
`raised_at`; the next start finishes that one.  Folders of versions that noted nothing are bound by their first start.
An operator who has looked (`magnetar doctor --repair`) may bind two stores that contradict each other.
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
from magnetar.ledger.chain_rows import stored_id_of
from magnetar.ledger.tombstones import ROOT as TOMBSTONES_ROOT
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.storage.local.binding import NotedBinding, read_binding, write_binding
from magnetar.storage.local.store import LocalLedgerStore

log = logging.getLogger(__name__)

PATH: Final = "/store-binding"
NOTE_INTERVAL_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class MetadataSide:
    """What the metadata store knows.  `generation` 0: it was never bound; `sequence` 0: none is noted."""

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
    """Whether a crash came between the two steps of a start, and nothing has happened since."""
    return (
        metadata.generation == ledgers.generation + 1
        and metadata.store_id == ledgers.store_id
        and metadata.commits == metadata.raised_at
    )


def contradiction(metadata: MetadataSide, ledgers: LedgerSide) -> str | None:
    """What is wrong with the two stores beside each other; None when they belong together."""
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
    """From all that a metadata store holds, and what it says of itself."""
    document = binding_document(values.get(PATH))
    return MetadataSide(
        document.get("store", ""),
        document.get("generation", 0),
        document.get("raised_at", 0),
        commits,
        sequence,
        not values,
        any(ledgers_of(value) for path, value in values.items() if path.startswith(LEDGERS_ROOT)),
    )


def ledger_side(store_id: str, noted: NotedBinding | None, sequence: int, ledger_count: int) -> LedgerSide:
    if noted is None:
        return LedgerSide(store_id, store_id, 0, 0, sequence, ledger_count)
    return LedgerSide(store_id, noted.store_id, noted.generation, noted.commits, sequence, ledger_count)


def binding_document(value: bytes | None) -> dict[str, Any]:
    document: dict[str, Any] = {} if value is None else json.loads(value)
    return document


def ledgers_of(chain: bytes) -> list[int]:
    """The ledgers that a stored chain names, with the one beside it."""
    document = json.loads(chain)
    beside = [int(document["compacted"])] if "compacted" in document else []
    return [stored_id_of(row) for row in document["ledgers"]] + beside


def free_ids(values: Mapping[str, bytes]) -> int:
    """The smallest ledger id that may be given next for all that the metadata knows."""
    free_from = int(binding_document(values.get(PATH)).get("free_from", 1))
    for path, value in values.items():
        if path.startswith(LEDGERS_ROOT):
            free_from = max([free_from, *(one + 1 for one in ledgers_of(value))])
        elif path.startswith(TOMBSTONES_ROOT):
            free_from = max(free_from, int(path[len(TOMBSTONES_ROOT) :], 16) + 1)
    return free_from


def raised(
    values: Mapping[str, bytes], store_id: str, generation: int, raised_at: int, *, skips: bool
) -> bytes:
    """What `/store-binding` holds next; `skips`: the ledger store may not know of all ids that were given."""
    free_from = free_ids(values) if skips else int(binding_document(values.get(PATH)).get("free_from", 1))
    document = {"v": 1, "store": store_id, "generation": generation, "raised_at": raised_at}
    return json.dumps(document | {"free_from": free_from}).encode()


class StoreBinding:
    """The binding of two stores that are in use; made by `bind`."""

    def __init__(self, metadata: SqliteMetadataStore, store: LocalLedgerStore, generation: int) -> None:
        self._metadata = metadata
        self._store = store
        self._generation = generation
        self._noted = -1
        self._job: Job | None = None
        self._writing: asyncio.Future[None] | None = None

    def start(self, upkeep: Upkeep) -> None:
        """Note how far the metadata has got now and then."""
        self._job = upkeep.every(NOTE_INTERVAL_S, "the binding of metadata and ledgers", self._try_to_note)

    async def close(self) -> None:
        """Note where the metadata ends, behind its last write."""
        if self._job is not None:
            await self._job.stop()
        if self._writing is not None:
            # A caller that gave up waiting has not stopped the thread.
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._try_to_note()

    async def note(self) -> None:
        """Note in the ledger store how far the metadata has got.  Raises OSError."""
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
        except OSError as error:  # what was noted before stays true
            log.warning("the server cannot note the state of the metadata now: %s", error)


async def bind(metadata: SqliteMetadataStore, store: LocalLedgerStore) -> StoreBinding:
    """Compare the stores, and bind them for this run; before the broker writes to them.

    Raises:
        ConfigError: they do not belong together.
        MetadataError, StorageError, OSError: one of them cannot be written or read.
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
