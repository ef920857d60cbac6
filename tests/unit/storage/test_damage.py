"""What the store tells its operator of entries that a reader did not get."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.storage.local import damage
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId

from .conftest import SMALL
from .helpers import fill, in_a_loop, pattern


async def written(folder: Path, ledger_count: int = 1) -> tuple[LocalLedgerStore, list[Any]]:
    """A store that has forgotten what it has written, so that it reads its segments."""
    store = await LocalLedgerStore.start(folder, settings=SMALL, clock=SystemClock())
    ids = []
    for _ in range(ledger_count):
        writer = await store.create()
        await fill(writer, [pattern(number, 2_000) for number in range(40)])
        await writer.seal()
        ids.append(writer.ledger_id)
    await store.close()
    store = await LocalLedgerStore.start(folder, settings=SMALL, clock=SystemClock())
    return store, [await store.open(one) for one in ids]


def flip(store: LocalLedgerStore, ledger: Any, entry_id: int) -> Path:
    path = store.path_of(ledger)
    with path.open("r+b") as file:
        content = file.read()
        at = content.index(pattern(entry_id, 2_000)[:100])
        file.seek(at)
        file.write(bytes([content[at] ^ 1]))
    return path


@in_a_loop
async def test_a_damaged_entry_is_told_until_its_ledger_is_deleted(tmp_path: Path) -> None:
    store, (ledger, other) = await written(tmp_path, 2)
    path = flip(store, ledger, 30)
    assert store.damage.problem is None
    for entry_id in (30, 30, 31):
        if entry_id == 30:
            with pytest.raises(EntryCorrupt):
                await ledger.read(EntryId(entry_id), 1)
        else:
            await ledger.read(EntryId(entry_id), 1)
    said = store.damage.problem
    assert said is not None
    assert f"entry 30 of ledger {ledger.ledger_id} is damaged" in said
    assert str(path) in said
    assert store.problem is None, "the store works"
    flip(store, ledger, 20)
    flip(store, other, 10)
    for one, entry_id in ((ledger, 20), (other, 10)):
        with pytest.raises(EntryCorrupt):
            await one.read(EntryId(entry_id), 1)
    said = store.damage.problem
    assert said is not None
    assert f"entry 20 of ledger {ledger.ledger_id}" in said
    assert "1 ledgers more" in said
    await store.delete(ledger.ledger_id)
    said = store.damage.problem
    assert said is not None
    assert f"entry 10 of ledger {other.ledger_id}" in said
    assert [(one.ledger_id, first) for one, first in store.damage.ledgers()] == [(other.ledger_id, 10)]
    await store.delete(other.ledger_id)
    assert store.damage.problem is None
    await store.close()


@in_a_loop
async def test_a_segment_that_is_gone_is_damage_and_that_of_a_deleted_ledger_is_not(tmp_path: Path) -> None:
    store, (gone, deleted) = await written(tmp_path, 2)
    await store.delete(deleted.ledger_id)
    with pytest.raises(LedgerNotFound):
        await deleted.read(EntryId(0), 1)
    assert store.damage.problem is None
    store.path_of(gone).unlink()
    with pytest.raises(LedgerNotFound):
        await gone.read(EntryId(0), 1)
    said = store.damage.problem
    assert said is not None
    assert f"of ledger {gone.ledger_id} is damaged on its disk, or gone" in said
    await store.close()


@pytest.mark.parametrize(("number", "is_damage"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_what_the_disk_fails_to_read_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_damage: bool
) -> None:
    async def scenario() -> None:
        store, (ledger,) = await written(tmp_path)

        def fails(path: Path) -> None:
            raise OSError(number, "as the test has it")

        monkeypatch.setattr(store.reads.files, "use", fails)
        with pytest.raises(StorageError):
            await ledger.read(EntryId(0), 1)
        assert (store.damage.problem is not None) is is_damage
        monkeypatch.undo()
        await store.close()

    asyncio.run(scenario())


@in_a_loop
async def test_what_is_kept_of_damage_has_a_limit(tmp_path: Path) -> None:
    store, ledgers = await written(tmp_path, 3)
    found = damage.Damage(store.path_of)
    for number in range(damage.LEDGERS_MAX + 3):
        one = ledgers[number] if number < 3 else await store.create()
        found.found(one, 7)
    assert len(found.ledgers()) == damage.LEDGERS_MAX
    found.found(ledgers[0], 3)
    assert found.ledgers()[0][1] == 3, "one that is known is kept up to date"
    await store.close()
