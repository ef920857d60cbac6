"""A partition of a compacted topic that is written, compacted and killed, beside a list of what it must hold."""

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from magnetar.base.settings_compaction import CompactionSettings
from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.compaction.plan import plan
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.pulsar_transactions import transaction_of
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.entry_format import decode_entry
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.storage.store import EntryId, LedgerId
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.kafka.records import marker_commits, read_header
from magnetar.wire.pulsar.entry import read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType
from magnetar.wire.stored import origin_of

from .keyed import Pair, kafka_batch, pulsar_entry, records_of

NAME = "public/default/persistent/t-partition-0@0"
RETAIN_MS = 60_000


@dataclass
class Row:
    """A record that was produced.  `entry` is the one that it came in, by its first offset."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    entry: int
    aborted: bool = False
    gone: bool = False
    keep_until_ms: int = 0  # of a tombstone that was compacted


@dataclass
class CompactedLog:
    chance: random.Random
    store: Any = field(default_factory=MemoryLedgerStore)
    metadata: MemoryMetadataStore = field(default_factory=MemoryMetadataStore)
    clock: FakeClock = field(default_factory=FakeClock)
    config: dict[str, str] = field(default_factory=dict)
    entries_max: int = 5
    cache_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        self.rows: list[Row] = []
        self.positions: dict[int, tuple[int, int]] = {}  # by base offset
        self.epochs: list[tuple[int, int]] = []  # epoch, its first offset
        self.snapshot: dict[str, bytes] = {}
        self.sequences: dict[int, int] = {}
        self.last_run_ms = 0
        self._open()

    def _open(self) -> None:
        environment = LedgerEnvironment(
            self.store, self.metadata, EntryCache(self.cache_bytes), self.clock, decode_entry
        )
        self.environment = environment
        config = {"cleanup.policy": "compact", "delete.retention.ms": str(RETAIN_MS), **self.config}
        topic: Any = SimpleNamespace(
            config=TopicDefaults({}).config(config),
            name="t",
            is_deleted=False,
            is_in_transaction=lambda *which: True,
        )
        limits = LedgerLimits(entry_count_max=self.entries_max)
        self.partition = Partition(topic, 0, [1], partial(ManagedLedger, NAME, environment, limits))
        self.log = self.partition.log
        self.compactor = Compactor(self.clock, environment.tombstones, CompactionSettings())

    async def settle(self) -> None:
        for _ in range(80):
            await asyncio.sleep(0)

    # --- writing -----------------------------------------------------------------------------------------------------

    def pairs(self, count: int, *, with_keyless: bool = False) -> list[Pair]:
        chance = self.chance
        keys = [b"k%d" % number for number in range(6)]
        return [
            (
                None if with_keyless and chance.random() < 0.1 else chance.choice(keys),
                chance.choice([None, b"", b"v" * chance.randint(1, 300), b"%d" % chance.getrandbits(60)]),
            )
            for _ in range(count)
        ]

    async def send(
        self, pairs: list[Pair] | None = None, *, producer: int = -1, is_transactional: bool = False
    ) -> None:
        """A Kafka batch, which is durable when this returns; what is in it is left to chance unless `pairs` says it."""
        now_ms = self.clock.now_ms()
        if pairs is None:
            pairs = self.pairs(self.chance.randint(1, 6))
        times = [now_ms + self.chance.randint(-50, 50) for _ in pairs]
        who = (-1, -1, -1)
        if producer >= 0:
            who = (producer, 0, self.sequences.get(producer, 0))
            self.sequences[producer] = who[2] + len(pairs)
        codec = self.chance.randint(0, 4)
        batch = kafka_batch(pairs, times, codec=codec, producer=who, is_transactional=is_transactional)
        done = asyncio.get_running_loop().create_future()
        base = self.partition.append(batch, now_ms, lambda error: done.set_result(error)).base_offset
        self._note(base, pairs, times)
        assert await done is None
        await self._locate(base)

    async def publish(self, transaction: int | None = None) -> None:
        """What a Pulsar client sends: a batch, or one message."""
        chance, now_ms = self.chance, self.clock.now_ms()
        is_batch = chance.random() < 0.6
        pairs = self.pairs(chance.randint(1, 6) if is_batch else 1, with_keyless=True)
        codec = chance.choice(
            [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD, CompressionType.ZLIB]
        )
        view = pulsar_entry(pairs, now_ms, codec=codec, is_batch=is_batch, transaction=transaction)
        done = asyncio.get_running_loop().create_future()
        entry = self.partition.publish(
            view.data, view, now_ms, lambda error: done.set_result(error), transaction=transaction
        )
        self._note(entry.base_offset, pairs, [now_ms] * len(pairs))
        assert await done is None
        await self._locate(entry.base_offset)

    async def end(self, producer: int, *, commit: bool) -> None:
        base = self.log.next_offset
        first = self.partition.transactions.first_offset(producer)
        done = asyncio.get_running_loop().create_future()
        self.partition.end_transaction(producer, 0, commit, 0, lambda error: done.set_result(error))
        assert await done is None
        if first >= 0:
            await self._locate(base)
        for row in self.rows:
            if not commit and 0 <= first <= row.offset and self.senders.get(row.entry) == producer:
                row.aborted = True

    senders: dict[int, int] = field(default_factory=dict)  # by base offset: the producer of a transaction

    async def send_in_transaction(self, producer: int) -> None:
        """By a client of either protocol."""
        self.senders[self.log.next_offset] = producer
        if producer % 2:
            await self.publish(transaction=producer)
        else:
            await self.send(producer=producer, is_transactional=True)

    def _note(self, base: int, pairs: list[Pair], times: list[int]) -> None:
        for delta, ((key, value), time_ms) in enumerate(zip(pairs, times, strict=True)):
            self.rows.append(Row(base + delta, key, value, time_ms, base))

    async def _locate(self, base: int) -> None:
        entry = await self.log.entry_at(base)
        assert entry is not None
        assert entry.base_offset == base
        self.positions[base] = entry.ledger_id, entry.entry_id
        if not self.epochs or self.epochs[-1][0] != self.log.leader_epoch:
            self.epochs.append((self.log.leader_epoch, base))

    # --- what happens to it ------------------------------------------------------------------------------------------

    async def compact(self, end: int | None = None) -> bool:
        """Whether there was something to compact."""
        if self.chance.random() < 0.7:
            self.snapshot = self.partition.snapshot()
            self.partition.stored_snapshot.note(self.snapshot)
        wanted = plan(self.partition, self.clock.now_ms(), self.partition.recovers_from)
        if wanted is None:
            return False
        self.last_run_ms = now_ms = self.clock.now_ms()
        await self.compactor.run(self.partition, wanted, now_ms)
        await self.settle()
        assert self.log.cleaned <= self.partition.last_stable_offset
        self.compacted(wanted.begin, self.log.cleaned, now_ms)
        return True

    def compacted(self, begin: int, end: int, now_ms: int) -> None:
        """What a run that notes the keys from `begin` to `end` does to the list."""
        last: dict[bytes, int] = {}
        for row in self.rows:
            if begin <= row.offset < end and row.key is not None and not row.aborted:
                last[row.key] = row.offset
        for row in self.rows:
            if row.offset >= end or row.gone:
                continue
            if row.key is None:
                continue  # a Pulsar client's
            if row.aborted or row.offset < last.get(row.key, -1):
                row.gone = True
            elif row.value is None:
                if 0 < row.keep_until_ms <= now_ms:
                    row.gone = True
                row.keep_until_ms = row.keep_until_ms or now_ms + RETAIN_MS

    async def crash(self) -> None:
        cleaned = self.log.cleaned
        for task in list(self.environment.tasks):
            task.cancel()
        await asyncio.gather(*self.environment.tasks, return_exceptions=True)
        self.compactor.close()
        self.store = self.store.crash()
        self._open()
        await self.restore()
        assert self.log.cleaned >= cleaned, "what was looked at is not looked at again"

    async def restore(self) -> None:
        """As a start does: the chain, the producers, and ledgers that were given up."""
        stored = await self.metadata.get(METADATA_ROOT + NAME)
        if stored is not None:
            stats = {stat.ledger_id: stat for stat in await self.store.list_ledgers()}
            self.log.restore(stored.value, stored.version, stats)
        named = await self.environment.tombstones.load()
        self.environment.tombstones.carry_out(one for one in named if one not in self.log.stored_ids)
        await self.partition.recover_producers(self.snapshot, self.clock.now_ms())
        await self.settle()

    def memory(self) -> object:
        """What is known of producers and transactions, but for when they were last seen."""
        transactions = self.partition.transactions
        return (
            [one._replace(last_timestamp_ms=0) for one in self.partition.known_producers],
            transactions.aborted_between(0, self.log.high_watermark),
            transactions.last_stable_offset(self.log.high_watermark),
        )

    # --- what must be true -------------------------------------------------------------------------------------------

    async def entries(self) -> list[Entry]:
        found: list[Entry] = []
        offset = self.log.log_start
        while offset < self.log.high_watermark:
            some = await self.log.read(offset, self.chance.randint(1, 3000))
            assert some
            found += some
            offset = some[-1].last_offset + 1
        return found

    async def check(self) -> None:
        """Records, offsets, positions, epochs and times are what the list says, and no ledger is left over."""
        entries = await self.entries()
        found = [record for entry in entries for record in records_of(entry)]
        aborted = {row.offset for row in self.rows if row.aborted}
        shown = [
            (one.offset, one.key, one.value, one.timestamp_ms) for one in found if one.offset not in aborted
        ]
        expected = [
            (row.offset, row.key, row.value, row.timestamp_ms)
            for row in self.rows
            if not row.gone and not row.aborted and row.offset >= self.log.log_start
        ]
        assert shown == expected
        assert not [
            row for row in self.rows if row.aborted and row.gone and row.offset in {r.offset for r in found}
        ]
        for entry, later in pairwise(entries):
            assert entry.last_offset < later.base_offset
        assert [self.positions[one.base_offset] for one in entries] == [
            (one.ledger_id, one.entry_id) for one in entries
        ]
        await self._check_positions(entries)
        self._check_epochs()
        kept = {one.ledger_id for one in await self.store.list_ledgers() if one.entry_count}
        assert kept <= set(self.log.stored_ids), (
            "a ledger without entries may be left by a crash, and goes later"
        )
        named = await self.environment.tombstones.load()
        assert not set(named) & set(self.log.stored_ids), "a start would say that something is wrong"

    async def check_markers(self) -> None:
        """A commit is marked where records of it are left, and for a while after they have gone."""
        kept_of: set[int] = set()
        offset = self.log.log_start
        while offset < self.log.high_watermark:
            ledger_id, stored = await self.log.read_stored(offset, 1)
            offset = stored[0].last_offset + 1
            entry, origin = decode_entry(ledger_id, stored[0]), origin_of(stored[0].body)
            if entry.kind is EntryKind.PULSAR:
                transaction = transaction_of(read_entry(entry.payload, verify=False))
                kept_of |= set() if transaction is None else {transaction}
                continue
            header = read_header(entry.payload)
            if header.is_transactional and not header.is_control:
                kept_of.add(header.producer_id)
            elif header.is_control and header.producer_id >= 0:
                if header.producer_id not in kept_of and offset <= self.log.cleaned:
                    is_kept = origin is not None and origin.keep_until_ms > self.last_run_ms
                    assert is_kept or not marker_commits(entry.payload)
                kept_of.discard(header.producer_id)
        assert not kept_of

    async def _check_positions(self, entries: list[Entry]) -> None:
        """Every position that a client may have kept leads to its entry, or to the next one that is left."""
        start = self.log.log_start
        for base, (ledger_id, entry_id) in self.chance.sample(
            list(self.positions.items()), min(8, len(self.positions))
        ):
            found = await self.log.locate(LedgerId(ledger_id), EntryId(entry_id))
            left = [one for one in entries if one.base_offset >= max(base, start)]
            assert (found and found.base_offset) == (left[0].base_offset if left else None)
            before = [one for one in entries if one.last_offset < base]
            found = await self.log.entry_before(base)
            assert (found and found.base_offset) == (before[-1].base_offset if before else None)

    def _check_epochs(self) -> None:
        for number, (epoch, begin) in enumerate(self.epochs):
            later = self.epochs[number + 1 :]
            end = self.log.epoch_end(epoch)
            assert end is not None
            if epoch < self.log.leader_epoch:
                assert end == (epoch, later[0][1] if later else self.log.high_watermark)
            assert self.log.epoch_at(begin) == epoch
