"""Whole brokers, each of which serves the bundles that it owns."""

import asyncio

import pytest

from magnetar.base.errors import BadVersion, LedgerFenced, LogLost, StorageError
from magnetar.base.names import TopicName
from magnetar.broker.cluster.ownership.records import record_path
from magnetar.broker.errors import NotLeader, TopicExists, UnknownTopic
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import Tenant
from magnetar.broker.topics.roots import SNAPSHOTS_ROOT
from magnetar.broker.topics.topic import topic_path
from magnetar.broker.upkeep import served_bundles
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.ledger.state import State
from magnetar.storage.store import LedgerId
from magnetar.testing.ledgers import MemoryLedger, MemoryLedgerStore

from .world import CALLER, NAMESPACE, NOW_MS, Cluster, Member, append, batch, cluster, run

T = "persistent://public/default/t"
PARTITIONS = 16


async def nothing_kept(_namespace: str) -> None:
    """No other part keeps anything of it."""


def part(index: int) -> str:
    return f"{T}-partition-{index}"


def in_bundle_of(world: Cluster, index: int) -> list[int]:
    """The partitions that are in the bundle of this one."""
    bundle = world.record(part(index)).bundle
    return [one for one in range(PARTITIONS) if world.record(part(one)).bundle == bundle]


async def open_at(world: Cluster, index: int = 0) -> tuple[Member, Partition]:
    """The owner of a partition, which has one entry."""
    owner = world.owner(part(index))
    partition = owner.topic(T).partition(index)
    await append(partition)
    return owner, partition


@run
async def test_a_partition_is_served_by_the_owner_of_its_bundle_alone() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T, PARTITIONS)
        served = {one.name: 0 for one in world.brokers}
        for index in range(PARTITIONS):
            owner, other = world.owner(part(index)), world.other(part(index))
            partition = owner.topic(T).partition(index)
            generation = world.record(part(index)).generation
            assert (partition.leader_id, partition.log.leader_epoch) == (owner.node.node_id, generation)
            with pytest.raises(NotLeader) as refused:
                other.topic(T).partition(index)
            assert (refused.value.leader_id, refused.value.leader_epoch) == (owner.node.node_id, generation)
            for one in world.brokers:
                assert one.topic(T).placed(index, index + 1) == [([owner.node.node_id], generation)]
            served[owner.name] += 1
        assert all(served.values()), served
        assert not any(one.topic(T).is_here for one in world.brokers)


@run
async def test_a_topic_counts_once_at_the_broker_that_makes_it_and_at_others() -> None:
    async with cluster(2) as world:
        made = await world.brokers[0].make(T, 3)
        for one in world.brokers:
            topics = one.broker.topics
            assert topics.limits.count(NAMESPACE, persistent=True) == 3
            assert len(topics) == 1
        assert world.brokers[0].topic(T) is made
        async with world.brokers[0].broker.topics.changing(made):
            await world.brokers[0].broker.topics.add_partitions(made, [[1]] * 5)
        for one in world.brokers:
            assert one.broker.topics.limits.count(NAMESPACE, persistent=True) == 5


@run
async def test_what_a_broker_hears_late_changes_nothing() -> None:
    async with cluster(2) as world:
        first, second = world.brokers
        made = await first.make(T)
        before = await world.metadata.get(topic_path(made.name))
        async with first.broker.topics.changing(made):
            await first.broker.topics.set_config(made, {"retention.ms": "1000"})
        assert before is not None
        for one in (first, second):
            one.broker.topics._hear(topic_path(made.name), before)
            assert dict(one.topic(T).overrides) == {"retention.ms": "1000"}


@run
async def test_a_broker_that_writes_of_a_topic_what_another_has_just_written_can_go_on() -> None:
    """It took the other's change for its own, and knew no version any more that it could replace."""
    async with cluster(2) as world:
        first, second = world.brokers
        await first.make(T)
        topic = second.topic(T)
        second.session.answers.clear()
        late = asyncio.ensure_future(second.broker.topics.set_config(topic, {"retention.ms": "5"}))
        await world.turn()
        await first.broker.topics.set_config(first.topic(T), {"retention.ms": "5"})
        second.session.answers.set()
        with pytest.raises(BadVersion):
            await late
        assert topic.overrides == {"retention.ms": "5"}
        await second.broker.topics.set_config(topic, {"retention.ms": "6"})
        assert first.topic(T).overrides == {"retention.ms": "6"}


