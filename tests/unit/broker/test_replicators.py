"""Which topics are replicated, what a replicator has, and what is left of it after a crash, anywhere."""

import asyncio
from typing import Any

import pytest

from magnetar.base.errors import BrokerError
from magnetar.base.names import TopicName
from magnetar.broker.jobs.errors import (
    InvalidPipeline,
    InvalidReplicator,
    ReplicatorBusy,
    ReplicatorExists,
    ReplicatorNotFound,
)
from magnetar.broker.jobs.model import Desired
from magnetar.broker.policy.model import Region
from magnetar.broker.security.model import Caller, Operation, Principal, subscription_resource
from magnetar.broker.security.pipeline_rights import is_own
from magnetar.broker.usecases.replicators import Action
from magnetar.replicators.naming import pipeline_name

from .replicator_world import (
    ALICE,
    AUDIT,
    BOB,
    KAFKA,
    ORDERS,
    PROPERTIES,
    SECRET,
    SUBSCRIPTION,
    N,
    World,
    run,
)
from .test_producer_state import settle

# --- which topics ------------------------------------------------------------------------------------------------


def test_a_mapped_topic_starts_and_its_backlog_counts_from_then() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.make(AUDIT)
        await world.publish(count=3)
        await world.add({"orders": "copy"}, SECRET)
        found = world.pipeline()
        assert found is not None
        assert found.desired is Desired.RUNNING
        assert (found.kind, found.owner, found.subscription) == ("replicator", ALICE.principal, SUBSCRIPTION)
        assert found.config == {
            "topic": ORDERS.full,
            "type": "Kafka",
            "region": "us-west1",
            "target": "copy",
            "properties": PROPERTIES,
            "auth_plugin": "sealed",
            "credentials": SECRET,
        }
        assert world.pipeline(AUDIT) is None
        assert not world.has_subscription(AUDIT)
        assert world.backlog() == 0
        await world.publish(count=2)
        assert world.backlog() == 2

    run(scenario)


def test_retention_waits_for_what_a_replicator_has_not_sent_until_it_is_taken_out() -> None:
    async def scenario(world: World) -> None:
        partition = (await world.make(ORDERS)).partition(0)

        async def pass_days(days: float) -> int:
            """Where the log starts so many days later."""
            world.clock.advance(days * 24 * 3600)
            await world.broker.retention.run_once()
            await settle()
            return partition.log.log_start

        partition.log.limits.entry_count_max = 1  # each ledger, which goes as a whole
        for _ in range(2):
            await world.publish()
        await world.add({"orders": "copy"})
        for _ in range(3):
            await world.publish()
        assert await pass_days(30) == 2
        await world.broker.cases.replicators.deregister(ALICE, ORDERS, "Kafka")
        assert await pass_days(0) == 5

    run(scenario)


def test_a_topic_that_is_made_later_is_replicated_from_its_first_message_on() -> None:
    async def scenario(world: World) -> None:
        await world.add({"orders.*": "copy-{topic}"})
        await world.make(ORDERS)
        assert world.target() == "copy-orders"
        assert world.pipeline().owner == ALICE.principal  # type: ignore[union-attr]
        await world.publish(count=2)
        assert world.backlog() == 2
        await world.make(AUDIT)
        assert world.pipeline(AUDIT) is None

    run(scenario)


def test_new_partitions_of_a_topic_are_replicated_from_their_beginning() -> None:
    async def scenario(world: World) -> None:
        topic = await world.make(ORDERS, 1)
        await world.publish(count=1)
        await world.add({"orders": "copy"})
        topics = world.broker.topics
        async with topics.changing(topic):
            await topics.add_partitions(topic, topics.plan_partitions(topic, 3))
        await world.publish(count=2, partition=2)
        assert world.backlog() == 2

    run(scenario)


def test_a_topic_that_stores_nothing_is_not_replicated() -> None:
    async def scenario(world: World) -> None:
        name = TopicName("public", "default", "orders", persistent=False)
        await world.add({"orders": "copy"})
        await world.make(name)
        assert world.pipeline(name) is None
        with pytest.raises(ReplicatorNotFound):
            await world.broker.cases.replicators.register(ALICE, name, "Kafka")

    run(scenario)


