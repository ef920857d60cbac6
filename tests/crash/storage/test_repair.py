"""`magnetar doctor` on a damaged store: what it says, what it keeps, and that the store then starts.

The rule that is tested: of a journal with damaged rounds every ledger keeps all entries that follow without a hole in
whole rounds; a ledger of which the damaged rounds held nothing loses nothing; nothing that was moved is changed.
"""

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from magnetar.base.errors import StorageError
from magnetar.base.findings import Finding, Weight
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local import doctor
from magnetar.storage.local.catalogue import Catalogue, parse_fact
from magnetar.storage.local.format import FACT_BYTES, Control, FactKind
from magnetar.storage.local.replay import Whole, survey, walk
from magnetar.storage.local.salvage import examine
from magnetar.testing.disk import CrashDisk, Fate
from tests.crash.storage.killed_store import (
    DATA,
    FOLDER,
    KIB,
    TINY,
    Killed,
    Load,
    killed,
    one_by_one,
    repaired,
    start,
)
from tests.examples import seeds


def findings_of(disk: CrashDisk) -> list[Finding]:
    examined = examine(disk, DATA)
    found = list(doctor.check(examined, deep=True))
    examined.close()
    return found


def damage_in(found: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.weight is Weight.DAMAGE]


def what_is_whole(dead: Killed, damaged: set[int]) -> dict[int, int]:
    """Entries of each ledger when these rounds are not there: by reading the undamaged journal without them."""
    disk = dead.disk()
    catalogue = Catalogue(disk, DATA / "catalogue")
    catalogue.load()
    known = catalogue.known
    counts = {ledger_id: line.entry_count for ledger_id, (line, _) in known.facts.items()}
    gone = set(known.deleted)
    for item in walk(survey(disk, DATA / "journal", known), known):
        assert isinstance(item, Whole)
        for record in item.records if item.head.sequence not in damaged else ():
            if record.entry_id == Control.CREATE:
                counts.setdefault(record.ledger_id, 0)
            elif record.entry_id == Control.DELETE:
                counts.pop(record.ledger_id, None)
                gone.add(record.ledger_id)
            elif record.entry_id == 0 and record.ledger_id not in counts | dict.fromkeys(gone):
                counts[record.ledger_id] = 1
            elif record.entry_id == counts.get(record.ledger_id):
                counts[record.ledger_id] += 1
    return counts


def everything_in(disk: CrashDisk) -> dict[Path, bytes]:
    return {path: bytes(disk.content(path)) for path in disk.paths()}


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("seed", seeds(2, 16))
def test_of_a_damaged_journal_all_is_kept_that_follows_without_a_hole(seed: int, failing: bool) -> None:
    async def scenario() -> None:
        dead = await killed(seed + 30, failing=failing)
        while len(dead.rounds) < 2:  # on a busy machine a checkpoint may come at the very end
            dead = await killed(seed + 30, failing=failing)
        chance = random.Random(seed)
        for count in (1, 1, 1, 1, 2, 3, 5):
            hit = chance.sample(dead.rounds[:-1], min(count, len(dead.rounds) - 1))
            disk = dead.disk()
            for path, position, end, _ in hit:
                disk.content(path)[chance.choice((position, end - 1))] ^= 0xFF
            before = everything_in(disk)
            found = findings_of(disk)
            assert everything_in(disk) == before
            assert damage_in(found)
            for path, position, _, sequence in hit:
                told = [finding.details for finding in damage_in(found) if finding.area == "journal"]
                assert any(0 <= sequence - one["first_round"] < one["lost_rounds"] for one in told)
                if count == 1:
                    assert [(one["file"], one["position"]) for one in told] == [(path.name, position)]
            epochs = [file.epoch for file in examine(disk, DATA).files.values()]
            # And segments, when a ledger's beginning was hit and the flusher had been there.
            assert {done.area for done in repaired(disk)} - {"segments"} == {"journal"}
            assert damage_in(findings_of(disk)) == []
            assert [file.epoch > max(epochs) for file in examine(disk, DATA).files.values()] == [True]
            for path, content in before.items():
                moved = FOLDER / "journal" / path.name
                if path.suffix == ".journal":
                    assert bytes(disk.content(moved)) == content
            expected = what_is_whole(dead, {sequence for *_, sequence in hit})
            assert await dead.found(disk) == expected
            assert await dead.found(disk.after_power_loss(Fate.DROPPED)) == expected

    asyncio.run(scenario())


def test_a_ledger_of_which_the_damage_held_nothing_loses_nothing() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        for _ in range(3):
            await load.create()
        for turn in range(9):
            await load.append(*(3 if number == turn % 3 else 0 for number in range(3)))
        dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
        await store.close()
        path, position, _, _ = dead.rounds[
            3 + 4
        ]  # behind three creations: the second round of the second ledger
        disk = dead.spoiled(path, position)
        told = [finding for finding in damage_in(findings_of(disk)) if finding.area == "ledgers"]
        assert [finding.details for finding in told] == [
            {"ledger": 2, "kept_entries": 3, "last_offset": 2, "cut_off_entries": 3}
        ]
        repaired(disk)
        assert await dead.found(disk) == {1: 9, 2: 3, 3: 9}

    asyncio.run(scenario())


