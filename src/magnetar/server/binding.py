"""That the two stores of a data folder belong together, and neither is older than the other.

The metadata says which ledgers there are and what is in them; the ledger store has them.  Whoever puts an older copy of
one beside the other would lose what came since, so a start compares them first and refuses.  Each store notes the
other:

* a *generation*, which every start raises by one in both, in the metadata (`/store-binding`) first;
* the ledger store's file `binding` (`storage/local/binding.py`) has the number of metadata transactions that were
  durable when it was written: at the start, every minute, and at the end;
* each metadata transaction has the number of the last journal round that was durable before it, unless the journal is
  not synced (`journal.sync.data=false`), when the power may take rounds away that were acknowledged.

JSON at `/store-binding`::

    {"v": 1, "store": "<store id>", "generation": 7, "raised_at": 1234}     the transaction that wrote this

A crash between the two steps of a start leaves the metadata one generation ahead and without any transaction since
`raised_at`; the next start finishes that one.  Folders of versions that noted nothing are bound by their first start.
"""

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import ConfigError, StorageError
from magnetar.ledger.managed_ledger import METADATA_ROOT as LEDGERS_ROOT
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


async def look(
    metadata: SqliteMetadataStore, store: LocalLedgerStore, *, ignore_damage: bool = False
) -> tuple[MetadataSide, LedgerSide]:
    """What both stores know, before anything is written to either.

    Raises:
        StorageError: the ledger store's note is damaged; with `ignore_damage` there is none then.
        OSError: it cannot be read.
    """
    stored = await metadata.get(PATH)
    document = {} if stored is None else json.loads(stored.value)
    chains = await metadata.scan(LEDGERS_ROOT)
    metadata_side = MetadataSide(
        document.get("store", ""),
        document.get("generation", 0),
        document.get("raised_at", 0),
        metadata.commits,
        metadata.noted_sequence,
        not await metadata.scan("/"),
        any(json.loads(value.value)["ledgers"] for _, value in chains),
    )
    try:
        noted = await asyncio.to_thread(read_binding, store.disk, store.data_dir)
    except StorageError:
        if not ignore_damage:
            raise
        noted = None
    own_id = store.segment_files.store_id
    ledger_side = LedgerSide(
        own_id,
        own_id if noted is None else noted.store_id,
        0 if noted is None else noted.generation,
        0 if noted is None else noted.commits,
        store.durable_sequence,
        len(await store.list_ledgers()),
    )
    return metadata_side, ledger_side


class StoreBinding:
    """The binding of two stores that are in use; made by `bind`."""

    def __init__(self, metadata: SqliteMetadataStore, store: LocalLedgerStore, generation: int) -> None:
        self._metadata = metadata
        self._store = store
        self._generation = generation
        self._noted = -1
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Note how far the metadata has got now and then."""
        self._task = asyncio.get_running_loop().create_task(self._go_on(), name="note metadata")

    async def close(self) -> None:
        """Note where the metadata ends.  Nobody writes to it any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._try_to_note()

    async def note(self) -> None:
        """Note in the ledger store how far the metadata has got.  Raises OSError."""
        commits = self._metadata.commits
        if commits != self._noted:
            binding = NotedBinding(self._store.segment_files.store_id, self._generation, commits)
            await asyncio.to_thread(write_binding, self._store.disk, self._store.data_dir, binding)
            self._noted = commits

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(NOTE_INTERVAL_S)
            await self._try_to_note()

    async def _try_to_note(self) -> None:
        try:
            await self.note()
        except OSError as error:  # what was noted before stays true
            log.warning("how far the metadata has got cannot be noted now: %s", error)


async def bind(
    metadata: SqliteMetadataStore, store: LocalLedgerStore, *, accept: bool = False
) -> StoreBinding:
    """Compare the stores, and bind them for this run; before anybody else writes to them.

    `accept`: somebody has looked, and wants to go on with the two as they are.

    Raises:
        ConfigError: they do not belong together.
        MetadataError, StorageError, OSError: one of them cannot be written or read.
    """
    metadata_side, ledger_side = await look(metadata, store, ignore_damage=accept)
    wrong = contradiction(metadata_side, ledger_side)
    if wrong is not None and not accept:
        raise ConfigError(
            f"{wrong}; nothing was changed: put back the data folder ({store.data_dir}) as a whole, or see"
            " `magnetar doctor`"
        )
    if store.settings.journal_sync_data:
        metadata.sequence_of_ledgers = lambda: store.durable_sequence
    if wrong is None and is_unfinished(metadata_side, ledger_side):
        generation = metadata_side.generation
    else:
        generation = max(metadata_side.generation, ledger_side.generation) + 1
        document = {
            "v": 1,
            "store": ledger_side.store_id,
            "generation": generation,
            "raised_at": metadata.commits + 1,
        }
        await metadata.put(PATH, json.dumps(document).encode())
    if wrong is not None:
        log.warning("two stores are taken for each other's although %s", wrong)
        await _skip_ledger_ids(metadata, store)
    binding = StoreBinding(metadata, store, generation)
    await binding.note()
    return binding


async def _skip_ledger_ids(metadata: SqliteMetadataStore, store: LocalLedgerStore) -> None:
    """Never give an id again that some chain names, although the store does not know of it."""
    named = [
        row[0] for _, value in await metadata.scan(LEDGERS_ROOT) for row in json.loads(value.value)["ledgers"]
    ]
    store.next_ledger_id = max([store.next_ledger_id, *(ledger_id + 1 for ledger_id in named)])
    last = await store.create()  # so that it is known for good
    await store.delete(last.stat.ledger_id)
