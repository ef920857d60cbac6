"""A partition with entries of both protocols on a real store, whose power goes at any moment.

After each loss: what was acknowledged is there, byte for byte and at the position that its producer got; of what was on
its way there is a prefix; every position leads where a walk over all entries says; and deduplication knows what is
there, no more and no less.

The steps follow from the seed; how far the store's threads have come when the power goes is the machine's.
"""

import asyncio
import random
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.entry_format import decode_entry
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId, LedgerId
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk, Fate
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.kafka.records import end_transaction_marker
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata
from tests.examples import seeds

DATA = Path("/data")
NAME = "public/default/persistent/t-partition-0@0"
NOW_MS = 1_700_000_000_000
BROKERS_OWN = 16  # bytes of a record batch that hold its offset, its length and the leader epoch
TINY = LocalStoreSettings(
    journal_file_bytes=64 * 1024,
    journal_file_count=3,
    round_bytes_max=16 * 1024,
    flush_bytes=8 * 1024,
    read_step_bytes=16 * 1024,
    checkpoint_entries_max=60,
)


class Sent(NamedTuple):
    kind: EntryKind
    base: int
    sequence_id: int  # of a Pulsar producer, -1 for Kafka
    payload: bytes
    entry: Entry | None  # Kafka's appends do not show theirs

    @property
    def key(self) -> tuple[EntryKind, int, bytes]:
        return self.kind, self.base, self.payload


def position(entry: Entry) -> tuple[int, int]:
    return entry.ledger_id, entry.entry_id


class MixedLog:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = CrashDisk()
        self.metadata = MemoryMetadataStore()
        self.acknowledged: list[Sent] = []
        self.flying: list[Sent] = []
        self.told: dict[int, tuple[int, int]] = {}  # by base offset: the position that its producer got
        self.next_sequence_id = 0

    async def start(self) -> None:
        self.store = await LocalLedgerStore.start(DATA, settings=TINY, clock=FakeClock(), disk=self.disk)
        environment = LedgerEnvironment(
            self.store, self.metadata, EntryCache(4096), FakeClock(), decode_entry
        )
        self.environment = environment
        await environment.load()
        topic: Any = SimpleNamespace(config=TopicDefaults({}).config({}), name="t")
        open_log = partial(ManagedLedger, NAME, environment, LedgerLimits(entry_count_max=7))
        self.partition = Partition(topic, 0, [1], open_log)
        stored = await self.metadata.get(METADATA_ROOT + NAME)
        if stored is not None:
            self.partition.log.restore(stored.value, stored.version, environment.stats)
        self.partition.deduplicate(True)
        await self.partition.recover_producers({}, NOW_MS)

    async def stop(self) -> None:
        for task in list(self.environment.tasks):
            task.cancel()
        await asyncio.gather(*self.environment.tasks, return_exceptions=True)
        await self.store.close()

    def answered(self, sent: Sent, error: Exception | None) -> None:
        if error is None:
            assert self.flying.pop(0) is sent
            self.acknowledged.append(sent)
            if sent.entry is not None:
                self.told[sent.base] = position(sent.entry)

    async def send(self) -> None:
        """Entries of one or the other protocol; the test does not wait for them."""
        for _ in range(self.chance.randint(1, 25)):
            base = self.partition.log.next_offset
            sent: list[Sent] = []

            def done(error: Exception | None, sent: list[Sent] = sent) -> None:
                self.answered(sent[0], error)

            if self.chance.random() < 0.5:
                metadata = MessageMetadata(
                    producer_name="p", sequence_id=self.next_sequence_id, publish_time=NOW_MS
                )
                payload = bytes(self.chance.choice([0, 10, 300, 3000]))
                view = read_entry(memoryview(frame_entry(metadata, payload)), verify=True)
                entry = self.partition.publish(view.data, view, NOW_MS, done)
                assert entry.base_offset == base
                sent.append(Sent(EntryKind.PULSAR, base, self.next_sequence_id, bytes(view.data), entry))
                self.next_sequence_id += 1
            else:  # a marker: the smallest batch, and one that the partition makes by itself
                self.partition.transactions.began(base, base)
                self.partition.end_transaction(base, 0, True, 0, done)
                batch = end_transaction_marker(base, 0, 0, self.partition.log.now_ms(), commit=True)
                sent.append(Sent(EntryKind.KAFKA, base, -1, bytes(batch[BROKERS_OWN:]), None))
            self.flying.append(sent[0])
            await asyncio.sleep(0)

    async def wait(self) -> None:
        assert await self.partition.durable_waits.until(self.partition.log.next_offset)
        assert not self.flying

    async def checkpoint(self) -> None:
        await self.store.checkpoint()

    async def lose_power(self) -> None:
        acknowledged = len(self.acknowledged)
        left = self.disk.after_power_loss(self.chance.choice(list(Fate)), self.chance.randrange(1000))
        before = self.acknowledged + self.flying
        await self.stop()
        self.disk = left
        await self.start()
        entries = await self.read_all()
        found = [(e.kind, e.base_offset, self.comparable(e)) for e in entries]
        assert len(found) >= acknowledged
        assert found == [sent.key for sent in before[: len(found)]]
        assert self.partition.log.next_offset == (entries[-1].last_offset + 1 if entries else 0)
        for entry in entries[:acknowledged]:
            assert self.told.get(entry.base_offset, position(entry)) == position(entry)
        self.acknowledged = before[: len(found)]
        self.flying = []
        highest = max((sent.sequence_id for sent in self.acknowledged), default=-1)
        assert self.partition.last_sequence_id("p") == highest
        self.next_sequence_id = highest + 1

    @staticmethod
    def comparable(entry: Entry) -> bytes:
        return bytes(entry.payload if entry.kind is EntryKind.PULSAR else entry.payload[BROKERS_OWN:])

    async def read_all(self) -> list[Entry]:
        log = self.partition.log
        entries: list[Entry] = []
        while (offset := entries[-1].last_offset + 1 if entries else 0) < log.high_watermark:
            entries += await log.read(offset, 20_000)
        return entries

    async def locate(self) -> None:
        log = self.partition.log
        entries = await self.read_all()
        if not entries:
            return
        ledger_id, entry_id = position(self.chance.choice(entries))
        for _ in range(10):
            wanted = (ledger_id + self.chance.randint(-2, 2), entry_id + self.chance.randint(-2, 4))
            expected = next((entry for entry in entries if position(entry) >= wanted), None)
            found = await log.locate(LedgerId(wanted[0]), EntryId(wanted[1]))
            if expected is not None:
                assert found is not None
                assert (position(found), found.base_offset) == (position(expected), expected.base_offset)
            elif found is not None:  # durable since the walk
                assert position(found) >= wanted
                assert found.base_offset > entries[-1].last_offset


@pytest.mark.parametrize("seed", seeds(3, 30))
def test_nothing_acknowledged_is_lost_and_positions_stay(seed: int) -> None:
    async def scenario() -> None:
        log = MixedLog(seed)
        await log.start()
        steps = [log.send, log.send, log.send, log.wait, log.checkpoint, log.locate, log.lose_power]
        for _ in range(60):
            await log.chance.choice(steps)()
        await log.wait()
        await log.lose_power()
        assert log.acknowledged
        await log.stop()

    asyncio.run(scenario())