@run
async def test_a_broker_alone_serves_all_partitions() -> None:
    async with cluster(1) as world:
        topic = await world.brokers[0].make(T, PARTITIONS)
        assert topic.is_here
        assert {nodes[0] for nodes, _ in topic.placed(0, PARTITIONS)} == {1}


@run
async def test_topics_that_another_broker_makes_changes_and_deletes_are_heard_of() -> None:
    async with cluster(2) as world:
        first, second = world.brokers
        made = await first.make(T)
        heard = second.topic(T)
        assert heard is not made
        assert heard.topic_id == made.topic_id
        with pytest.raises(TopicExists):
            await second.make(T)
        registry = first.broker.topics
        async with registry.changing(made):
            await registry.add_partitions(made, registry.plan_partitions(made, 3))
            await registry.set_config(made, {"retention.ms": "1000"})
        assert (heard.partition_count, dict(heard.overrides)) == (3, {"retention.ms": "1000"})
        assert heard.config.retention_ms == 1000
        assert heard.version == made.version == 2
        async with second.broker.topics.changing(heard):  # which has heard of the version
            await second.broker.topics.set_config(heard, {})
        assert dict(made.overrides) == {}
        await first.broker.topics.terminate(made)
        assert heard.is_terminated


@run
async def test_a_topic_is_deleted_by_the_broker_that_has_all_of_it_and_the_others_hear_of_it() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, other = world.owner(part(0)), world.other(part(0))
        await append(owner.topic(T).partition(0))
        heard = other.topic(T)
        with pytest.raises(NotLeader):
            await other.broker.delete_topic(heard)
        assert other.topic(T) is heard
        await owner.broker.delete_topic(owner.topic(T))
        assert heard.is_deleted
        with pytest.raises(UnknownTopic):
            other.topic(T)
        await other.make(T)
        assert owner.topic(T).topic_id != heard.topic_id


@run
async def test_a_partition_goes_to_the_next_owner_with_all_that_is_known_of_it() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, other = world.owner(part(0)), world.other(part(0))
        before = owner.topic(T).partition(0)
        for sequence in range(3):
            assert await append(before, sequence, producer_id=7) == sequence
        key = CursorKey("s", T, 0)
        await owner.broker.cursors.commit({key: Cursor(2, holds_data=True)})
        generation = world.record(part(0)).generation
        await world.hand_over(part(0), other)
        after = other.topic(T).partition(0)
        assert after.log.high_watermark == 3
        assert after.log.leader_epoch == generation + 1
        assert await append(after, 2, producer_id=7) == 2, "the next owner knows that batch"
        assert await append(after, 3, producer_id=7) == 3
        stored = other.broker.cursors.get(key)
        assert stored is not None
        assert stored.mark_delete == 2
        assert other.broker.cursors.held_from(T, 0) == 2
        with pytest.raises(NotLeader) as refused:
            owner.topic(T).partition(0)
        assert refused.value.leader_id == other.node.node_id
        assert before.is_closed


@run
async def test_an_owner_hands_over_when_all_that_it_has_taken_is_durable() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        _, partition = await open_at(world)
        other = world.other(part(0))
        world.ledgers.automatic = False
        outcomes: list[Exception | None] = []
        partition.append(batch(), NOW_MS, outcomes.append)
        record = await world.ask_to_hand_over(part(0), other)
        await world.until(lambda: partition.log.state is State.LOST)
        for _ in range(10):
            await world.turn()
        assert world.record(part(0)) == record, "it is still the owner's"
        assert outcomes == []
        with pytest.raises(LogLost):
            partition.append(batch(), NOW_MS, outcomes.append)
        world.ledgers.automatic = True
        world.ledgers.write()
        await world.until(lambda: other.seat.serves(NAMESPACE, part(0)))
        assert outcomes == [None]
        assert other.topic(T).partition(0).log.high_watermark == 2


@run
async def test_what_waits_for_a_ledger_when_its_bundle_goes_is_refused_and_not_stored() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        partition = world.owner(part(0)).topic(T).partition(0)
        other = world.other(part(0))
        world.ledgers.automatic = False
        outcomes: list[Exception | None] = []
        partition.append(batch(), NOW_MS, outcomes.append)
        await world.ask_to_hand_over(part(0), other)
        await world.until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], LogLost)
        world.ledgers.automatic = True
        world.ledgers.write()
        await world.until(lambda: other.seat.serves(NAMESPACE, part(0)))
        assert other.topic(T).partition(0).log.next_offset == 0


