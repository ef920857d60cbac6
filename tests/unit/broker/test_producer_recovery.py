"""Producer snapshots byte by byte: what is written, what older versions wrote, and what is none."""

import asyncio
from pathlib import Path

import pytest

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.log import producer_snapshots
from magnetar.broker.log.deduplication import INACTIVITY_MS, Deduplication
from magnetar.broker.log.model import AbortedRange
from magnetar.broker.log.producer_recovery import ProducerMemory, restore
from magnetar.broker.log.producer_snapshots import Snapshot
from magnetar.broker.log.producer_state import ProducerStates
from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.metadata.store import VALUE_BYTES_MAX

from .pulsar_entries import sent
from .test_producer_state import Bench, settle
from .test_topics import World

GOLDEN = Path(__file__).parent / "golden"
NOW_MS = 1_700_000_000_000


def memory() -> ProducerMemory:
    producers, transactions, deduplication = ProducerStates(), TransactionIndex(), Deduplication()
    producers.add(7, 1, 0, 0, 5, NOW_MS)
    producers.add(7, 1, 5, 5, 5, NOW_MS + 1)
    producers.add(8, 0, 3, 10, 1, NOW_MS + 2)
    transactions.began(8, 10)
    transactions.ended(8, 11, committed=False)
    producers.marked(8, 0)
    transactions.began(7, 5)
    deduplication.add(sent("first", 4, 3), 12, 0, NOW_MS + 3)
    deduplication.add(sent("žádný", 0), 13, 0, NOW_MS + 4)
    return ProducerMemory(producers, transactions, deduplication)


def no_log(high_watermark: int = 20):  # type: ignore[no-untyped-def]
    log = Bench().partition.log
    log.high_watermark = high_watermark
    return log


def golden(version: int) -> dict[str, bytes]:
    """The values of a snapshot by suffix.  From 4 on the version is that of the producers' part of it and one more."""
    stored = {"": (GOLDEN / f"producers-v{version}.bin").read_bytes()}
    if version >= 3:
        stored["/aborted-00000000"] = (GOLDEN / f"producers-v{version}-aborted.bin").read_bytes()
    return stored


def test_the_bytes_of_a_snapshot() -> None:
    assert producer_snapshots.encode(memory().encode(14)) == golden(5)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_snapshots_of_every_version_are_read(version: int) -> None:
    stored = golden(version)
    found = restore(no_log(), stored, deduplicates=True)
    expected = memory()
    assert found.producers.next_offset == 14
    assert {pid: list(one.batches) for pid, one in found.producers.items()} == {
        pid: list(one.batches) for pid, one in expected.producers.items()
    }
    assert {pid for pid, one in found.producers.items() if one.is_marked} == ({8} if version >= 4 else set())
    assert found.transactions.first_offset(7) == 5
    assert found.transactions.aborted_between(0, 20) == ([AbortedRange(8, 10, 11)] if version >= 3 else [])
    assert found.deduplication is not None
    if version == 1:
        assert found.deduplication.unread_end == 14, "it says nothing of Pulsar's producers"
        return
    names = ("first", "žádný", "nobody")
    assert [found.deduplication.last_sequence_id(name, 20) for name in names] == [6, 0, -1]


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_a_snapshot_that_is_cut_short_is_refused(version: int) -> None:
    stored = golden(version)
    for suffix, value in stored.items():
        for size in range(len(value)):
            with pytest.raises(EntryCorrupt):
                restore(no_log(), stored | {suffix: value[:size]}, deduplicates=True)
        with pytest.raises(EntryCorrupt):
            restore(no_log(), stored | {suffix: b"\x09" + value[1:]}, deduplicates=True)


def test_every_flipped_bit_and_every_missing_value_of_a_snapshot_is_found() -> None:
    stored = golden(5)
    for suffix, value in stored.items():
        for bit in range(8 * len(value)):
            flipped = bytearray(value)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(EntryCorrupt):
                restore(no_log(), stored | {suffix: bytes(flipped)}, deduplicates=True)
        with pytest.raises(EntryCorrupt):
            restore(no_log(), {one: kept for one, kept in stored.items() if one != suffix}, deduplicates=True)


