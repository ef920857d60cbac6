"""What is read of a log's producers when no snapshot says it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.base.errors import BrokerError, LedgerNotFound
from magnetar.broker.log.producer_recovery import empty, replay_piece
from magnetar.storage.store import READ_ENTRIES_MAX, LedgerId, StoredEntry

from .pulsar_entries import sent
from .test_partition_recovery import TransactionBench
from .test_producer_state import Bench


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


@pytest.mark.parametrize("producer_id", [0, 1, 7])
def test_the_last_batch_of_every_producer_is_known_again(producer_id: int) -> None:
    async def scenario() -> None:
        bench = Bench()
        first, _ = bench.produce(producer_id, 0, 0)
        await bench.flush()
        await bench.crash(None)
        assert bench.produce(producer_id, 0, 0)[0] == first, "it is the same batch once more"
        assert bench.produce(producer_id, 0, 1)[0] == first + 1

    run(scenario())


def test_the_epoch_of_a_marker_fences_producers_of_earlier_ones() -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        bench.write(7)
        bench.partition.end_transaction(7, 5, True, 0, lambda error: None)
        await bench.flush()
        await bench.crash(None)
        with pytest.raises(BrokerError):
            bench.produce(7, 4, 0)
        bench.produce(7, 5, 0)

    run(scenario())


def test_a_log_that_lost_its_start_while_it_was_read_is_read_from_its_new_one() -> None:
    async def scenario() -> None:
        bench = Bench()
        for number in range(3):
            bench.produce(number, 0, 0)
            await bench.flush()
        log = bench.partition.log
        read = log.read_stored

        async def read_stored(
            offset: int, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
        ) -> tuple[LedgerId, list[StoredEntry]]:
            found = await read(offset, bytes_max, entries_max)
            log.log_start = 2
            return found

        log.read_stored = read_stored  # type: ignore[method-assign]
        memory = empty(deduplicates=False)
        with pytest.raises(LedgerNotFound):
            await replay_piece(memory, log, 0)
        assert memory.producers.next_offset == 0
        await replay_piece(memory, log, 0)
        assert memory.producers.next_offset == 3

    run(scenario())


def test_an_open_transaction_of_pulsar_s_holds_readers_back_again_and_no_other_entry_does() -> None:
    async def scenario() -> None:
        bench = TransactionBench()
        plain, part = sent(sequence_id=0), sent(sequence_id=1, transaction=9)
        bench.partition.publish(plain.data, plain, bench.clock.now_ms(), lambda error: None)
        bench.partition.publish(part.data, part, bench.clock.now_ms(), lambda error: None, transaction=9)
        bench.partition.publish(plain.data, plain, bench.clock.now_ms(), lambda error: None)
        await bench.flush()
        assert bench.partition.last_stable_offset == 1
        await bench.crash(None)
        assert bench.partition.log.high_watermark == 3
        assert bench.partition.last_stable_offset == 1, "where the open transaction begins"
        bench.end(9, commit=False)
        await bench.flush()
        assert bench.partition.last_stable_offset == 4
        assert [one.producer_id for one in bench.partition.transactions.aborted_between(0, 4)] == [9]

    run(scenario())


def test_a_producer_is_described_by_its_last_batch() -> None:
    async def scenario() -> None:
        bench = Bench()
        for sequence in range(3):
            bench.produce(7, 0, sequence)
            bench.clock.advance(1)
        await bench.flush()
        [known] = bench.partition.known_producers
        assert (known.producer_id, known.last_sequence) == (7, 2)
        assert known.last_timestamp_ms == bench.clock.now_ms() - 1000

    run(scenario())
