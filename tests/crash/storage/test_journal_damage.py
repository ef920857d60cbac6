"""Damage in the journal is distinguished from a torn tail, and named.

The rule that is tested: one flipped bit in a needed round makes the store refuse to start, with the file, the byte and
the round named, and a repair turns it back.  A flipped bit anywhere else is harmless: every acknowledged entry is
there.  More wrong bits are found as well, except in the last round that was written: there they look the same as a
write that the stop has torn, and cost this round's entries, and none else.
"""

import asyncio
import random
from dataclasses import replace

import pytest

from magnetar.base.errors import StorageError
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.format import ROUND_BYTES, round_header
from magnetar.storage.local.journal import MARK_S
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk, Fate
from tests.crash.storage.killed_store import (
    DATA,
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


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("seed", seeds(1, 12))
def test_a_flipped_bit_in_any_round_is_named_and_turned_back(seed: int, failing: bool) -> None:
    async def scenario() -> None:
        dead = await killed(seed, failing=failing)
        assert await dead.found(dead.disk()) == dead.acknowledged
        for path, position, end, sequence in dead.rounds:
            for place in {position, position + 20, position + ROUND_BYTES, end - 1}:
                flipped = dead.flipped(path, place)
                await dead.is_refused(flipped, path, position, sequence)
                repaired(flipped)
                assert await dead.found(flipped) == dead.acknowledged

    asyncio.run(scenario())


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("seed", seeds(1, 12))
def test_more_wrong_bits_are_named_in_any_round_but_the_last(seed: int, failing: bool) -> None:
    async def scenario() -> None:
        dead = await killed(seed, failing=failing)
        for path, position, end, sequence in dead.rounds[:-1]:
            for place in {position, position + ROUND_BYTES, end - 1}:
                await dead.is_refused(dead.spoiled(path, place), path, position, sequence)
        path, position, end, _ = dead.rounds[-1]
        for place in (position, end - 1):
            found = await dead.found(dead.spoiled(path, place))
            assert all(found.get(ledger, 0) <= count for ledger, count in dead.acknowledged.items())

    asyncio.run(scenario())


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("seed", seeds(3, 30))
def test_random_flips_are_named_or_harmless(seed: int, failing: bool) -> None:
    async def scenario() -> None:
        dead = await killed(seed + 100, failing=failing)
        chance = random.Random(seed)
        files = [path for path in dead.disk().paths() if path.suffix == ".journal"]
        for _ in range(25):
            path = chance.choice(files)
            place = chance.randrange(TINY.journal_file_bytes)
            hit = next(
                (one for one in dead.rounds if one[0] == path and one[1] <= place < one[2]),
                None,
            )
            disk = dead.flipped(path, place, chance.randrange(8))
            if hit is None:
                assert await dead.found(disk) == dead.acknowledged
            else:
                await dead.is_refused(disk, path, hit[1], hit[3])

    asyncio.run(scenario())


NO_CHECKPOINT = replace(TINY, journal_file_bytes=256 * KIB, checkpoint_entries_max=10_000)
NO_CHECKPOINT_SMALL = replace(TINY, checkpoint_entries_max=10_000, round_bytes_max=32 * KIB)


def test_the_damage_of_the_attack_is_named_with_what_is_whole_behind_it() -> None:
    """One flipped bit in the journal of 100 acknowledged records left 19 of them, or none, without a word."""

    async def scenario() -> None:
        dead = await one_by_one()
        assert dead.checkpoint == 0
        for number in (0, 19):
            path, position, _, sequence = dead.rounds[number]
            behind = len(dead.rounds) - number - 1
            with pytest.raises(StorageError) as refused:
                await start(dead.spoiled(path, position + 30))
            assert str(refused.value) == (
                f"the journal is damaged: {path.name} at byte {position}, round {sequence}; behind it {behind} rounds"
                f" with {behind} records are whole, so it is no torn tail; magnetar doctor --data-dir /data shows what"
                " would be kept"
            )

    asyncio.run(scenario())


def test_a_wiped_block_is_named_wherever_it_is() -> None:
    async def scenario() -> None:
        dead = await one_by_one()
        for path, position, _, sequence in dead.rounds[:-1]:
            disk = dead.disk()
            disk.content(path)[position : position + BLOCK_BYTES] = bytes(BLOCK_BYTES)
            await dead.is_refused(disk, path, position, sequence)

    asyncio.run(scenario())


def test_a_missing_file_is_named() -> None:
    async def scenario() -> None:
        dead = await one_by_one()
        used = list(dict.fromkeys(path for path, *_ in dead.rounds))
        assert len(used) > 1
        for path in used[:-1]:
            disk = dead.disk()
            disk.remove(path)
            with pytest.raises(StorageError, match=r"the journal is damaged: round.* missing"):
                await start(disk)

    asyncio.run(scenario())


def test_the_newest_file_is_missed_once_a_checkpoint_has_noted_it() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        await load.create()
        await load.append(3)
        await store.checkpoint()
        await load.append(3)
        dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
        await store.close()
        for wipe in (True, False):
            left = dead.disk()
            path = dead.rounds[-1][0]
            if wipe:
                left.content(path)[:] = bytes(TINY.journal_file_bytes)
            else:
                left.remove(path)
            with pytest.raises(StorageError, match="the journal is damaged: the file in use when round"):
                await start(left)

    asyncio.run(scenario())


def test_a_file_that_was_cut_is_named() -> None:
    async def scenario() -> None:
        dead = await one_by_one()
        disk = dead.disk()
        del disk.content(dead.rounds[0][0])[10_000:]
        with pytest.raises(StorageError, match=r"damaged: 0000\.journal has 10000 bytes"):
            await start(disk)

    asyncio.run(scenario())


def test_damage_in_what_the_checkpoint_covers_is_harmless() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk, NO_CHECKPOINT)
        load = Load(store)
        await load.create()
        for _ in range(5):
            await load.append(1)
        await store.checkpoint()
        for _ in range(5):
            await load.append(1)
        dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
        await store.close()
        assert (len(dead.covered), len(dead.rounds)) == (6, 5)
        for path, position, end, _ in dead.covered:
            for place in (position, end - 1):
                assert await dead.found(dead.flipped(path, place)) == {1: 10}

    asyncio.run(scenario())


