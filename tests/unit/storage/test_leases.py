"""A leased segment's file outlives its ledger, the process too, and goes when the last lease on it has ended."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from crc32c import crc32c

from magnetar.base.errors import LeaseNotFound, LedgerNotFound, TooManyLeases
from magnetar.storage.local import leases
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import LedgerId
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk, Fate

from .conftest import SMALL
from .helpers import fill, in_a_loop, pattern

DATA = Path("/data")


class Rig:
    """A store whose time and disk are the test's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.disk = CrashDisk()

    @asynccontextmanager
    async def store(self) -> AsyncIterator[LocalLedgerStore]:
        store = await LocalLedgerStore.start(DATA, settings=SMALL, clock=self.clock, disk=self.disk)
        try:
            yield store
        finally:
            await store.close()

    def killed(self) -> None:
        """The process is gone, what it wrote is not: the next start finds the disk so."""
        self.disk = self.disk.after_power_loss(Fate.KEPT)

    def files(self) -> list[str]:
        return self.disk.names(DATA / "segments")

    async def settled(self, store: LocalLedgerStore) -> list[str]:
        """The files when the write-behind has done all of its work."""
        await store.behind.worker.run(int)
        return self.files()


async def filled(store: LocalLedgerStore) -> LedgerId:
    ledger = await store.create()
    await fill(ledger, [pattern(n, 5000) for n in range(20)])
    await ledger.seal()
    await store.checkpoint()
    return ledger.ledger_id


async def leased(store: LocalLedgerStore, length_s: int) -> tuple[LedgerId, str]:
    """A ledger that is sealed, and a lease on it that is not on disk yet."""
    ledger_id = await filled(store)
    lease = store.leases.open(length_s)
    store.leases.add(lease, [ledger_id])
    return ledger_id, lease


@pytest.fixture
def rig() -> Rig:
    return Rig()


@in_a_loop
async def test_a_deleted_ledger_keeps_its_file_until_its_last_lease_ends(rig: Rig) -> None:
    async with rig.store() as store:
        ledger_id = await filled(store)
        one, other = store.leases.open(600), store.leases.open(600)
        for lease in (one, other):
            store.leases.add(lease, [ledger_id])
            await store.leases.save(lease)
        await store.delete(ledger_id)
        await rig.settled(store)
        with pytest.raises(LedgerNotFound):
            await store.open(ledger_id)
        assert len(rig.files()) == 1
        await store.leases.end(one)
        assert len(await rig.settled(store)) == 1
        await store.leases.end(other)
        assert await rig.settled(store) == []
        assert rig.disk.names(DATA / "leases") == []


@in_a_loop
async def test_a_lease_on_a_ledger_that_lives_removes_nothing_when_it_ends(rig: Rig) -> None:
    async with rig.store() as store:
        ledger_id, lease = await leased(store, 600)
        await store.leases.end(lease)
        assert len(await rig.settled(store)) == 1
        await store.delete(ledger_id)
        assert await rig.settled(store) == []


@in_a_loop
async def test_a_lease_that_is_dropped_has_ended_at_once(rig: Rig) -> None:
    async with rig.store() as store:
        ledger_id, lease = await leased(store, 100)
        other = store.leases.open(100)
        await store.leases.save(lease)
        await store.delete(ledger_id)
        assert store.leases.ids() == {lease, other}
        store.leases.drop(lease)
        assert store.leases.ids() == {other}
        store.leases.drop(lease)  # it has ended already
        assert await rig.settled(store) == []
        assert rig.disk.names(DATA / "leases") == []


@in_a_loop
async def test_a_lease_lapses_unless_it_is_renewed(rig: Rig) -> None:
    async with rig.store() as store:
        ledger_id, lease = await leased(store, 100)
        await store.leases.save(lease)
        await store.delete(ledger_id)
        rig.clock.advance(99)
        await store.leases.renew(lease, None)
        rig.clock.advance(99)
        assert len(await rig.settled(store)) == 1
        rig.clock.advance(1.1)
        assert await rig.settled(store) == []
        assert rig.disk.names(DATA / "leases") == []
        with pytest.raises(LeaseNotFound):
            await store.leases.renew(lease, None)
        with pytest.raises(LeaseNotFound):
            store.leases.add(lease, [ledger_id])


@pytest.mark.parametrize("deleted", ["before", "after"])
@in_a_loop
async def test_a_start_after_a_kill_keeps_what_is_leased_for_the_leases_whole_length(
    rig: Rig, deleted: str
) -> None:
    async with rig.store() as store:
        ledger_id, lease = await leased(store, 100)
        unleased = await filled(store)
        await store.leases.save(lease)
        await store.leases.renew(lease, 200)
        if deleted == "before":
            await store.delete(ledger_id)
        await store.delete(unleased)
        rig.killed()
    rig.clock.advance(1000)  # a long time until the operator starts it again
    async with rig.store() as store:
        if deleted == "after":
            await store.delete(ledger_id)
        assert await rig.settled(store) == [f"{ledger_id:016x}.segment"]
        rig.clock.advance(199)
        await store.leases.renew(lease, None)
        rig.clock.advance(199)
        assert len(await rig.settled(store)) == 1
        rig.clock.advance(2)
        assert await rig.settled(store) == []
    async with rig.store() as store:
        assert len(store.leases) == 0


@in_a_loop
async def test_a_lease_that_is_shortened_lapses_earlier(rig: Rig) -> None:
    async with rig.store() as store:
        ledger_id, lease = await leased(store, 600)
        other = store.leases.open(100)
        await store.delete(ledger_id)
        await store.leases.renew(lease, 10)
        rig.clock.advance(9)
        assert len(await rig.settled(store)) == 1
        rig.clock.advance(1.1)
        assert await rig.settled(store) == []
        await store.leases.renew(other, None)


