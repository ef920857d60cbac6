"""Where credentials of replicators are, and where they are not."""

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.jobs.errors import (
    InvalidReplicator,
)
from magnetar.broker.jobs.model import PipelineKeys
from magnetar.broker.usecases.replicators import Action

from .replicator_world import ALICE, KEYS, ORDERS, SECRET, World, run


def test_credentials_are_nowhere_in_the_open_and_outlive_a_restart() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders.*": "copy"}, SECRET)
        assert b"well-kept" not in await world.stored()
        await world.crash()
        await world.make(TopicName("public", "default", "orders-2"))
        for topic in (ORDERS, TopicName("public", "default", "orders-2")):
            found = world.pipeline(topic)
            assert found is not None
            assert found.config["credentials"] == SECRET
        assert b"well-kept" not in await world.stored()

    run(scenario)


def test_another_key_takes_the_place_of_the_old_one() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders.*": "copy"}, SECRET)
        world.keys = PipelineKeys(b"key of the server", b"2" * 32, KEYS.sealing)
        await world.crash()
        world.keys = PipelineKeys(b"key of the server", b"2" * 32)
        await world.crash()
        name = TopicName("public", "default", "orders-2")
        await world.make(name)
        found = world.pipeline(name)
        assert found is not None
        assert found.config["credentials"] == SECRET

    run(scenario)


def test_without_the_key_replicators_stay_as_they_are_and_say_why() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        await world.add({"orders.*": "copy"}, SECRET)
        world.keys = PipelineKeys(b"key of the server", b"2" * 32)
        await world.crash()
        name = TopicName("public", "default", "orders-2")
        await world.make(name)
        assert world.pipeline(name) is None
        with pytest.raises(InvalidReplicator, match=r"secrets\.old\.key"):
            await world.broker.cases.replicators.act(ALICE, ORDERS, "Kafka", Action.START)
        await world.add({"orders.*": "copy"}, SECRET)
        assert world.target(name) == "copy"
        assert not world.pipeline().trouble  # type: ignore[union-attr]

    run(scenario)


def test_variables_are_read_where_the_operator_allows_it_and_again_at_a_restart() -> None:
    async def scenario(world: World) -> None:
        world.environment |= {"ORDERS_PASSWORD": "a-well-kept-secret", "HOME": "/root"}
        await world.make(ORDERS)
        for variable, why in (("HOME", "may not use the variable HOME"), ("ORDERS_X", "has no variable")):
            with pytest.raises(InvalidReplicator, match=why):
                await world.add({"orders": "c"}, {"sasl.password": variable}, key_store="environment")
        await world.add({"orders": "c"}, {"sasl.password": "ORDERS_PASSWORD"}, key_store="environment")
        assert world.pipeline().config["credentials"] == {"sasl.password": "a-well-kept-secret"}  # type: ignore[union-attr]
        assert b"well-kept" not in await world.stored()
        world.environment["ORDERS_PASSWORD"] = "another-secret"
        await world.broker.cases.replicators.act(ALICE, ORDERS, "Kafka", Action.RESTART)
        assert world.pipeline().config["credentials"] == {"sasl.password": "another-secret"}  # type: ignore[union-attr]

    run(scenario)


def test_the_name_of_the_prototypes_key_store_stands_for_the_default_one() -> None:
    async def scenario(world: World) -> None:
        await world.make(ORDERS)
        name = "org.apache.pulsar.replicator.auth.DefaultAuthParamKeyStore"
        await world.add({"orders": "copy"}, SECRET, key_store=name)
        assert world.pipeline().config["auth_plugin"] == "sealed"  # type: ignore[union-attr]
        with pytest.raises(InvalidReplicator, match="there are environment, sealed"):
            await world.add({"orders": "copy"}, SECRET, key_store="vault")

    run(scenario)


def test_what_was_published_before_a_new_topic_could_be_registered_is_not_lost() -> None:
    async def scenario(world: World) -> None:
        await world.add({"orders": "copy"}, SECRET)
        world.keys = PipelineKeys(b"key of the server", b"2" * 32)
        await world.crash()
        await world.make(ORDERS)
        await world.publish(count=2)
        assert world.pipeline() is None
        world.keys = KEYS
        await world.crash()
        assert world.target() == "copy"
        assert world.backlog() == 2

    run(scenario)
