"""What clients may do to topics that are copies of another cluster's: each step takes the right to the same step of any
topic.
"""

from collections.abc import Sequence
from typing import Final

import pytest

from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.errors import TopicExists
from magnetar.broker.security.errors import TopicNotAuthorized
from magnetar.broker.security.model import Caller, Operation, Principal, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.usecases.links import Declared
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore

from .test_topics import NAME, run

ADMIN: Final = Caller(Principal("User", "admin"), "127.0.0.1")
MALLORY: Final = Caller(Principal("User", "mallory"), "127.0.0.1")
SOURCE: Final = "kafka://elsewhere:9092"
KEPT: Final = {"retention.ms": "1000"}
GONE: Final = {"retention.ms": "1"}
CREATE, DESCRIBE, WRITE = Operation.CREATE, Operation.DESCRIBE, Operation.WRITE
ALTER, ALTER_CONFIGS = Operation.ALTER, Operation.ALTER_CONFIGS


async def begun(*allowed: Operation) -> Broker:
    """A broker with a link that its administrator has declared; Mallory may do these operations to the topic."""
    settings = BrokerSettings(authorization=AuthorizationSettings(frozenset({str(ADMIN.principal)})))
    broker = Broker(settings, MemoryLedgerStore(), MemoryMetadataStore(), FakeClock(), Nodes([Node(1)]))
    await broker.start()
    assert broker.rules is not None
    target = Target(ResourceType.TOPIC, Pattern.LITERAL, NAME.full)
    rules = [Rule(str(MALLORY.principal), one, target) for one in allowed]
    await broker.rules.change(lambda _: (rules, ()))
    await declare(broker, ADMIN)
    return broker


async def declare(
    broker: Broker,
    caller: Caller,
    partitions: int = 1,
    configs: dict[str, str] | None = KEPT,
    origin: str = "c/1",
) -> Declared:
    return await broker.cases.links.declare(caller, "t", SOURCE, origin, partitions, configs)


@pytest.mark.parametrize(
    ("allowed", "partitions", "configs", "missing"),
    [
        ((CREATE,), 1, None, DESCRIBE),
        ((CREATE, WRITE), 1, GONE, ALTER_CONFIGS),
        ((CREATE, WRITE, ALTER_CONFIGS), 2, KEPT, ALTER),
        ((CREATE, WRITE, ALTER), 2, GONE, ALTER_CONFIGS),
    ],
)
def test_who_may_create_a_topic_does_not_change_its_copy(
    allowed: Sequence[Operation], partitions: int, configs: dict[str, str] | None, missing: Operation
) -> None:
    """By its settings whoever may only create topics deleted the records of a copy."""

    async def scenario() -> None:
        broker = await begun(*allowed)
        with pytest.raises(TopicNotAuthorized) as refused:
            await declare(broker, MALLORY, partitions, configs)
        assert refused.value.operation is missing
        topic = broker.topics.get(NAME)
        assert (topic.partition_count, topic.overrides) == (1, KEPT)
        await broker.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("allowed", "partitions", "configs"),
    [
        ((CREATE, WRITE), 1, KEPT),
        ((CREATE, WRITE), 1, None),
        ((CREATE, DESCRIBE, ALTER_CONFIGS), 1, GONE),
        ((CREATE, ALTER), 2, KEPT),
    ],
)
def test_a_link_needs_no_right_to_what_it_leaves_as_it_is(
    allowed: Sequence[Operation], partitions: int, configs: dict[str, str] | None
) -> None:
    async def scenario() -> None:
        broker = await begun(*allowed)
        declared = await declare(broker, MALLORY, partitions, configs)
        topic = broker.topics.get(NAME)
        assert (len(declared.partitions), topic.overrides) == (partitions, configs or KEPT)
        await broker.stop()

    run(scenario())


def test_a_refusal_does_not_say_where_a_copy_comes_from() -> None:
    """The list of links, which says it, takes the right to describe the cluster."""

    async def scenario() -> None:
        broker = await begun(CREATE)
        with pytest.raises(TopicExists) as refused:
            await declare(broker, MALLORY, origin="c/2")
        assert "elsewhere" not in str(refused.value)
        await broker.stop()

    run(scenario())