@in_a_loop
async def test_a_short_lease_that_a_start_finds_gives_its_holder_a_minute(rig: Rig) -> None:
    async with rig.store() as store:
        ledger_id, lease = await leased(store, 1)
        await store.leases.save(lease)
        await store.delete(ledger_id)
    async with rig.store() as store:
        rig.clock.advance(59)
        await store.leases.renew(lease, None)
        assert len(rig.files()) == 1
        rig.clock.advance(1.1)
        assert await rig.settled(store) == []


@in_a_loop
async def test_a_full_disk_keeps_no_client_from_reading(rig: Rig) -> None:
    async with rig.store() as store:
        ledger_id, lease = await leased(store, 100)
        rig.disk.fail_path = "leases"
        rig.disk.calls.clear()
        rig.disk.failures = {"write": {1: errno.ENOSPC}}
        await store.leases.save(lease)
        assert rig.disk.calls["write"] == 1
        await store.delete(ledger_id)
        assert len(await rig.settled(store)) == 1
        await store.leases.end(lease)
        assert await rig.settled(store) == []
    async with rig.store():
        assert rig.disk.names(DATA / "leases") == []


@in_a_loop
async def test_a_damaged_lease_is_given_up_at_the_start(rig: Rig) -> None:
    async with rig.store() as store:
        lease = store.leases.open(100)
        store.leases.add(lease, [LedgerId(1), LedgerId(2)])
        await store.leases.save(lease)
    file = rig.disk.open(DATA / "leases" / lease)
    file.write(b"\xff", 20)
    file.close()
    rig.disk.open(DATA / "leases" / "something.new", create=True).close()
    async with rig.store() as store:
        assert len(store.leases) == 0
        assert rig.disk.names(DATA / "leases") == []


@in_a_loop
async def test_leases_are_bounded_in_number_size_and_length(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASES_MAX", 3)
    monkeypatch.setattr(leases, "LEDGERS_MAX", 5)
    monkeypatch.setattr(leases, "LEDGERS_TOTAL_MAX", 8)

    async with rig.store() as store:
        given = [store.leases.open(10) for _ in range(3)]
        with pytest.raises(TooManyLeases):
            store.leases.open(10)
        store.leases.add(given[0], map(LedgerId, range(5)))
        with pytest.raises(TooManyLeases):
            store.leases.add(given[0], [LedgerId(5)])
        store.leases.add(given[0], [LedgerId(4)])  # it has that one
        store.leases.add(given[1], [LedgerId(1), LedgerId(2)])
        with pytest.raises(TooManyLeases, match="7 segments"):
            store.leases.add(given[2], [LedgerId(1), LedgerId(9)])
        for wrong in (0, -1, 3601):
            with pytest.raises(ValueError, match="from 1 to 3600"):
                await store.leases.renew(given[0], wrong)
        await store.leases.end(given[0])
        store.leases.open(10)


def test_a_lease_file_is_read_as_it_was_written() -> None:
    ledgers = {1, 7, 1 << 40}
    found = leases.decode("a" * 32, leases.encode(600, ledgers))
    assert found is not None
    assert (found.length_s, found.ledgers) == (600, ledgers)
    content = leases.encode(600, ledgers)
    for cut in range(len(content)):
        assert leases.decode("a" * 32, content[:cut]) is None
    for place in range(len(content)):
        wrong = bytearray(content)
        wrong[place] ^= 1
        assert leases.decode("a" * 32, bytes(wrong)) is None


@in_a_loop
async def test_a_lease_ends_after_a_day_however_often_it_is_renewed(rig: Rig) -> None:
    """A lease that a reader renewed again and again kept deleted data on the disk for ever."""
    async with rig.store() as store:
        ledger_id, lease = await leased(store, 3600)
        await store.leases.save(lease)
        await store.delete(ledger_id)
        await rig.settled(store)
        assert (store.leases.waiting_count, store.leases.waiting_bytes > 5000 * 20) == (1, True)
        for _ in range(26):
            rig.clock.advance(1800)
            await store.leases.renew(lease, None)
        assert len(await rig.settled(store)) == 1
        rig.killed()
    rig.clock.advance(99)
    async with rig.store() as store:  # a start does not begin a new life
        assert store.leases.waiting_bytes > 5000 * 20
        for _ in range(21):
            rig.clock.advance(1800)
            await store.leases.renew(lease, None)
        assert len(await rig.settled(store)) == 1
        rig.clock.advance(1800)
        with pytest.raises(LeaseNotFound):
            await store.leases.renew(lease, None)
        assert await rig.settled(store) == []
        assert (store.leases.waiting_count, store.leases.waiting_bytes) == (0, 0)
        assert rig.disk.names(DATA / "leases") == []


def test_a_lease_file_of_the_first_version_is_read() -> None:
    body = (
        b"MGLEASE1"
        + (600).to_bytes(4, "big")
        + (2).to_bytes(4, "big")
        + bytes(7)
        + b"\x05"
        + bytes(7)
        + b"\x09"
    )
    found = leases.decode("a" * 32, body + crc32c(body).to_bytes(4, "big"))
    assert found is not None
    assert (found.length_s, found.ledgers, found.held_s) == (600, {5, 9}, 0)
    again = leases.decode("a" * 32, leases.encode(600, [5, 9], 77))
    assert again is not None
    assert (again.length_s, again.ledgers, again.held_s) == (600, {5, 9}, 77)