def test_a_mapping_that_is_replaced_takes_topics_out_and_in_and_keeps_places() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.make(AUDIT)
        await world.add({"orders": "copy", "audit": "a"}, SECRET)
        await world.publish(count=2)
        before = world.pipeline()
        assert before is not None
        await world.broker.cases.replicators.act(ALICE, ORDERS, "Kafka", Action.STOP)
        await world.add({"orders": "other"}, caller=BOB)
        after = world.pipeline()
        assert after is not None
        assert (after.id, after.config["target"], after.owner) == (before.id, "other", BOB.principal)
        assert after.config["credentials"] is None
        assert after.desired is Desired.STOPPED
        assert world.backlog() == 2
        assert world.pipeline(AUDIT) is None
        assert not world.has_subscription(AUDIT)
        assert b"/replicator-keys/" not in await world.stored()

    run(scenario)


def test_a_replicator_that_runs_is_started_again_with_what_replaces_its_configuration() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders": "copy"})
        await world.add({"orders": "other"})
        found = world.pipeline()
        assert found is not None
        assert (found.run, found.desired) == (2, Desired.RUNNING)

    run(scenario)


# --- in and out --------------------------------------------------------------------------------------------------


def test_what_is_taken_out_stays_out_until_it_is_put_in_again() -> None:
    async def scenario(world: World) -> None:
        cases = world.broker.cases.replicators
        await world.make(ORDERS)
        await world.make(AUDIT)
        await world.add({"orders": "copy", "audit": "copy"})
        await cases.deregister(ALICE, ORDERS, "Kafka")
        assert world.pipeline() is None
        assert not world.has_subscription()
        assert world.has_subscription(AUDIT)
        await world.crash()
        cases = world.broker.cases.replicators
        assert world.pipeline() is None
        assert world.pipeline(AUDIT) is not None
        with pytest.raises(ReplicatorNotFound):
            await cases.deregister(ALICE, ORDERS, "Kafka")
        with pytest.raises(ReplicatorNotFound):
            await cases.act(ALICE, ORDERS, "Kafka", Action.START)
        await world.publish(count=3)
        await cases.register(ALICE, ORDERS, "Kafka")
        assert world.backlog() == 0
        with pytest.raises(ReplicatorExists):
            await cases.register(ALICE, ORDERS, "Kafka", "us-west1")
        await world.crash()
        assert world.target() == "copy"

    run(scenario)


def test_a_topic_that_no_configuration_means_is_not_registered() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"audit": "copy"})
        for kind, region in (
            ("Kafka", None),
            ("Kafka", "us-west1"),
            ("Kafka", "elsewhere"),
            ("Kinesis", None),
        ):
            with pytest.raises(ReplicatorNotFound):
                await world.broker.cases.replicators.register(ALICE, ORDERS, kind, region)

    run(scenario)


def test_a_topic_that_is_made_again_is_not_the_one_that_was_taken_out() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders": "copy"})
        await world.broker.cases.replicators.deregister(ALICE, ORDERS, "Kafka")
        await world.broker.delete_topic(world.broker.topics.get(ORDERS))
        await world.make(ORDERS)
        assert world.target() == "copy"

    run(scenario)


def test_one_region_is_taken_out_and_the_other_one_stays() -> None:
    async def scenario(world: World) -> None:
        other = Region("Kafka", "eu")
        await world.make(ORDERS)
        await world.add({"orders": "copy"})
        await world.add({"orders": "copy-eu"}, region=other)
        cases = world.broker.cases.replicators
        await cases.act(ALICE, ORDERS, "Kafka", Action.STOP, "eu")
        assert world.pipeline().desired is Desired.RUNNING  # type: ignore[union-attr]
        assert world.pipeline(region=other).desired is Desired.STOPPED  # type: ignore[union-attr]
        await cases.deregister(ALICE, ORDERS, "Kafka", "us-west1")
        assert world.target() is None
        assert world.target(region=other) == "copy-eu"
        await cases.deregister(ALICE, ORDERS, "Kafka")
        assert world.target(region=other) is None

    run(scenario)


