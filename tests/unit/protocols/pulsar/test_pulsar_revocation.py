"""A right that is taken ends producers and consumers at once, and they cannot come again."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.policy.model import Tenant
from magnetar.broker.security.errors import TenantNotAuthorized, TopicNotAuthorized
from magnetar.broker.security.model import ANONYMOUS, Caller, Operation, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.protocols.pulsar.topic_lists import UPDATE_DELAY_S
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    ServerError,
)
from tests.unit.protocols.pulsar.pulsar_consuming import mark_delete, messages, publish, quiet, subscribe
from tests.unit.protocols.pulsar.pulsar_consuming import refused as subscribe_refused
from tests.unit.protocols.pulsar.pulsar_producing import produce, send
from tests.unit.protocols.pulsar.pulsar_producing import refused as produce_refused

WithDoor = Callable[..., None]
RULED: Final = AuthorizationSettings(frozenset({"User:admin"}))
EVERY: Final = Target(ResourceType.TOPIC, Pattern.EVERY, scope="public/default")
GROUPS: Final = Target(ResourceType.SUBSCRIPTION, Pattern.EVERY, scope="public/default")
WRITES: Final = Rule(str(ANONYMOUS), Operation.WRITE, EVERY)
READS: Final = [Rule(str(ANONYMOUS), Operation.READ, EVERY), Rule(str(ANONYMOUS), Operation.READ, GROUPS)]


async def change(door: PulsarDoor, *added: Rule, removed: Any = ()) -> None:
    assert door.broker.rules is not None
    await door.broker.rules.change(lambda _: (added, removed))


async def looked(door: PulsarDoor) -> None:
    """All that is held has been asked about again."""
    await door.broker.cases.standing._tasks.ended()


def test_a_producer_without_the_right_is_closed_and_refused(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        assert (await produce_refused(client))[0] == ServerError.AuthorizationError
        await change(door, WRITES)
        await produce(client)
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        await change(door, *READS)  # another change leaves it alone
        await looked(door)
        send(client, 1)
        await client.hear(BaseCommand.SEND_RECEIPT)
        await change(door, removed=[WRITES])
        assert (await client.hear(BaseCommand.CLOSE_PRODUCER)).producer_id == 1
        send(client, 2)  # was on its way, and is dropped
        assert (await produce_refused(client))[0] == ServerError.AuthorizationError
        assert len(door.broker.cases.standing) == 0

    with_door(scenario, authorization=RULED)


def test_a_consumer_without_the_right_is_closed_and_gets_no_more(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await change(door, WRITES, *READS)
        client, other = await door.connected(), await door.connected()
        await subscribe(client)
        await publish(other, 1)
        await messages(client, 1)
        await change(door, Rule("User:*", Operation.READ, EVERY, allow=False))
        assert (await client.hear(BaseCommand.CLOSE_CONSUMER)).consumer_id == 1
        await publish(other, 1)
        await quiet(client)
        assert (await subscribe_refused(client))[0] == ServerError.AuthorizationError
        assert len(door.broker.cases.standing) == 2  # the producers that published

    with_door(scenario, authorization=RULED)


def test_what_a_role_had_as_administrator_ends_with_that(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await door.broker.namespaces.update_tenant(Tenant("public", (ANONYMOUS.name,)))
        client = await door.connected()
        await produce(client)
        await subscribe(client)
        await door.broker.namespaces.update_tenant(Tenant("public"))
        await client.hear(BaseCommand.CLOSE_PRODUCER)
        await client.hear(BaseCommand.CLOSE_CONSUMER)

    with_door(scenario, authorization=RULED)


def test_a_subscription_that_is_granted_to_others_ends_its_consumers(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await change(door, *READS)
        client = await door.connected()
        await subscribe(client)
        named = Target(ResourceType.SUBSCRIPTION, Pattern.LITERAL, "s", "public/default")
        await change(door, Rule("User:ann", Operation.READ, named))
        await client.hear(BaseCommand.CLOSE_CONSUMER)

    with_door(scenario, authorization=RULED)


def test_nothing_is_kept_of_clients_that_left(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await change(door, WRITES, *READS)
        client = await door.connected()
        await produce(client)
        await subscribe(client)
        assert len(door.broker.cases.standing) == 2
        client.leave()
        await asyncio.sleep(0)
        assert len(door.broker.cases.standing) == 0

    with_door(scenario, authorization=RULED)


def test_all_of_a_namespace_is_all_that_the_caller_may_have(with_door: WithDoor) -> None:
    """A subscription that is kept for another role is neither cleared nor dropped along with the others."""

    async def scenario(door: PulsarDoor) -> None:
        await change(door, WRITES, *READS)
        client = await door.connected()
        for number, name in enumerate(("kept", "open"), 1):
            await subscribe(client, number, permits=0, subscription=name)
        named = Target(ResourceType.SUBSCRIPTION, Pattern.LITERAL, "kept", "public/default")
        await change(door, Rule("User:ann", Operation.READ, named))
        await client.hear(BaseCommand.CLOSE_CONSUMER)
        await publish(client, 1)
        subscriptions = door.broker.cases.subscriptions
        caller = Caller(ANONYMOUS, "127.0.0.1")
        await subscriptions.clear_backlogs(caller, "public/default")
        assert [mark_delete(door, name) for name in ("kept", "open")] == [0, 1]
        await subscriptions.delete_everywhere(caller, "public/default", "kept")
        assert [mark_delete(door, "kept")] == [0]

    with_door(scenario, authorization=RULED)


def test_what_may_not_be_described_is_in_no_list(with_door: WithDoor) -> None:
    """Who may read all of a namespace but one topic does not learn of that one."""
    kept = TopicName("public", "default", "kept")
    open_to_all = TopicName("public", "default", "open")
    denied = Target(ResourceType.TOPIC, Pattern.LITERAL, kept.full)

    async def scenario(door: PulsarDoor) -> None:
        await change(door, *READS, Rule(str(ANONYMOUS), Operation.ALL, denied, allow=False))
        client = await door.connected()
        assert not await watch(client)
        for name in (kept, open_to_all):
            await door.broker.pulsar_topics.create(name, 2)
        door.clock.advance(UPDATE_DELAY_S)
        shown = [open_to_all.partition_name(index) for index in range(2)]
        assert list((await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)).new_topics) == shown
        request = CommandGetTopicsOfNamespace(request_id=2, namespace="public/default")
        listed = await client.ask(request, BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
        assert list(listed.topics) == shown
        caller = Caller(ANONYMOUS, "127.0.0.1")
        cases = door.broker.cases.pulsar_topics
        whole = cases.to_list(caller, "public/default", persistent=True, whole=True)
        assert await whole.all() == [open_to_all.full]

    with_door(scenario, authorization=RULED)


async def watch(client: PulsarClient) -> list[str]:
    """Have the client watch public/default; what it is told first."""
    command = CommandWatchTopicList(
        request_id=1, watcher_id=1, namespace="public/default", topics_pattern=".*"
    )
    return list((await client.ask(command, BaseCommand.WATCH_TOPIC_LIST_SUCCESS)).topic)


def test_a_watcher_without_the_right_hears_that_all_has_gone_and_nothing_more(with_door: WithDoor) -> None:
    one, other = (TopicName("public", "default", name) for name in ("one", "other"))

    async def scenario(door: PulsarDoor) -> None:
        await change(door, *READS)
        await door.broker.pulsar_topics.create(one, 2)
        client = await door.connected()
        shown = await watch(client)
        assert shown == [one.partition_name(index) for index in range(2)]
        await change(door, Rule("User:ann", Operation.READ, EVERY))  # another change leaves it alone
        await looked(door)
        door.clock.advance(UPDATE_DELAY_S)
        await door.service.tasks.ended()
        assert not client.received
        await change(door, removed=READS)
        await looked(door)
        door.clock.advance(UPDATE_DELAY_S)
        update = await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)
        assert (list(update.deleted_topics), list(update.new_topics)) == (shown, [])
        assert update.topics_hash == "00000000"
        assert not door.broker.topics.observers
        assert len(door.broker.cases.standing) == 0
        await change(door, *READS)  # which it does not hear of: it may watch again
        await door.broker.pulsar_topics.create(other)
        door.clock.advance(UPDATE_DELAY_S)
        await quiet(client)
        assert await watch(client) == [*shown, other.full]

    with_door(scenario, authorization=RULED)


def test_a_topic_that_may_not_be_described_any_more_has_gone_for_its_watchers(with_door: WithDoor) -> None:
    kept, shown = (TopicName("public", "default", name) for name in ("kept", "shown"))
    denied = Rule(
        str(ANONYMOUS), Operation.ALL, Target(ResourceType.TOPIC, Pattern.LITERAL, kept.full), False
    )

    async def scenario(door: PulsarDoor) -> None:
        await change(door, *READS)
        for name in (kept, shown):
            await door.broker.pulsar_topics.create(name)
        client = await door.connected()
        assert await watch(client) == [kept.full, shown.full]
        await change(door, denied)
        await looked(door)
        door.clock.advance(UPDATE_DELAY_S)
        assert list((await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)).deleted_topics) == [kept.full]
        for name in (kept, shown):
            await door.broker.delete_topic(door.broker.topics.get(name))
        door.clock.advance(UPDATE_DELAY_S)
        assert list((await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)).deleted_topics) == [shown.full]

    with_door(scenario, authorization=RULED)


def test_nothing_is_kept_of_watchers_that_have_ended(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await change(door, *READS)
        client = await door.connected()
        await watch(client)
        await watch(client)  # the same id again replaces it
        assert len(door.broker.cases.standing) == 1
        await client.ask(CommandWatchTopicListClose(request_id=2, watcher_id=1), BaseCommand.SUCCESS)
        assert len(door.broker.cases.standing) == 0
        await watch(client)
        client.leave()
        assert len(door.broker.cases.standing) == 0

    with_door(scenario, authorization=RULED)


def test_who_may_change_a_namespaces_settings_lets_no_role_in(with_door: WithDoor) -> None:
    """Itself least of all: that is for who administers the tenant."""

    async def scenario(door: PulsarDoor) -> None:
        await change(door, Rule(str(ANONYMOUS), Operation.ALTER_CONFIGS, EVERY))
        caller, permissions = Caller(ANONYMOUS, "127.0.0.1"), door.broker.cases.permissions
        name = ANONYMOUS.name
        for refused in (
            permissions.grant_namespace(caller, "public/default", name, ["consume"]),
            permissions.revoke_namespace(caller, "public/default", name),
            permissions.grant_subscription(caller, "public/default", "s", [name]),
            permissions.revoke_subscription(caller, "public/default", "s", name),
        ):
            with pytest.raises(TenantNotAuthorized):
                await refused
        await door.broker.namespaces.update_tenant(Tenant("public", (name,)))
        await permissions.grant_namespace(caller, "public/default", name, ["consume"])

    with_door(scenario, authorization=RULED)


def test_a_namespace_does_not_take_along_a_topic_that_its_caller_may_not_delete(with_door: WithDoor) -> None:
    kept = TopicName("public", "default", "kept")
    denied = Target(ResourceType.TOPIC, Pattern.LITERAL, kept.full)

    async def scenario(door: PulsarDoor) -> None:
        denial = Rule(str(ANONYMOUS), Operation.DELETE, denied, allow=False)
        await change(door, Rule(str(ANONYMOUS), Operation.DELETE, EVERY), denial)
        await door.broker.pulsar_topics.create(kept)
        caller, namespaces = Caller(ANONYMOUS, "127.0.0.1"), door.broker.cases.namespaces
        with pytest.raises(TopicNotAuthorized) as refusal:
            await namespaces.delete(caller, "public/default", force=True)
        assert "kept" not in str(refusal.value)
        assert door.broker.topics.find(kept) is not None
        await change(door, removed=[denial])
        await namespaces.delete(caller, "public/default", force=True)
        assert door.broker.topics.find(kept) is None

    with_door(scenario, authorization=RULED)
