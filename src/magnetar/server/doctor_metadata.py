"""The metadata's part of `magnetar doctor`: is it whole, does it belong to the ledgers, and which missing ledgers
does it name.

The check reads a copy, because SQLite would change the original: it would copy the WAL into the file.  A repair binds
the two stores as they are (`binding`), and moves away the note that says what is missing (`commit_mark`).  It deletes
no ledger, not even one that no log names.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.base.errors import ConfigError, StorageError
from magnetar.base.findings import Finding, Weight
from magnetar.ledger.chain_rows import METADATA_ROOT as LEDGERS_ROOT
from magnetar.ledger.chain_rows import ids_in
from magnetar.metadata import sqlite_file
from magnetar.metadata.commit_mark import mark_path, missing, noted_commits
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.server.binding import (
    PATH,
    LedgerSide,
    MetadataSide,
    contradiction,
    ledger_side,
    metadata_side,
    raised,
)
from magnetar.storage.local.binding import NotedBinding, read_binding, write_binding
from magnetar.storage.local.salvage import Examined
from magnetar.storage.local.segments import store_id

FILE: Final = "metadata.sqlite"
_TOLD_MAX: Final = 20


@dataclass(slots=True)
class _Seen:
    values: dict[str, bytes] = field(default_factory=dict)
    commits: int = 0
    sequence: int = 0
    acknowledged: int = 0  # the noted number of transactions
    damage: str | None = None

    def shortfall(self, data_dir: Path) -> str | None:
        """A sentence for the operator if acknowledged transactions are missing; otherwise None."""
        if self.acknowledged <= self.commits:
            return None
        return missing(data_dir / FILE, self.commits, self.acknowledged)


def check(store: Examined) -> Iterator[Finding]:
    """Check the metadata.  Raises OSError if a file cannot be read."""
    seen = _see(store.data_dir)
    if seen.damage is not None:
        yield Finding("metadata", Weight.DAMAGE, seen.damage)
        return
    details = {"values": len(seen.values), "transactions": seen.commits}
    yield Finding("metadata", Weight.OK, f"{len(seen.values)} values, {seen.commits} transactions", details)
    shortfall = seen.shortfall(store.data_dir)
    if shortfall is not None:
        yield Finding("metadata", Weight.DAMAGE, f"{shortfall}; a start refuses that")
    try:
        sides = _sides(store, seen)
    except StorageError as error:
        yield Finding("binding", Weight.DAMAGE, str(error))
    else:
        wrong = contradiction(*sides)
        if wrong is not None:
            yield Finding("binding", Weight.DAMAGE, f"{wrong}; a start refuses that")
    yield from _check_chains(store, seen)


def _check_chains(store: Examined, seen: _Seen) -> Iterator[Finding]:
    chains = {
        path[len(LEDGERS_ROOT) :]: ids_in(value)
        for path, value in seen.values.items()
        if path.startswith(LEDGERS_ROOT)
    }
    missing = {
        name: lost
        for name, ledgers in chains.items()
        if (lost := [one for one in ledgers if one not in store.ledgers])
    }
    for name, lost in list(missing.items())[:_TOLD_MAX]:
        text = f"{name} names ledgers that are gone, and is refused: {', '.join(map(str, lost))}"
        yield Finding("chains", Weight.DAMAGE, text, {"log": name, "ledgers": lost})
    if len(missing) > _TOLD_MAX:
        yield Finding(
            "chains", Weight.DAMAGE, f"so do {len(missing) - _TOLD_MAX} others", {"logs": list(missing)}
        )
    named = {ledger_id for ledgers in chains.values() for ledger_id in ledgers}
    given_up = {path.rpartition("/")[2] for path in seen.values if path.startswith("/deleted-ledgers/")}
    unowned = [
        ledger_id
        for ledger_id, state in store.ledgers.items()
        if state.entry_count and ledger_id not in named and f"{ledger_id:016x}" not in given_up
    ]
    if unowned:
        text = f"{len(unowned)} ledgers belong to no topic, and are kept: {', '.join(map(str, unowned[:_TOLD_MAX]))}"
        yield Finding("chains", Weight.NOTE, text, {"ledgers": unowned})


def repair(store: Examined, damaged: Path) -> Iterator[Finding]:
    """Bind the two stores as they are now, if a start would refuse them.

    If transactions are missing, the note that says so is moved into `damaged`.
    """
    seen = _see(store.data_dir)
    if seen.damage is not None:
        return
    try:
        metadata_knows, ledgers_know = _sides(store, seen)
        wrong = contradiction(metadata_knows, ledgers_know)
    except StorageError as error:
        wrong = str(error)
        metadata_knows = metadata_side(seen.values, seen.commits, seen.sequence)
        ledgers_know = ledger_side(store_id(store.disk, store.data_dir), None, _last_round(store), 0)
    shortfall = seen.shortfall(store.data_dir)
    wrong = wrong or shortfall
    if wrong is None:
        return
    if shortfall is not None:
        mark = mark_path(store.data_dir / FILE)
        mark.rename(damaged / mark.name)
    generation = max(metadata_knows.generation, ledgers_know.generation) + 1
    commits = asyncio.run(_raise(store.data_dir, seen, ledgers_know.store_id, generation))
    write_binding(store.disk, store.data_dir, NotedBinding(ledgers_know.store_id, generation, commits))
    text = f"metadata and ledgers are taken for each other's as they are, although {wrong}"
    yield Finding("binding", Weight.REPAIRED, text, {"generation": generation})


async def _raise(data_dir: Path, seen: _Seen, own_id: str, generation: int) -> int:
    metadata = SqliteMetadataStore(data_dir / FILE)
    try:
        value = raised(seen.values, own_id, generation, metadata.commits + 1, skips=True)
        await metadata.put(PATH, value)
        return metadata.commits
    finally:
        await metadata.close()


def _see(data_dir: Path) -> _Seen:
    """Read the metadata file, from a copy of it."""
    acknowledged = noted_commits(data_dir / FILE)
    if not (data_dir / FILE).exists():
        return _Seen(acknowledged=acknowledged)
    with tempfile.TemporaryDirectory(prefix="magnetar-doctor-") as folder:
        copy = Path(folder) / FILE
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(data_dir / (FILE + suffix), Path(folder) / (FILE + suffix))
        try:
            connection = sqlite_file.open_file(copy)
            nodes, state = sqlite_file.load(copy, connection)
            connection.close()
        except ConfigError as error:
            return _Seen(damage=str(error).replace(str(copy), str(data_dir / FILE)))
    values = {path: stored.value for path, stored in nodes.items()}
    try:
        for path, value in values.items():
            if path.startswith(LEDGERS_ROOT):
                ids_in(value)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return _Seen(damage=f"what the metadata holds at {path} is not what a server writes: {error!r}")
    return _Seen(values, state.commits, state.sequence, acknowledged)


def _sides(store: Examined, seen: _Seen) -> tuple[MetadataSide, LedgerSide]:
    """What each store knows.  Raises StorageError if the ledger store's note is damaged."""
    noted = read_binding(store.disk, store.data_dir)
    has_id = "store-id" in store.disk.names(store.data_dir)
    own_id = store_id(store.disk, store.data_dir) if has_id else ""
    return (
        metadata_side(seen.values, seen.commits, seen.sequence),
        ledger_side(own_id, noted, _last_round(store), len(store.ledgers)),
    )


def _last_round(store: Examined) -> int:
    return max([store.known.journal_sequence, *(file.last_round for file in store.files.values())])