def test_damage_to_the_last_round_is_found_behind_a_stop_without_checkpoint() -> None:
    """The store was closed with a full disk: an empty round behind the last one says that it was whole."""

    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        await load.create()
        await load.append(3)
        disk.capacity_bytes = disk.bytes_used()
        await store.close()
        disk.capacity_bytes = None
        dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
        path, position, end, sequence = dead.rounds[-2]
        await dead.is_refused(dead.flipped(path, end - 1), path, position, sequence)
        assert await dead.found(dead.flipped(dead.rounds[-1][0], dead.rounds[-1][1])) == {1: 3}
        assert await dead.found(dead.disk()) == {1: 3}

    asyncio.run(scenario())


def test_damage_to_the_last_round_is_found_once_nothing_has_followed_it_for_a_second() -> None:
    """An idle server writes an empty round behind it, once."""

    async def scenario() -> None:
        disk, clock = CrashDisk(), FakeClock()
        store = await LocalLedgerStore.start(DATA, settings=TINY, clock=clock, disk=disk)
        load = Load(store)
        await load.create()
        clock.advance(MARK_S / 2)
        await load.append(3)
        before = store.durable_sequence
        clock.advance(MARK_S / 2)  # not idle: something was written since the timer was set
        assert store.journal._wants_mark is False
        clock.advance(MARK_S)
        while store.durable_sequence == before:  # noqa: ASYNC110 - the journal sets no event for it
            await asyncio.sleep(0)
        for _ in range(5):
            clock.advance(MARK_S)
        await load.append(0)
        assert store.durable_sequence == before + 1
        await store.checkpoint()
        await load.append(3)
        clock.advance(2 * MARK_S)
        while store.durable_sequence == before + 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        dead = Killed(disk.after_power_loss(Fate.DROPPED), load.acknowledged)
        await store.close()
        assert [sequence for *_, sequence in dead.rounds] == [before + 2, before + 3]
        path, position, end, sequence = dead.rounds[-2]
        await dead.is_refused(dead.flipped(path, end - 1), path, position, sequence)
        assert await dead.found(dead.flipped(path, dead.rounds[-1][1])) == {1: 6}
        assert await dead.found(dead.disk()) == {1: 6}

    asyncio.run(scenario())


def test_the_round_behind_the_last_one_does_not_keep_its_file_from_being_used_again() -> None:
    async def scenario() -> None:
        disk, clock = CrashDisk(), FakeClock()
        small = replace(TINY, journal_file_count=2, round_bytes_max=8 * KIB)
        store = await LocalLedgerStore.start(DATA, settings=small, clock=clock, disk=disk)
        load = Load(store)
        await load.create()
        for _ in range(60):
            await load.append(1)
            before = store.durable_sequence
            clock.advance(2 * MARK_S)
            room = store.journal._ring.current
            if room is not None and room.position < room.size:
                while store.durable_sequence == before:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0)
            await store.checkpoint()
        assert load.acknowledged == {1: 60}
        await store.close()

    asyncio.run(scenario())


def test_after_a_clean_stop_the_journal_is_not_needed() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        await load.create()
        for _ in range(30):
            await load.append(1)
        await store.close()
        dead = Killed(disk, load.acknowledged)
        assert dead.rounds == []
        for path in dead.disk().paths():
            if path.suffix == ".journal":
                for place in range(0, TINY.journal_file_bytes, 4096):
                    assert await dead.found(dead.flipped(path, place + 30)) == {1: 30}

    asyncio.run(scenario())