def test_a_replicator_that_still_runs_is_not_declared_over() -> None:
    """Its worker has to stop it first; then the subscription goes."""

    async def scenario(world: World) -> None:
        cases = world.broker.cases.replicators
        await world.make(ORDERS)
        await world.add({"orders": "copy"})
        epoch = await world.worker()
        await cases.deregister(ALICE, ORDERS, "Kafka")
        (one,) = cases.statistics(ALICE, ORDERS)
        assert one.state.value == "DELETING"
        assert world.has_subscription()
        with pytest.raises(ReplicatorBusy):
            await cases.register(ALICE, ORDERS, "Kafka")
        with pytest.raises(ReplicatorBusy):
            await world.add({"orders": "other"}, SECRET)
        assert b"/replicator-keys/" not in await world.stored()
        await world.says(epoch, one.replicator.pipeline, "STOPPED", {})
        assert not world.has_subscription()
        await cases.register(ALICE, ORDERS, "Kafka")
        assert world.target() == "copy"

    run(scenario)


def test_a_removed_configuration_leaves_nothing() -> None:
    async def scenario(world: World) -> None:
        cases = world.broker.cases.replicators
        await world.make(ORDERS)
        await world.make(AUDIT)
        await world.add({"orders": "copy", "audit": "copy"}, SECRET)
        await cases.remove_config(ALICE, N, KAFKA)
        assert cases.configs(ALICE, N) == []
        assert len(world.broker.pipelines) == 0
        assert not world.has_subscription()
        assert not world.has_subscription(AUDIT)
        stored = await world.stored()
        assert b"/replicator-keys/" not in stored
        assert b"us-west1" not in stored
        with pytest.raises(ReplicatorNotFound):
            await cases.remove_config(ALICE, N, KAFKA)

    run(scenario)


def test_a_deleted_topic_takes_its_replicators_with_it_and_a_new_one_has_its_own() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.make(AUDIT)
        await world.add({"orders": "copy", "audit": "copy"})
        before = world.pipeline()
        await world.publish(count=2)
        await world.worker()  # which need not be waited for
        await world.broker.delete_topic(world.broker.topics.get(ORDERS))
        assert world.pipeline() is None
        assert world.pipeline(AUDIT) is not None
        await world.crash()
        assert world.pipeline() is None
        await world.make(ORDERS)
        after = world.pipeline()
        assert before is not None
        assert after is not None
        assert after.id != before.id
        assert world.backlog() == 0

    run(scenario)


def test_a_replicator_is_not_started_while_its_topic_is_deleted() -> None:
    """The start was stored after the deletion: it must not bring the pipeline back."""

    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders": "copy"})
        found = world.pipeline()
        assert found is not None
        await world.broker.pipelines.stop(found.name)
        world.metadata.hold()
        starting = asyncio.ensure_future(world.broker.pipelines.start(found.name))
        await settle()
        world.broker.pipelines.forget_topic(ORDERS.full)
        world.metadata.release()
        with pytest.raises(BrokerError):
            await starting
        assert world.pipeline() is None
        assert found.name.encode() not in await world.stored()

    run(scenario)


def test_a_deleted_namespace_takes_credentials_with_it() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders": "copy"}, SECRET)
        assert b"/replicator-keys/" in await world.stored()
        await world.broker.pulsar_topics.delete_namespace(N, force=True)
        assert len(world.broker.pipelines) == 0
        assert b"/replicator-keys/" not in await world.stored()

    run(scenario)