def test_a_ledger_whose_creation_is_lost_is_made_again() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        await load.create()
        await load.append(4)
        dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
        await store.close()
        disk = dead.spoiled(dead.rounds[0][0], dead.rounds[0][1])
        repaired(disk)
        store = await start(disk)
        assert [stat.entry_count for stat in await store.list_ledgers()] == [4]
        assert (await store.create()).stat.ledger_id == 2
        await store.close()

    asyncio.run(scenario())


def test_what_segments_have_of_a_ledger_whose_beginning_is_lost_is_not_deleted() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        await load.create()
        for _ in range(4):
            await load.append(1)
        await load.create()
        for _ in range(6):
            await load.append(0, 6)
        await asyncio.sleep(0.05)  # some of it is written behind
        dead = Killed(disk.after_power_loss(Fate.KEPT), load.acknowledged)
        await store.close()
        disk = dead.disk()
        for path, position, _, _ in dead.rounds[5:7]:  # the second ledger's creation, and its first entries
            disk.content(path)[position] ^= 0xFF
        segment = DATA / "segments" / f"{2:016x}.segment"
        content = bytes(disk.content(segment))
        assert len(content) > 8 * KIB
        done = repaired(disk)
        assert damage_in(findings_of(disk)) == []
        for _ in range(2):
            store = await start(disk)
            later = Load(store)
            for _ in range(2):
                await later.create()
            await later.append(1, 1)
            await store.close()
        assert content in everything_in(disk).values()
        assert [one.area for one in done] == ["segments", "journal"]
        assert bytes(disk.content(FOLDER / "segments" / segment.name)) == content

    asyncio.run(scenario())


def test_when_nothing_can_be_kept_the_store_starts_all_the_same() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        await load.create()
        await store.checkpoint()
        await load.append(1)
        await load.append(1)
        dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
        await store.close()
        disk = dead.spoiled(dead.rounds[0][0], dead.rounds[0][1])
        repaired(disk)
        assert damage_in(findings_of(disk)) == []
        assert await dead.found(disk) == {1: 0}

    asyncio.run(scenario())


async def with_segments() -> tuple[Killed, set[int]]:
    """Sealed, open, empty and deleted ledgers, segments that the catalogue knows in parts, and a journal behind."""
    disk = CrashDisk()
    store = await start(disk)
    load = Load(store)
    for _ in range(4):
        await load.create()
    for _ in range(30):
        await load.append(2, 1, 1)
    gone = load.ledgers.pop(2)
    await store.delete(gone.stat.ledger_id)
    del load.acknowledged[gone.stat.ledger_id]
    await load.ledgers.pop(0).seal()
    await store.checkpoint()
    for _ in range(25):
        await load.append(3)
    await store.checkpoint()
    await load.create()
    await load.append(4, 0, 3)
    dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
    await store.close()
    return dead, {int(gone.stat.ledger_id)}


def cut_what_covers_nothing(catalogue: bytearray) -> None:
    """Take off last commits of no fact and no further round: on a busy machine there is one, and nothing is lost with
    it.
    """
    while True:
        last, before = (parse_fact(memoryview(catalogue), len(catalogue) - n * FACT_BYTES) for n in (1, 2))
        assert last is not None
        assert last.kind is FactKind.CHECKPOINT
        is_alone = last.data_bytes == len(catalogue) - FACT_BYTES
        if not is_alone or before is None or before._replace(data_bytes=last.data_bytes) != last:
            return
        del catalogue[-FACT_BYTES:]


async def found_but(dead: Killed, disk: CrashDisk, gone: set[int]) -> dict[int, int]:
    """Without what was deleted: a file's removal is not synced, so it may be there again."""
    return {ledger: count for ledger, count in (await dead.found(disk)).items() if ledger not in gone}


def with_entries(counts: dict[int, int]) -> dict[int, int]:
    """A ledger without entries is nowhere but in the catalogue."""
    return {ledger: count for ledger, count in counts.items() if count}


def test_a_damaged_catalogue_is_made_again() -> None:
    async def scenario() -> None:
        dead, gone = await with_segments()
        path = DATA / "catalogue"
        size = len(dead.disk().content(path))
        named = 0
        for place in range(0, size, 7):
            disk = dead.spoiled(path, place)
            if not damage_in(findings_of(disk)):
                assert await dead.found(disk) == dead.acknowledged
                continue
            with pytest.raises(StorageError, match="damaged"):
                await start(disk)
            named += 1
            done = repaired(disk)
            assert done[0].area == "catalogue"
            assert damage_in(findings_of(disk)) == []
            assert with_entries(await found_but(dead, disk, gone)) == with_entries(dead.acknowledged)
        assert named > 10

    asyncio.run(scenario())