@run
async def test_a_broker_whose_session_ends_loses_its_partitions_and_can_append_nothing() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, partition = await open_at(world)
        other = world.other(part(0))
        await world.end_session(owner)
        await world.until(lambda: other.seat.serves(NAMESPACE, part(0)))
        assert partition.is_closed
        with pytest.raises(StorageError):
            partition.append(batch(), NOW_MS, lambda error: None)
        after = other.topic(T).partition(0)
        assert after.log.high_watermark == 1
        assert await append(after) == 1


@run
async def test_an_owner_that_hears_nothing_is_fenced_and_stores_nothing_more() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, partition = await open_at(world)
        other = world.other(part(0))
        owner.session.is_deaf = True
        await world.end_session(owner)
        await world.until(lambda: other.seat.serves(NAMESPACE, part(0)))
        assert not partition.is_closed
        with pytest.raises(LedgerFenced):
            partition.append(batch(), NOW_MS, lambda error: None)
        await world.until(lambda: partition.log.state is State.IDLE)
        outcomes: list[Exception | None] = []
        partition.append(batch(), NOW_MS, outcomes.append)
        await world.until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], LogLost)
        assert await append(other.topic(T).partition(0)) == 1
        owner.membership.end()
        assert partition.is_closed


@run
async def test_snapshots_of_a_broker_that_was_deposed_are_not_stored() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, partition = await open_at(world)
        other = world.other(part(0))
        owner.session.is_deaf = True
        await world.end_session(owner)
        await world.until(lambda: other.seat.serves(NAMESPACE, part(0)))
        await append(other.topic(T).partition(0))
        await other.broker.snapshots.store_changed()
        stored = await world.metadata.scan(SNAPSHOTS_ROOT)
        assert stored
        assert partition.bytes_since_snapshot
        await owner.broker.snapshots.store([partition])
        assert await world.metadata.scan(SNAPSHOTS_ROOT) == stored
        owner.membership.end()


class Gate(MemoryLedgerStore):
    """Ledgers are opened when a test lets them be."""

    def __init__(self, other: MemoryLedgerStore) -> None:
        super().__init__()
        self.ledgers = other.ledgers
        self.is_open = asyncio.Event()
        self.asked = asyncio.Event()

    async def open(self, ledger_id: LedgerId) -> MemoryLedger:
        self.asked.set()
        await self.is_open.wait()
        return await super().open(ledger_id)


@run
async def test_a_bundle_that_goes_while_it_is_opened_is_not_served() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, _ = await open_at(world)
        other = world.other(part(0))
        gate = other.broker._environment.store = Gate(world.ledgers)
        await world.ask_to_hand_over(part(0), other)
        await world.until(gate.asked.is_set)
        assert not other.seat.serves(NAMESPACE, part(0))
        await world.end_session(other)
        await world.until(lambda: owner.seat.serves(NAMESPACE, part(0)))
        gate.is_open.set()
        await world.turn()
        assert other.topic(T).opened(0) is None
        assert not other.seat.serves(NAMESPACE, part(0))
        assert owner.topic(T).partition(0).log.high_watermark == 1


