"""Every command and the rights that it asks for: the answer to a client without them, and that nothing changes then.

`tests/authorization/pulsar.txt` holds what each command asks.  A command that stands in neither of the two tables of
`authorized_commands.py` fails.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.schemas.model import Schema, SchemaType
from magnetar.broker.security.model import Caller, Operation, Resource, subscription_resource, topic_resource
from magnetar.protocols.pulsar.commands import load_commands
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, ServerError
from tests import written_rights
from tests.unit.protocols.pulsar.authorized_commands import (
    ASKS_NOTHING,
    DENIED,
    SHARED,
    TOPIC,
    Form,
    Right,
    asking,
    not_asking,
)
from tests.unit.protocols.pulsar.pulsar_consuming import publish, subscribe
from tests.unit.protocols.pulsar.pulsar_producing import entry, produce

WithDoor = Callable[..., None]
GOLDEN: Final = written_rights.FOLDER / "pulsar.txt"
PARTITIONED: Final = TopicName.parse("persistent://public/default/partitioned")

# What producers and consumers do all the time: only a refusal of it is in the audit log.
UNRECORDED: Final = frozenset(
    (
        "CLOSE_CONSUMER",
        "CLOSE_PRODUCER",
        "NEW_TXN",
        "PRODUCER",
        "SCALABLE_TOPIC_LOOKUP",
        "SCALABLE_TOPIC_SUBSCRIBE",
        "SEEK",
        "SEND",
        "SUBSCRIBE",
        "WATCH_TOPIC_LIST",
        "WATCH_TOPIC_LIST_CLOSE",
    )
)


class Rules:
    """An authorizer that notes what it is asked, and denies everything, one right, or nothing."""

    def __init__(self) -> None:
        self.denies = False
        self.denied: Right | None = None
        self.asked: list[tuple[Operation, Resource]] = []

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        assert caller.host == "127.0.0.1"
        self.asked.append((operation, resource))
        return not self.denies and (operation, resource.type) != self.denied


async def furnished(door: PulsarDoor) -> PulsarClient:
    """A client with producer, consumer and watcher 1 on a topic that has messages, a subscription and a schema."""
    client = await door.connected()
    await publish(client, 3)
    await produce(client)
    await subscribe(client, permits=0, subType=SHARED)
    watch = pb.CommandWatchTopicList(
        namespace="public/default", watcher_id=1, request_id=1, topics_pattern="public/default/.*"
    )
    await client.ask(watch, BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    await door.broker.schemas.register(TopicName.parse(TOPIC), Schema(SchemaType.JSON, b'{"type": "string"}'))
    if door.broker.topics.find(PARTITIONED) is None:
        await door.broker.pulsar_topics.create(PARTITIONED, 3)
    client.received.clear()
    return client


async def everything(door: PulsarDoor) -> dict[str, Any]:
    """All that a command could change."""
    broker = door.broker
    partitions = [partition for topic in broker.topics for partition in topic.open_partitions]
    sessions: list[Any] = list(door.service.sessions)
    return {
        "stored": [(path, one.version, one.value) for path, one in await door.metadata.scan("/")],
        "topics": sorted((topic.name.full, topic.partition_count) for topic in broker.topics),
        "logs": [(one.log.name, one.log.log_start, one.log.next_offset) for one in partitions],
        "subscriptions": [
            (name, broker.subscription_admin.cursor(one, name).mark_delete)
            for one in partitions
            for name in broker.subscriptions.names(one)
        ],
        "consumers": [len(found.consumers) for one in partitions for found in broker.subscriptions.of(one)],
        "producers": [len(broker.producers.find(one) or ()) for one in partitions],
        "observers": len(broker.topics.observers),
        "attached": [
            (set(one.producers), set(one.consumers), set(one.watchers), set(one.layouts)) for one in sessions
        ],
    }


async def settled(door: PulsarDoor) -> None:
    """All commands that were at work have been answered."""
    await door.service.tasks.ended()
    await asyncio.sleep(0)


async def refused(door: PulsarDoor, client: PulsarClient, body: Any) -> tuple[int, Any, str]:
    """The one answer to a command: its type, the error and the text."""
    client.say(body)
    await settled(door)
    ((kind, answer, _),) = client.received
    client.received.clear()
    name = "request_id" if "request_id" in answer.DESCRIPTOR.fields_by_name else "session_id"
    assert getattr(answer, name) == 1
    fields = answer.DESCRIPTOR.fields_by_name
    if "error_code" in fields:
        return kind, answer.error_code, answer.error_message
    if "response" in fields:
        assert answer.response == type(answer).Failed
    return kind, answer.error, answer.message


def test_each_command_asks_or_has_a_reason_not_to() -> None:
    kinds = set(load_commands())
    assert not ASKS_NOTHING.keys() & DENIED.keys()
    assert kinds == ASKS_NOTHING.keys() | DENIED.keys()
    assert ASKS_NOTHING.keys() == not_asking().keys()
    assert DENIED.keys() == asking(TOPIC).keys()


@pytest.mark.parametrize("kind", DENIED, ids=BaseCommand.Type.Name)
def test_a_denied_client_is_told_so_and_nothing_changes(with_door: WithDoor, kind: int) -> None:
    """What is there and what is not are denied alike."""
    rules = Rules()
    answer, right = DENIED[kind]

    async def scenario(door: PulsarDoor) -> None:
        client = await furnished(door)
        before = await everything(door)
        rules.denies = True
        for topic in (
            TOPIC,
            PARTITIONED.full,
            PARTITIONED.partition_name(1),
            "persistent://public/default/missing",
            "persistent://public/missing/t",
        ):
            for body, *_ in asking(topic)[kind]:
                error = answer, ServerError.AuthorizationError, f"Client is not authorized to {right}"
                door.audit.take()
                rules.asked.clear()
                assert await refused(door, client, body) == error, body
                (line,) = door.audit.take()
                operation, resource = rules.asked[-1]
                said = [line[name] for name in ("event", "operation", "resource_type", "resource")]
                assert said == ["refusal", operation.name, resource.type.value, resource.name], body
                assert line.get("topic", "") == resource.topic
                who = [line[name] for name in ("principal", "host", "door", "client")]
                assert who == ["User:ANONYMOUS", "127.0.0.1", "pulsar", "test"]
                assert await everything(door) == before, body
        client.say(pb.CommandPing())
        await client.hear(BaseCommand.PONG)

    with_door(scenario, authorizer=rules)


def test_a_client_without_one_of_several_rights_changes_nothing(with_door: WithDoor) -> None:
    """Not even with the rights that the command asks for before that one."""
    rules = Rules()
    tried: list[tuple[str, Right]] = []

    async def scenario(door: PulsarDoor) -> None:
        client = await furnished(door)
        before = await everything(door)
        for topic in (TOPIC, "persistent://public/default/missing"):
            forms = [form for kind in asking(topic).values() for form in kind if len(form.rights) > 1]
            for body, rights, _ in forms:
                for right in rights:
                    rules.denied = right
                    _, error, _ = await refused(door, client, body)
                    assert error == ServerError.AuthorizationError, (body, right)
                    assert await everything(door) == before, (body, right)
                    tried.append((topic, right))

    with_door(scenario, authorizer=rules)
    assert len(tried) == 4, "PRODUCER with a first subscription, of two topics"


def test_what_each_command_asks_is_written_down(with_door: WithDoor) -> None:
    rules = Rules()
    found: list[str] = []
    unrecorded: set[str] = set()

    async def scenario(door: PulsarDoor) -> None:
        nothing = {kind: [Form(body, frozenset())] for kind, body in not_asking().items()}
        forms = nothing | asking(TOPIC)
        for kind in sorted(load_commands(), key=BaseCommand.Type.Name):
            asked: set[str] = set()
            changes: set[str] = set()
            for body, rights, hides in forms[kind]:
                client = await furnished(door)
                if kind == BaseCommand.CONNECT:
                    client = door.client()
                rules.asked.clear()
                before = await everything(door)
                door.audit.take()
                client.say(body, entry(0) if kind == BaseCommand.SEND else b"")
                await settled(door)
                assert not client.is_closed, body
                recorded = [line["operation"] for line in door.audit.take()]
                changes.update(recorded)
                if not recorded and await everything(door) != before:
                    unrecorded.add(BaseCommand.Type.Name(kind))
                questions = [f"{operation.name} {resource.type.value}" for operation, resource in rules.asked]
                assert len(rules.asked) == len(set(rules.asked)), body
                found_rights = {(operation, resource.type) for operation, resource in rules.asked}
                assert rights <= found_rights <= rights | hides, body
                asked.update(questions)
                client.leave()
                await settled(door)
            told = f" > {', '.join(sorted(changes))}" if changes else ""
            found.append(f"{BaseCommand.Type.Name(kind)}: {', '.join(sorted(asked)) or 'nothing'}{told}\n")

    with_door(scenario, authorizer=rules)
    written_rights.check(found, GOLDEN)
    assert unrecorded == UNRECORDED, "what changes the state has a line in the audit log, or stands here"


def test_the_questions_name_the_topic_and_the_subscription(with_door: WithDoor) -> None:
    """A partition is asked for by its topic."""
    rules = Rules()

    async def scenario(door: PulsarDoor) -> None:
        client = await furnished(door)
        rules.asked.clear()
        partition = PARTITIONED.partition_name(2)
        await produce(client, 8, topic=partition)
        await produce(client, 9, topic=partition, initial_subscription_name="first")
        await subscribe(client, 8, permits=0, topic=partition, subscription="second")
        topic = topic_resource(PARTITIONED.full)
        assert [resource for _, resource in rules.asked] == [
            topic,
            topic,
            subscription_resource(PARTITIONED.full, "first"),
            subscription_resource(PARTITIONED.full, "second"),
        ]

    with_door(scenario, authorizer=rules)