def test_a_header_inside_of_an_entry_proves_nothing() -> None:
    """A client writes what looks like the rounds to come, and the write that carries it is torn."""

    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        ledger = await store.create()
        journal = next(path for path in disk.paths() if path.name == "0000.journal")
        real = bytes(disk.content(journal)[:ROUND_BYTES])
        forged = b"".join(
            round_header(1, sequence, 0, 0, 0, salt, 0).ljust(BLOCK_BYTES // 2, b"\0")
            for sequence in (3, 4, 9)
            for salt in (0, 1)
        )
        assert forged[:8] == real[:8]
        answered = asyncio.get_running_loop().create_future()
        body = bytes(BLOCK_BYTES - ROUND_BYTES - 40) + forged
        ledger.append([body], len(body), 0, 0, answered.set_result)
        await answered
        left = disk.after_power_loss(Fate.DROPPED)
        await store.close()
        left.content(journal)[BLOCK_BYTES : 2 * BLOCK_BYTES] = bytes(BLOCK_BYTES)
        store = await start(left)
        assert [stat.entry_count for stat in await store.list_ledgers()] == [0]
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "file_bytes", [256 * KIB, 32 * KIB]
)  # what is behind the hole is in the same file, or not
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_without_syncing_a_hole_ends_the_journal_and_is_told(
    file_bytes: int, has_checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A loss of power may take any write that was not synced: that is no damage, and what is in front of it counts."""

    async def scenario() -> None:
        unsynced = replace(NO_CHECKPOINT, journal_sync_data=False, journal_file_bytes=file_bytes)
        disk = CrashDisk()
        store = await start(disk, unsynced)
        load = Load(store)
        await load.create()
        for _ in range(10):
            await load.append(1)
        dead = Killed(disk.after_power_loss(Fate.KEPT), load.acknowledged)
        await store.close()
        path, position, _, sequence = dead.rounds[6]
        left = dead.spoiled(path, position)
        for _ in range(2):  # the second start finds the same: nothing was written in between
            caplog.clear()
            store = await start(left, unsynced)
            assert [stat.entry_count for stat in await store.list_ledgers()] == [5]
            told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
            assert len(told) == 1
            assert (
                f"round {sequence}; behind it 4 rounds with 4 records are whole, and are dropped" in told[0]
            )
            dropped, left = left, left.after_power_loss(Fate.KEPT)
            await store.close()
        store = await start(dropped.after_power_loss(Fate.KEPT), unsynced)
        if has_checkpoint:
            await store.checkpoint()
            assert not store.journal._ring.full, "what was dropped keeps files from being used again"
        load = Load(store)
        await load.create()
        await load.append(3)
        left = store.disk.after_power_loss(Fate.KEPT)  # type: ignore[attr-defined]
        await store.close()
        caplog.clear()
        store = await start(left, unsynced)
        assert [stat.entry_count for stat in await store.list_ledgers()] == [5, 3]
        await store.close()
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    asyncio.run(scenario())


def test_a_header_inside_of_the_first_entry_of_a_file_proves_nothing() -> None:
    """As above, but the write that is torn is the file's first one, so all of the file is searched."""

    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk, NO_CHECKPOINT_SMALL)
        load = Load(store)
        await load.create()
        while (current := store.journal._ring.current) is None or current.size - current.position > 16 * KIB:
            await load.append(1)
        acknowledged = load.acknowledged[1]
        forged = b"".join(
            round_header(epoch, 1000, 0, 0, 0, salt, 0).ljust(BLOCK_BYTES, b"\0")
            for epoch in (1, 2, 9)
            for salt in (0, 1)
        )
        answered = asyncio.get_running_loop().create_future()
        body = bytes(BLOCK_BYTES - ROUND_BYTES - 40) + forged
        load.ledgers[0].append([body], len(body), 10_000, 0, answered.set_result)
        await answered
        left = disk.after_power_loss(Fate.DROPPED)
        await store.close()
        torn = DATA / "journal" / "0001.journal"
        assert bytes(left.content(torn)[BLOCK_BYTES : BLOCK_BYTES + 4]) == b"MGJR"
        left.content(torn)[:BLOCK_BYTES] = bytes(BLOCK_BYTES)
        store = await start(left, NO_CHECKPOINT_SMALL)
        assert [stat.entry_count for stat in await store.list_ledgers()] == [acknowledged]
        await store.close()

    asyncio.run(scenario())


def test_files_of_another_size_are_not_missed_when_they_were_replaced() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        load = Load(store)
        await load.create()
        await load.append(3)
        await store.close()
        for _ in range(2):  # the second one is killed before it has written anything
            store = await start(disk, NO_CHECKPOINT)
            assert [stat.entry_count for stat in await store.list_ledgers()] == [3]
            left = disk.after_power_loss(Fate.DROPPED)
            await store.close()
            disk = left

    asyncio.run(scenario())
