"""How many producers are remembered over all partitions, and whose are forgotten."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.log.deduplication import Deduplication
from magnetar.broker.log.producer_state import ProducerStates
from magnetar.broker.log.transaction_index import TransactionIndex
from magnetar.broker.upkeep.producer_limit import ProducerLimit, level


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 200))
def test_partitions_keep_as_much_as_they_may_and_no_more(counts: list[int], total_max: int) -> None:
    kept = level(counts, total_max)
    assert sum(min(count, kept) for count in counts) <= total_max
    if sum(counts) > total_max:
        assert sum(min(count, kept + 1) for count in counts) > total_max
    else:
        assert kept >= max(counts, default=0)


def a_partition(*producer_ids: int) -> Any:
    states = ProducerStates()
    for offset, producer_id in enumerate(producer_ids):
        states.add(producer_id, 0, 0, offset, 1, 1000)
    log = SimpleNamespace(high_watermark=len(producer_ids))
    return SimpleNamespace(producers=states, transactions=TransactionIndex(), log=log, deduplication=None)


def known(partition: Any) -> list[int]:
    return [producer_id for producer_id, _ in partition.producers.items()]


def test_the_partition_that_is_flooded_gives_up_its_own(caplog: pytest.LogCaptureFixture) -> None:
    quiet, flooded = a_partition(1, 2), a_partition(*range(10, 30))
    flooded.transactions.began(10, 0)
    topics: Any = [SimpleNamespace(open_partitions=[quiet, flooded])]
    limit = ProducerLimit(topics, 6)
    for _ in range(3):
        asyncio.run(limit.enforce())
    assert known(quiet) == [1, 2]
    assert known(flooded) == [10, 27, 28, 29]
    assert len(caplog.records) == 1


def test_names_that_were_seen_longest_ago_are_forgotten_first_and_none_that_may_still_fail() -> None:
    names = Deduplication()
    for number, name in enumerate("abcde"):
        view: Any = SimpleNamespace(producer_name=name, highest_sequence_id=7, is_chunk=False)
        names.add(view, 100 if name == "a" else number, 0, 1000 - number)
    names.forget_surplus(3, 50)
    assert [name for name in "abcde" if names.last_sequence_id(name, 1000) == 7] == ["a", "b", "c"]
    names.forget_surplus(3, 50)
    assert len(names) == 3