@run
async def test_a_bundle_that_goes_while_it_is_opened_is_opened_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each log that is opened is fenced, also for the broker that serves it by then."""
    monkeypatch.setattr(served_bundles, "_AT_ONCE", 1)
    async with cluster(2) as world:
        await world.brokers[0].make(T, PARTITIONS)
        together = next(found for index in range(PARTITIONS) if len(found := in_bundle_of(world, index)) > 1)
        owner = world.owner(part(together[0]))
        for index in together:
            await append(owner.topic(T).partition(index))
        other = world.other(part(together[0]))
        gate = other.broker._environment.store = Gate(world.ledgers)
        await world.ask_to_hand_over(part(together[0]), other)
        await world.until(gate.asked.is_set)
        await world.end_session(other)
        await world.until(lambda: owner.seat.serves(NAMESPACE, part(together[0])))
        gate.asked.clear()
        gate.is_open.set()
        for _ in range(3):
            await world.turn()
        assert not gate.asked.is_set()


@run
async def test_a_broker_that_stops_hands_over_before_it_leaves() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, _ = await open_at(world)
        other = world.other(part(0))
        await world.run(owner.stop())
        world.brokers.remove(owner)
        await world.settle()
        assert other.topic(T).partition(0).log.high_watermark == 1
        assert other.topic(T).is_here
        assert other.seat.nodes.by_id.keys() == {other.node.node_id}


@run
async def test_a_log_that_lacks_a_ledger_is_refused_and_the_others_of_its_bundle_are_served() -> None:
    async with cluster(1) as world:
        (first,) = world.brokers
        await first.make(T, PARTITIONS)
        for index in range(PARTITIONS):
            await append(first.topic(T).partition(index))
        (lost,) = first.topic(T).partition(0).log.stored_ids
        del world.ledgers.ledgers[lost]
        second = await world.join()
        for index in range(PARTITIONS):
            if not second.seat.serves(NAMESPACE, part(index)):
                await world.hand_over(part(index), second)
        for index in range(1, PARTITIONS):
            assert second.topic(T).partition(index).log.high_watermark == 1
        with pytest.raises(StorageError, match="not served"):
            second.topic(T).partition(0)


@run
async def test_bundles_are_opened_though_the_stores_fail_for_a_moment() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        await open_at(world)
        other = world.other(part(0))
        await world.ask_to_hand_over(part(0), other)
        world.metadata.fail_next = 3
        await world.until(lambda: other.seat.serves(NAMESPACE, part(0)))
        assert other.topic(T).partition(0).log.high_watermark == 1


@run
async def test_an_operator_lets_the_owner_of_a_bundle_unload_it_at_any_broker() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        _, partition = await open_at(world)
        asked, before = world.other(part(0)), dict(world.brokers[0].seat.view.records)
        bundle = world.record(part(0)).bundle
        await asked.broker.cases.namespaces.unload(CALLER, NAMESPACE, bundle.range)
        await world.until(lambda: world.record(part(0)).generation > before[bundle].generation)
        await world.settle()
        assert partition.is_closed
        assert world.owner(part(0)).topic(T).partition(0).log.high_watermark == 1
        after = world.brokers[0].seat.view.records
        assert [one for one in before if after[one] != before[one]] == [bundle]
        await asked.broker.cases.namespaces.unload(CALLER, NAMESPACE)
        await world.until(
            lambda: all(record.generation > before[one].generation for one, record in after.items())
        )
        await world.settle()


@run
async def test_a_namespace_gets_and_loses_its_bundles_with_itself() -> None:
    async with cluster(2) as world:
        first, second = world.brokers
        await first.broker.namespaces.create("public/more", bundle_count=2)
        await world.settle()
        assert sum(one.namespace == "public/more" for one in first.seat.view.records) == 2
        await first.broker.namespaces.delete("public/more", nothing_kept)
        assert not any(one.namespace == "public/more" for one in second.seat.view.records)
        await world.settle()


@run
async def test_tenants_namespaces_and_policies_that_another_broker_changes_are_heard_of() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T)
        owner, other = world.owner(part(0)), world.other(part(0))
        partition = owner.topic(T).partition(0)
        changed, heard = other.broker.namespaces, owner.broker.namespaces
        await changed.create_tenant(Tenant("more"))
        await changed.create("more/n")
        assert "more/n" in heard
        rate = {"publishMaxMessageRate": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}}
        await changed.change(NAMESPACE, lambda policies: {**policies, **rate})
        await world.until(lambda: partition.publish_limit is not None)
        name = TopicName.parse(T)
        await changed.change_topic(name, lambda policies: {**policies, "max_producers_per_topic": 3})
        await world.turn()
        assert heard.policies_of(name).producers_max == 3
        await changed.change_topic(name, lambda policies: {})
        assert heard.policies_of(name).producers_max == 0
        await changed.delete("more/n", nothing_kept)
        await changed.delete_tenant("more")
        assert "more/n" not in heard
        assert "more" not in heard.tenants
        await world.settle()


@run
async def test_a_topic_that_is_not_partitioned_does_not_become_so_in_a_cluster() -> None:
    async with cluster(1) as world:
        (first,) = world.brokers
        topic = await first.make(T, is_partitioned=False)
        assert topic.partition(0) is first.topic(T).partition(0)
        with pytest.raises(Exception, match="would change its bundle"):
            first.broker.topics.plan_partitions(topic, 2)
        assert first.broker.topics.find(TopicName.parse(T)) is topic
        assert record_path(world.record(T).bundle).startswith("/cluster/bundles/public/default/")