# --- what must not be --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "mapping", "properties", "why"),
    [
        (
            Region("Kafca", "r"),
            {"orders": "c"},
            {},
            "there is no replicator of the type 'Kafca': did you mean Kafka",
        ),
        (Region("Kafka", "a.b"), {"orders": "c"}, {}, "the region 'a.b' must have"),
        (Region("Kafka", ""), {"orders": "c"}, {}, "the region '' must have"),
        (Region("Kafka", "r" * 25), {"orders": "c"}, {}, "must have 1 to 24"),
        (KAFKA, {}, {}, "must name 1 to 1000 topics"),
        (KAFKA, {"a(b": "c"}, {}, "neither a topic's name nor a regular expression"),
        (KAFKA, {"orders": ""}, {}, "'orders' must have the name"),
        (KAFKA, {"orders": 7}, {}, "'orders' must have the name"),
        (KAFKA, {"orders": "c"}, {"x": []}, "'x' must be a text"),
        (KAFKA, {"orders": "c"}, {"x": "(hidden)"}, "give the value itself"),
        (KAFKA, {"orders": "c"}, {"ssl.ca.location": "/etc/passwd"}, "ssl.ca.location"),
        (
            KAFKA,
            {f"t{number}": "c" * 900 for number in range(30)},
            {},
            "large",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_changes_nothing(
    region: Region, mapping: dict[str, Any], properties: dict[str, Any], why: str
) -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        before = await world.stored()
        with pytest.raises(InvalidReplicator) as refused:
            await world.add(mapping, SECRET, region=region, **properties)
        assert why in str(refused.value)
        assert "well-kept" not in str(refused.value)
        assert await world.stored() == before

    run(scenario)


def test_names_of_replicators_are_no_ones_to_declare_or_delete() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders": "copy"})
        found = world.pipeline()
        assert found is not None
        cases = world.broker.cases.pipelines
        with pytest.raises(InvalidPipeline, match="may not begin with"):
            await cases.create(ALICE, pipeline_name("Kafka", "other", ORDERS.full), "query", {})
        with pytest.raises(InvalidPipeline, match="deregister-replicator"):
            await cases.delete(ALICE, found.name, force=True)
        assert world.pipeline() is found

    run(scenario)


def test_a_replicators_subscription_is_its_own_and_no_other_pipelines() -> None:
    name = pipeline_name(*KAFKA, ORDERS.full)
    mine = Caller(Principal("User", "alice"), pipeline=name)
    other = Caller(Principal("User", "alice"), pipeline="replicas")
    own = subscription_resource(ORDERS.full, SUBSCRIPTION)
    assert is_own(mine, Operation.READ, own, "")
    assert not is_own(mine, Operation.READ, subscription_resource(ORDERS.full, "pulsar.repl.Kafka.eu"), "")
    assert not is_own(other, Operation.READ, own, "")


def test_more_topics_than_there_may_be_pipelines_are_refused_before_anything_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("magnetar.broker.jobs.replicators.PIPELINES_MAX", 1)

    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.make(AUDIT)
        before = await world.stored()
        with pytest.raises(InvalidReplicator, match="2 more topics"):
            await world.add({".*": "copy"}, SECRET)
        assert await world.stored() == before

    run(scenario)


# --- numbers -----------------------------------------------------------------------------------------------------


def test_statistics_are_the_brokers_and_the_workers() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS, 2)
        await world.add({"orders": "copy"})
        await world.publish(count=2)
        await world.publish(count=3, partition=1)
        epoch = await world.worker()
        found = world.pipeline()
        assert found is not None
        await world.says(epoch, found, "RUNNING", {"rows": 7, "rows_per_second": 1.5, "lag": 5})
        (one,) = world.broker.cases.replicators.statistics(ALICE, ORDERS)
        assert (one.backlog, one.consumers, one.state.value) == (5, 0, "RUNNING")
        assert one.status == {"rows": 7, "rows_per_second": 1.5, "lag": 5, "bytes": 0}
        assert one.replicator.target == "copy"
        assert world.broker.cases.replicators.statistics(ALICE, await _other(world)) == []

    async def _other(world: World) -> TopicName:
        await world.make(AUDIT)
        return AUDIT

    run(scenario)


def test_statistics_say_that_a_rate_holds_a_replicator_that_runs() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders": "copy"})
        await world.publish(count=5)
        rate = {
            "dispatchThrottlingRateInMsg": 2,
            "dispatchThrottlingRateInByte": -1,
            "ratePeriodInSecond": 60,
        }
        await world.broker.namespaces.change_topic(
            ORDERS, lambda found: {**found, "replicatorDispatchRate": rate}
        )
        partition = world.broker.topics.get(ORDERS).partition(0)
        (one,) = world.broker.cases.replicators.statistics(ALICE, ORDERS)
        end = await world.broker.replicator_rates.admit(partition, one.replicator.subscription, 0, 5, 1 << 20)
        assert end == 2
        (one,) = world.broker.cases.replicators.statistics(ALICE, ORDERS)
        assert not one.is_held, "it does not run"
        epoch, found = await world.worker(), world.pipeline()
        assert found is not None
        await world.says(epoch, found, "RUNNING", {})
        (one,) = world.broker.cases.replicators.statistics(ALICE, ORDERS)
        assert one.is_held

    run(scenario)
