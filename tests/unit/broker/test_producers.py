"""Pulsar producers of one partition: names, access modes, epochs."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.base.errors import BrokerError, MetadataError
from magnetar.broker.errors import NotLeader, UnknownTopic
from magnetar.broker.producers.admission import PartitionProducers
from magnetar.broker.producers.errors import ProducerBusy, ProducerFenced
from magnetar.broker.producers.model import AccessMode
from magnetar.broker.producers.producer import Producer
from tests.examples import at_least

from .noting_producers import Epochs, Port, events, producer, run, settle

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAIT, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING


def test_shared_producers_share() -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs())
        one, other = producer("a"), producer("b")
        await there.admit(one)
        await there.admit(other)
        assert one.is_ready
        assert one.topic_epoch is None
        assert {each.name for each in there} == {"a", "b"}
        there.remove(one)
        there.remove(one)
        assert [each.name for each in there] == ["b"]

    run(scenario())


@pytest.mark.parametrize(
    ("first", "second", "taken_over"),
    [
        ({}, {"epoch": 1}, True),
        ({"epoch": 4}, {"epoch": 4}, False),
        ({"epoch": 4}, {"epoch": 3}, False),
        ({"user_named": True}, {"epoch": 1, "user_named": True}, False),
        ({"user_named": True}, {"epoch": 1}, False),
        ({}, {"epoch": 1, "user_named": True}, False),
    ],
)
def test_a_name_is_one_producers_and_its_later_selfs(
    first: dict[str, Any], second: dict[str, Any], taken_over: bool
) -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs())
        old, new = producer("a", **first), producer("a", **second)
        await there.admit(old)
        if taken_over:
            await there.admit(new)
            assert events(old) == ["closed"]
            there.remove(old)  # it leaves late, and takes no other with it
        else:
            with pytest.raises(ProducerBusy, match="Producer with name 'a' is already connected"):
                await there.admit(new)
            assert events(old) == []
        assert list(there) == [new if taken_over else old]

    run(scenario())


@pytest.mark.parametrize(("there_first", "refusal"), [(EXCLUSIVE, ProducerBusy), (WAIT, ProducerBusy)])
def test_no_producer_shares_with_an_exclusive_one(there_first: AccessMode, refusal: type[Exception]) -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs())
        await there.admit(producer("alone", there_first))
        with pytest.raises(refusal, match="existing exclusive producer: alone"):
            await there.admit(producer("b"))
        with pytest.raises(ProducerFenced, match="existing exclusive producer: alone"):
            await there.admit(producer("c", EXCLUSIVE))

    run(scenario())


def test_an_exclusive_one_needs_an_empty_topic() -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs())
        shared = producer("a")
        await there.admit(shared)
        with pytest.raises(ProducerFenced, match="existing shared producers"):
            await there.admit(producer("b", EXCLUSIVE))
        there.remove(shared)
        alone = producer("b", EXCLUSIVE)
        await there.admit(alone)
        assert (alone.is_ready, alone.topic_epoch) == (True, 0)

    run(scenario())


def test_producers_that_wait_get_their_turn_in_order() -> None:
    async def scenario() -> None:
        epochs = Epochs()
        there = PartitionProducers(epochs)
        shared = [producer("a"), producer("b")]
        for one in shared:
            await there.admit(one)
        waiting = [producer(f"w{number}", WAIT) for number in range(3)]
        for one in waiting:
            await there.admit(one)
            assert not one.is_ready
        with pytest.raises(ProducerBusy):
            await there.admit(producer("c"))
        there.remove(shared[0])
        await settle()
        assert events(waiting[0]) == []
        there.remove(shared[1])
        await settle()
        assert (waiting[0].is_ready, waiting[0].topic_epoch, events(waiting[0])) == (True, 0, ["ready"])
        there.remove(waiting[1])  # gave up
        there.remove(waiting[0])
        await settle()
        assert (waiting[2].topic_epoch, events(waiting[2])) == (1, ["ready"])
        assert events(waiting[1]) == []
        assert epochs.epoch == 1

    run(scenario())


def test_fencing_sends_all_others_away() -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs(3))
        alone, waiting = producer("a", EXCLUSIVE), producer("w", WAIT)
        await there.admit(alone)
        await there.admit(waiting)
        assert alone.topic_epoch == 4
        new = producer("n", FENCING)
        await there.admit(new)
        assert (events(alone), events(waiting)) == (["closed"], ["refused: Fenced out"])
        assert (list(there), new.topic_epoch) == ([new], 5)
        # What was sent away comes again, as clients do:
        with pytest.raises(ProducerFenced):
            await there.admit(producer("a", EXCLUSIVE, topic_epoch=4, epoch=1))
        there.remove(new)
        with pytest.raises(ProducerFenced, match="Current epoch: 5, Producer epoch: 4"):
            await there.admit(producer("a", EXCLUSIVE, topic_epoch=4, epoch=2))

    run(scenario())


def test_an_exclusive_one_that_reconnects_keeps_its_epoch_over_a_restart() -> None:
    async def scenario() -> None:
        epochs = Epochs()
        before = PartitionProducers(epochs)
        alone = producer("a", EXCLUSIVE)
        await before.admit(alone)
        after = PartitionProducers(epochs)
        again = producer("a", EXCLUSIVE, topic_epoch=alone.topic_epoch, epoch=1)
        await after.admit(again)
        assert again.topic_epoch == alone.topic_epoch
        fresh = PartitionProducers(epochs)
        await fresh.admit(producer("b", EXCLUSIVE))
        assert epochs.epoch == 1

    run(scenario())


def test_one_that_was_fenced_stays_fenced_in_every_mode_and_over_a_restart() -> None:
    async def scenario() -> None:
        epochs = Epochs()
        there = PartitionProducers(epochs)
        for name in ("a", "b"):
            await there.admit(producer(name, FENCING))
        holder = next(iter(there))
        for producers in (there, PartitionProducers(epochs)):
            for mode in (EXCLUSIVE, WAIT, FENCING):
                with pytest.raises(ProducerFenced, match="Current epoch: 1, Producer epoch: 0"):
                    await producers.admit(producer("a", mode, topic_epoch=0, epoch=1))
        assert list(there) == [holder]
        assert events(holder) == [], "two that fence each other would do so for ever"

    run(scenario())


def test_one_whose_epoch_has_moved_while_it_waited_is_refused_and_the_next_one_gets_its_turn() -> None:
    async def scenario() -> None:
        epochs = Epochs(4)
        there = PartitionProducers(epochs)
        alone = producer("alone", EXCLUSIVE, topic_epoch=4)
        await there.admit(alone)
        stale, following = producer("stale", WAIT, topic_epoch=4), producer("next", WAIT)
        await there.admit(stale)
        await there.admit(following)
        there.remove(alone)
        await settle()
        assert stale.is_ready, "it has the current epoch"
        between = producer("between", WAIT)
        await there.admit(between)
        late = producer("late", WAIT, topic_epoch=4)
        await there.admit(late)
        for one in (stale, following, between):
            there.remove(one)
            await settle()
        assert events(late) == ["refused: Topic epoch has already moved. Current epoch: 6, Producer epoch: 4"]
        assert epochs.epoch == 6
        await there.admit(producer("after", EXCLUSIVE))
        assert epochs.epoch == 7

    run(scenario())


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAIT, FENCING])
def test_an_exclusive_one_comes_again_before_its_broken_connection_is_noticed(mode: AccessMode) -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs())
        before = producer("a", mode, user_named=True)
        await there.admit(before)
        again = producer("a", mode, user_named=True, topic_epoch=before.topic_epoch, epoch=1)
        await there.admit(again)
        assert (again.is_ready, again.topic_epoch) == (True, before.topic_epoch)
        assert events(before) == ["closed"]
        there.remove(before)
        assert list(there) == [again]
        with pytest.raises(ProducerFenced):
            await there.admit(producer("b", EXCLUSIVE, topic_epoch=before.topic_epoch, epoch=2))

    run(scenario())


def test_an_epoch_from_another_life_of_the_topic_is_not_believed() -> None:
    async def scenario() -> None:
        epochs = Epochs()
        there = PartitionProducers(epochs)
        await there.admit(one := producer("a", EXCLUSIVE, topic_epoch=(1 << 64) - 1))
        assert one.topic_epoch == epochs.epoch == 0

    run(scenario())


def test_two_that_come_at_once_are_not_both_admitted() -> None:
    async def scenario() -> None:
        epochs = Epochs()
        there = PartitionProducers(epochs)
        epochs.gate.clear()
        first = asyncio.ensure_future(there.admit(producer("a", EXCLUSIVE)))
        second = asyncio.ensure_future(there.admit(producer("b", EXCLUSIVE)))
        await settle()
        epochs.gate.set()
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), ProducerFenced]
        assert [one.name for one in there] == ["a"]

    run(scenario())


def test_an_epoch_that_cannot_be_stored_admits_no_producer_and_holds_up_none() -> None:
    async def scenario() -> None:
        epochs = Epochs()
        there = PartitionProducers(epochs)
        epochs.fails = True
        with pytest.raises(MetadataError):
            await there.admit(producer("a", EXCLUSIVE))
        shared, waiting = producer("b"), producer("w", WAIT)
        await there.admit(shared)
        await there.admit(waiting)
        there.remove(shared)
        await settle()
        assert events(waiting) == ["refused: no"]
        epochs.fails = False
        await there.admit(producer("c", EXCLUSIVE))

    run(scenario())


def test_a_producer_that_leaves_while_its_epoch_is_stored_is_not_there_afterwards() -> None:
    async def scenario() -> None:
        epochs = Epochs()
        there = PartitionProducers(epochs)
        await there.admit(one := producer("x"))
        there.remove(one)
        epochs.gate.clear()
        early = producer("a", EXCLUSIVE)
        admitting = asyncio.ensure_future(there.admit(early))
        await settle()
        there.remove(early)
        epochs.gate.set()
        with pytest.raises(ProducerFenced):
            await admitting
        await there.admit(producer("b"))
        assert [each.name for each in there] == ["b"]

    run(scenario())


def test_a_producer_that_is_sent_away_when_its_turn_has_come_is_not_let_in() -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs())
        before, waiting = producer("a", FENCING), producer("w", WAIT)
        await there.admit(before)
        await there.admit(waiting)
        there.remove(before)  # the turn of the one that waits has come, but its epoch is not stored
        again = producer("a", FENCING, topic_epoch=before.topic_epoch, epoch=1)
        await there.admit(again)
        await settle()
        assert (list(there), events(waiting)) == ([again], ["closed"])

    run(scenario())


def test_all_are_sent_away_when_the_partition_is_closed() -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs())
        alone, waiting = producer("a", EXCLUSIVE), producer("w", WAIT)
        await there.admit(alone)
        await there.admit(waiting)
        there.close_all()
        await settle()
        assert (events(alone), events(waiting), len(there)) == (["closed"], ["closed"], 0)

    run(scenario())


@pytest.mark.parametrize(
    ("end", "refusal"),
    [
        (PartitionProducers.close_all, NotLeader),
        (PartitionProducers.close_for_good, UnknownTopic),
    ],
    ids=["unloaded", "deleted"],
)
def test_one_that_is_sent_away_while_its_epoch_is_stored_is_not_fenced(
    end: Callable[[PartitionProducers], None], refusal: type[BrokerError]
) -> None:
    """Its client would give up, and no other producer has taken its place."""

    async def scenario() -> None:
        epochs = Epochs(3)
        there = PartitionProducers(epochs)
        await there.admit(producer("first"))
        there.close_all()
        epochs.gate.clear()
        alone = producer("a", EXCLUSIVE)
        coming = asyncio.ensure_future(there.admit(alone))
        await settle()
        end(there)
        epochs.gate.set()
        with pytest.raises(refusal):
            await coming
        assert (events(alone), len(there)) == (["closed"], 0)

    run(scenario())


def test_one_that_another_sends_away_while_its_epoch_is_stored_is_fenced() -> None:
    async def scenario() -> None:
        epochs = Epochs(3)
        there = PartitionProducers(epochs)
        await there.admit(producer("first"))
        there.close_all()
        epochs.gate.clear()
        coming = asyncio.ensure_future(there.admit(producer("a", EXCLUSIVE)))
        await settle()
        other = asyncio.ensure_future(there.admit(producer("b", FENCING)))
        await settle()
        epochs.gate.set()
        with pytest.raises(ProducerFenced):
            await coming
        await other
        assert [one.name for one in there] == ["b"]

    run(scenario())


@settings(max_examples=at_least(300), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_happens_the_exclusive_one_is_alone_and_epochs_only_grow(data: st.DataObject) -> None:
    """Producers come, leave, come again with the epochs they got, on a store that fails and a broker that restarts."""

    async def scenario() -> None:
        epochs = Epochs()
        there = PartitionProducers(epochs)
        known: list[Producer] = []
        highest_told = -1
        for number in range(data.draw(st.integers(1, 25))):
            match data.draw(st.sampled_from(["new", "new", "again", "leave", "leave", "restart", "fail"])):
                case "new":
                    known.append(producer(f"p{number}", data.draw(st.sampled_from(AccessMode))))
                case "again" if known:
                    old = data.draw(st.sampled_from(known))
                    if data.draw(st.booleans()):
                        there.remove(old)
                    known.append(
                        producer(old.name, old.mode, epoch=old.epoch + 1, topic_epoch=old.topic_epoch)
                    )
                case "leave" if known:
                    there.remove(data.draw(st.sampled_from(known)))
                    await settle()
                    continue
                case "restart":
                    there.close_all()
                    there = PartitionProducers(epochs)
                    continue
                case "fail":
                    epochs.fails = not epochs.fails
                    continue
                case _:
                    continue
            coming = known[-1]
            believed = coming.topic_epoch
            try:
                await there.admit(coming)
            except BrokerError:
                assert not coming.is_ready
                assert coming not in list(there)
            await settle()
            present = list(there)
            assert all(one.is_ready for one in present)
            assert len({one.name for one in present}) == len(present)
            exclusive = [one for one in present if one.mode is not SHARED]
            if exclusive:
                (alone,) = present
                assert alone.topic_epoch is not None
                assert alone.topic_epoch == epochs.epoch, "the epoch it got is stored"
                assert alone.topic_epoch >= highest_told
                if alone is coming and believed is not None:
                    assert believed >= highest_told, "no other was exclusive since"
                highest_told = alone.topic_epoch

    run(scenario())


@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE])
def test_a_client_whose_connection_was_cut_gets_its_name_back(mode: AccessMode) -> None:
    async def scenario() -> None:
        there = PartitionProducers(Epochs())
        old = producer("a", mode, user_named=True)
        await there.admit(old)
        assert isinstance(old.port, Port)
        old.port.when_dead = lambda: there.remove(old)
        new = producer("a", mode, user_named=True, topic_epoch=old.topic_epoch)
        await there.admit(new)
        assert list(there) == [new]

    run(scenario())