def test_a_snapshot_of_what_the_log_does_not_have_says_nothing() -> None:
    stored = golden(5)
    found = restore(no_log(high_watermark=13), stored, deduplicates=True)
    assert (len(found.producers), found.producers.next_offset) == (0, 0)
    assert found.deduplication is not None
    assert (len(found.deduplication), found.deduplication.unread_end) == (0, 0), "the whole log is replayed"


def versioned(body: bytes, version: int) -> dict[str, bytes]:
    """The values of a snapshot whose parts are `body`, as if the build of this version of them had made it."""
    return producer_snapshots.encode(Snapshot(bytes([version]) + body[1:], {}))


@pytest.mark.parametrize(("version", "unread_end"), [(2, 14), (3, 14), (4, 0)])
def test_only_a_new_snapshot_without_producers_says_that_there_are_none(
    version: int, unread_end: int
) -> None:
    known = ProducerMemory(ProducerStates(), TransactionIndex(), Deduplication())
    found = restore(no_log(), versioned(known.encode(14).body, version), deduplicates=True).deduplication
    assert found is not None
    assert found.unread_end == unread_end


@pytest.mark.parametrize("deduplication", [None, Deduplication(9)])
def test_a_snapshot_from_when_producers_were_not_known_says_so(deduplication: Deduplication | None) -> None:
    memory = ProducerMemory(ProducerStates(), TransactionIndex(), deduplication)
    found = restore(no_log(), producer_snapshots.encode(memory.encode(14)), deduplicates=True).deduplication
    assert found is not None
    assert found.unread_end == 14


def test_without_deduplication_nothing_is_remembered_of_pulsar_s_producers() -> None:
    stored = golden(5)
    assert restore(no_log(), stored, deduplicates=False).deduplication is None


def test_a_snapshot_fits_the_metadata_store_and_has_those_that_published_last() -> None:
    known = memory()
    assert known.deduplication is not None
    for number in range(40_000):
        known.deduplication.add(sent(f"producer-{number:06}", 1), number, 0, NOW_MS + 10 + number)
    whole = known.encode(50_000)
    assert len(whole.body) <= VALUE_BYTES_MAX
    snapshot = producer_snapshots.encode(whole)
    found = restore(no_log(50_000), snapshot, deduplicates=True).deduplication
    assert found is not None
    assert 20_000 < len(found) < 40_000
    assert found.last_sequence_id("producer-039999", 50_000) == 1
    assert found.last_sequence_id("first", 50_000) == -1


def test_producers_are_forgotten_six_hours_after_they_were_last_connected() -> None:
    hour_ms = 60 * 60 * 1000
    assert 6 * hour_ms == INACTIVITY_MS
    known = Deduplication()
    known.add(sent("gone", 1), 0, 0, NOW_MS)
    known.add(sent("idle", 1), 1, 0, NOW_MS)

    def after(hours: float, connected: set[str]) -> list[int]:
        known.expire(NOW_MS + round(hours * hour_ms), connected)
        return [known.last_sequence_id(name, 9) for name in ("gone", "idle")]

    assert after(5.9, {"idle", "never published"}) == [1, 1]
    assert after(6.1, {"idle"}) == [-1, 1]
    assert after(12, set()) == [-1, 1]
    assert after(12.2, set()) == [-1, -1]


def test_a_policy_turns_deduplication_on_and_off_and_is_known_before_the_log_is_replayed() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        name = topic.name
        assert topic.partition(0).deduplication is None
        await broker.namespaces.change(name.namespace_name, lambda _: {"deduplicationEnabled": True})
        view = sent(sequence_id=3)
        topic.partition(0).publish(view.data, view, NOW_MS, lambda error: None)
        await settle()
        await broker.stop()
        broker = await world.crash()
        partition = broker.topics.get(name).partition(0)
        assert partition.last_sequence_id("p") == 3
        await broker.namespaces.change_topic(name, lambda _: {"deduplicationEnabled": False})
        assert partition.deduplication is None
        await broker.stop()

    asyncio.run(scenario())
