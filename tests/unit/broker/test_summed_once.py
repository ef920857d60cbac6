"""Clients have summed their batches, and the partition verifies that: a store does not sum large ones once more."""

import asyncio
import struct
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from crc32c import crc32c

from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.storage.store import Buffer, Done, EntryId
from magnetar.testing import ledgers

from .pulsar_entries import sent
from .test_producer_state import Bench, batch

LARGE = 64 << 10


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, int, int | None]]:
    """All of each entry that the store gets, the bytes of its last part, and the checksum of that."""
    found: list[tuple[bytes, int, int | None]] = []
    original = ledgers.MemoryLedger.append

    def append(
        self: ledgers.MemoryLedger,
        parts: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp_ms: int,
        done: Done,
        tail_crc: int | None = None,
    ) -> EntryId:
        found.append((b"".join(parts), len(parts[-1]), tail_crc))
        return original(self, parts, size, last_offset, max_timestamp_ms, done, tail_crc)

    monkeypatch.setattr(ledgers.MemoryLedger, "append", append)
    return found


def ignored(_: Exception | None) -> None: ...


def large_batch(timestamp_ms: int) -> memoryview:
    """One record, which nothing opens."""
    small = batch(1, -1, -1, -1, timestamp_ms)
    whole = bytearray(small) + bytes(LARGE)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">I", whole, 17, crc32c(memoryview(whole)[21:]))
    return memoryview(whole)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def opened() -> Bench:
    bench = Bench()
    bench.produce(-1, -1, -1)
    await bench.flush()
    return bench


def test_large_entries_of_both_protocols_come_with_their_checksums(
    given: list[tuple[bytes, int, int | None]],
) -> None:
    async def scenario() -> None:
        bench = await opened()
        now_ms = bench.clock.now_ms()
        given.clear()
        large = large_batch(now_ms)
        bench.partition.append(large, now_ms, ignored)
        view = sent(payload=bytes(LARGE))
        bench.partition.publish(view.data, view, now_ms, ignored)
        for (whole, tail_bytes, tail_crc), payload in zip(given, (large, view.data), strict=True):
            assert whole.endswith(payload)
            assert LARGE <= tail_bytes < len(payload)
            assert tail_crc == crc32c(payload[-tail_bytes:])
        await bench.flush()
        entries = bench.partition.log.read_cached(1, 1 << 20, bench.partition.log.next_offset)
        assert entries is not None
        assert [bytes(entry.payload) for entry in entries] == [bytes(large), bytes(view.data)]

    run(scenario())


def test_small_entries_are_summed_as_they_are_stored(given: list[tuple[bytes, int, int | None]]) -> None:
    async def scenario() -> None:
        bench = await opened()
        given.clear()
        bench.produce(-1, -1, -1, 100)
        view = sent(payload=bytes(1000))
        bench.partition.publish(view.data, view, bench.clock.now_ms(), ignored)
        assert [tail_crc for _, _, tail_crc in given] == [None, None]

    run(scenario())


def test_a_batch_that_gets_another_time_is_summed_anew(given: list[tuple[bytes, int, int | None]]) -> None:
    async def scenario() -> None:
        bench = await opened()
        now_ms = bench.clock.now_ms()
        topic: Any = bench.partition.topic
        topic.config = TopicDefaults({}).config({"message.timestamp.type": "LogAppendTime"})
        given.clear()
        bench.partition.append(large_batch(now_ms - 5), now_ms, ignored)
        ((_, _, tail_crc),) = given
        assert tail_crc is None

    run(scenario())
