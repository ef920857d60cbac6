"""What waits until a partition's log is durable up to an offset."""

import asyncio
from functools import partial

from magnetar.base.errors import StorageError
from magnetar.broker.log.durable_waits import DurableWaits

from .test_producer_state import Bench, run, settle


async def opened() -> tuple[Bench, DurableWaits]:
    """A bench with the durable offset 0, and the offsets 1 and 2 on their way to the disk."""
    bench = Bench()
    bench.produce(-1, -1, -1)
    await bench.flush()
    bench.produce(-1, -1, -1)
    bench.produce(-1, -1, -1)
    await settle()
    assert (bench.partition.log.high_watermark, bench.partition.log.next_offset) == (1, 3)
    return bench, bench.partition.durable_waits


def test_each_wait_ends_when_its_own_offset_is_durable() -> None:
    async def scenario() -> None:
        bench, waits = await opened()
        outcomes: list[tuple[int, Exception | None]] = []

        def note(offset: int, error: Exception | None) -> None:
            outcomes.append((offset, error))

        for offset in (2, 1, 0):
            waits.when_durable(offset, partial(note, offset))
        assert outcomes == [(0, None)], "it is durable already"
        bench.store.write(1)
        assert outcomes == [(0, None), (1, None)]
        bench.store.write(1)
        assert outcomes == [(0, None), (1, None), (2, None)]
        assert not waits.waiting

    run(scenario())


def test_all_waits_fail_with_the_appends_before_them() -> None:
    async def scenario() -> None:
        bench, waits = await opened()
        outcomes: list[Exception | None] = []
        waits.when_durable(1, outcomes.append)
        waits.when_durable(2, outcomes.append)
        bench.store.fail()
        await settle()
        assert [type(one) for one in outcomes] == [StorageError, StorageError]
        assert not waits.waiting

    run(scenario())


def test_until_says_whether_everything_before_its_end_is_durable() -> None:
    async def scenario() -> None:
        bench, waits = await opened()
        assert waits.until(1).result() is True
        first, all_of_it = waits.until(2), waits.until(3)
        bench.store.write(1)
        assert first.result() is True
        assert not all_of_it.done()
        bench.store.fail()
        await settle()
        assert all_of_it.result() is False

    run(scenario())


def test_a_caller_that_no_longer_waits_disturbs_no_other() -> None:
    async def scenario() -> None:
        bench, waits = await opened()
        left, kept = waits.until(3), waits.until(3)
        left.cancel()
        await asyncio.sleep(0)
        await bench.flush()
        assert kept.result() is True

    run(scenario())