def test_a_catalogue_that_is_gone_is_missed_and_made_again() -> None:
    async def scenario() -> None:
        dead, gone = await with_segments()
        disk = dead.disk()
        disk.remove(DATA / "catalogue")
        with pytest.raises(StorageError, match=r"catalogue /data/catalogue is gone.*magnetar doctor"):
            await start(disk)
        assert [finding.area for finding in damage_in(findings_of(disk))] == ["catalogue"]
        repaired(disk)
        assert with_entries(await found_but(dead, disk, gone)) == with_entries(dead.acknowledged)

    asyncio.run(scenario())


def test_what_the_lost_last_commit_said_is_found_in_segments() -> None:
    """The journal does not have the rounds any more which that commit covered."""

    async def scenario() -> None:
        dead, gone = await with_segments()
        disk = dead.disk()
        content = disk.content(DATA / "catalogue")
        cut_what_covers_nothing(content)
        content[len(content) - 5] ^= 1
        assert dead.covered
        for path, position, end, _ in dead.covered:
            disk.content(path)[position:end] = bytes(end - position)
        with pytest.raises(StorageError, match=r"damaged.*magnetar doctor"):
            await start(disk)
        assert repaired(disk)[0].area == "catalogue"
        assert with_entries(await found_but(dead, disk, gone)) == with_entries(dead.acknowledged)

    asyncio.run(scenario())


@pytest.mark.parametrize("fate", list(Fate))
def test_power_loss_during_a_repair_leaves_it_to_be_done_again_or_done(fate: Fate) -> None:
    async def scenario() -> None:
        dead, gone = await with_segments()
        path, position, _, sequence = dead.rounds[0]
        expected = what_is_whole(dead, {sequence})
        for point in range(1, 30):
            disk = dead.spoiled(path, position)
            disk.content(DATA / "catalogue")[30] ^= 1
            disk.power_off_at = point
            try:
                repaired(disk)
            except OSError:
                ended = False
            else:
                ended = True
            disk = disk.after_power_loss(fate, point)
            left = examine(disk, DATA)
            assert left.catalogue is not None
            assert left.known.journal_sequence == dead.checkpoint
            if damage_in(findings_of(disk)):
                repaired(disk)
            assert with_entries(await found_but(dead, disk, gone)) == with_entries(expected)
            if ended:
                return
        pytest.fail("the repair has more steps than this test thinks")

    asyncio.run(scenario())


@pytest.mark.parametrize("sealed", [False, True])
def test_damage_in_segments_is_told_entry_by_entry(sealed: bool) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        await load.create()
        for _ in range(60):
            await load.append(2)
        if sealed:
            await load.ledgers[0].seal()
        await store.close()
        path = next(path for path in disk.paths() if path.suffix == ".segment")
        assert damage_in(findings_of(disk)) == []
        before = store.counters.corrupt_entries
        whole = bytes(disk.content(path))
        for place in range(60, 100_000, 9_001):
            disk.content(path)[:] = whole
            disk.content(path)[place] ^= 1
            told = damage_in(findings_of(disk))
            assert len(told) == 1
            assert told[0].details["damaged_entries"] >= 1
        del disk.content(path)[20_000:]
        assert any("were synced" in finding.text for finding in damage_in(findings_of(disk)))
        disk.remove(path)
        assert any("is gone" in finding.text for finding in damage_in(findings_of(disk)))
        assert before == 0

    asyncio.run(scenario())


def test_a_healthy_store_is_told_to_be_so_and_left_alone() -> None:
    async def scenario() -> None:
        dead, _ = await with_segments()
        disk = dead.disk()
        before = everything_in(disk)
        found = findings_of(disk)
        told = [finding.text for finding in found if finding.weight is not Weight.OK]
        assert told == ["1 files are of ledgers that are not there any more: 0000000000000003.segment"]
        examined = examine(disk, DATA)
        assert {ledger: state.entry_count for ledger, state in examined.ledgers.items()} == dead.acknowledged
        assert everything_in(disk) == before
        assert TINY.journal_file_count == len(examined.files)

    asyncio.run(scenario())


def test_a_repair_that_is_tried_again_on_a_full_disk_needs_no_more_room() -> None:
    async def scenario() -> None:
        dead = await one_by_one()
        path, position, _, _ = dead.rounds[4]
        whole = dead.flipped(path, position)
        before = whole.bytes_used()
        repaired(whole)
        need = whole.bytes_used() - before
        disk = dead.flipped(path, position)
        for room in (need - BLOCK_BYTES, need - BLOCK_BYTES, need - 5 * BLOCK_BYTES):
            disk.capacity_bytes = before + room
            with pytest.raises(OSError, match="no space left"):
                repaired(disk)
        disk.capacity_bytes = before + need
        repaired(disk)
        assert [path for path in disk.paths() if path.suffix == ".new"] == []
        disk.capacity_bytes = None
        assert await dead.found(disk.after_power_loss(Fate.DROPPED)) == dead.acknowledged

    asyncio.run(scenario())
