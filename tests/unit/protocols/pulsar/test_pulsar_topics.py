"""GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST: what is listed, what a pattern means, what watchers get."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.base.patterns import PATTERN_CHARS_MAX
from magnetar.broker.topics.model import NewTopic
from magnetar.protocols.pulsar.patterns import InvalidPattern, matcher
from magnetar.protocols.pulsar.topic_lists import UPDATE_DELAY_S, topics_hash
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicListSuccess,
    ServerError,
)

WithDoor = Callable[..., None]
PREFIX = "persistent://public/default/"


async def make(door: PulsarDoor, name: str, partition_count: int = 0) -> None:
    await door.broker.pulsar_topics.create(TopicName.parse(name), partition_count)


async def listed(client: PulsarClient, **fields: Any) -> CommandGetTopicsOfNamespaceResponse:
    command = CommandGetTopicsOfNamespace(**{"request_id": 3, "namespace": "public/default", **fields})
    found: CommandGetTopicsOfNamespaceResponse = await client.ask(
        command, BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
    )
    assert found.request_id == 3
    return found


async def watched(client: PulsarClient, pattern: str, **fields: Any) -> CommandWatchTopicListSuccess:
    command = CommandWatchTopicList(
        **{
            "request_id": 4,
            "watcher_id": 1,
            "namespace": "public/default",
            "topics_pattern": pattern,
            **fields,
        }
    )
    found: CommandWatchTopicListSuccess = await client.ask(command, BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    assert (found.request_id, found.watcher_id) == (4, command.watcher_id)
    return found


# What Guava's Hashing.crc32c() prints.
@pytest.mark.parametrize(("names", "expected"), [([], "00000000"), (["123456789"], "839206e3")])
def test_the_hash_is_guavas(names: list[str], expected: str) -> None:
    assert topics_hash(names) == expected
    assert topics_hash(["b", "a"]) == topics_hash(["a", "b"]) == topics_hash(["a,b"])


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("public/default/a.*", "persistent://public/default/abc", True),
        ("persistent://public/default/a.*", "persistent://public/default/abc", True),
        ("^persistent://public/default/a.*$", "persistent://public/default/abc", True),
        ("public/default/a", "persistent://public/default/abc", False),
        ("public/default/a", "persistent://public/default/a-partition-12", True),
        ("public/default/a", "non-persistent://public/default/a", True),
        (".*", "persistent://public/default/abc", True),
        ("default/a.*", "persistent://public/default/abc", False),
    ],
)
def test_a_pattern_means_names_without_domain_and_partition(pattern: str, name: str, matches: bool) -> None:
    assert matcher(pattern)(name) is matches


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", "x" * (PATTERN_CHARS_MAX + 1), "(a{1000}){1000}"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        matcher(pattern)


def test_no_pattern_takes_long() -> None:
    matches = matcher("(a|a?)+" * 20 + "b")
    started = time.process_time()
    assert not matches("persistent://public/default/" + "a" * 249)
    assert time.process_time() - started < 1, "a backtracking engine would not end"


def test_topics_are_listed_by_their_partitions(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await make(door, "plain")
        await make(door, "parts", 2)
        await make(door, "non-persistent://public/default/gone")
        topics = door.broker.topics
        await topics.create([topics.plan(NewTopic(TopicName.parse("kafkas"), 1))])
        await door.broker.namespaces.create("public/other")
        await make(door, "public/other/elsewhere")
        client = await door.connected()
        persistent = [
            PREFIX + name
            for name in ("kafkas-partition-0", "parts-partition-0", "parts-partition-1", "plain")
        ]
        found = await listed(client)
        assert (list(found.topics), found.changed, found.filtered) == (persistent, True, False)
        assert found.topics_hash == topics_hash(persistent)
        other = await listed(client, mode=CommandGetTopicsOfNamespace.NON_PERSISTENT)
        assert list(other.topics) == ["non-persistent://public/default/gone"]
        both = await listed(client, mode=CommandGetTopicsOfNamespace.ALL)
        assert sorted(both.topics) == sorted([*persistent, *other.topics])
        known = await listed(client, topics_hash=found.topics_hash)
        assert (list(known.topics), known.changed) == ([], False)
        some = await listed(client, topics_pattern="public/default/p.*")
        assert (list(some.topics), some.filtered) == (persistent[1:], True)

    with_door(scenario)


def test_a_namespace_that_does_not_exist_has_no_topics(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        found = await listed(client, namespace="public/nowhere", mode=CommandGetTopicsOfNamespace.ALL)
        assert (list(found.topics), found.changed) == ([], True)
        watch = CommandWatchTopicList(
            request_id=4, watcher_id=1, namespace="public/nowhere", topics_pattern="public/nowhere/.*"
        )
        assert list((await client.ask(watch, BaseCommand.WATCH_TOPIC_LIST_SUCCESS)).topic) == []
        await door.broker.namespaces.create("public/nowhere")
        await make(door, "public/nowhere/there")
        door.clock.advance(UPDATE_DELAY_S)
        update = await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)
        assert list(update.new_topics) == ["persistent://public/nowhere/there"]

    with_door(scenario)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"namespace": "public"}, ServerError.InvalidTopicName),
        ({"topics_pattern": "("}, ServerError.NotAllowedError),
    ],
)
def test_a_list_that_cannot_be_made_is_refused(
    with_door: WithDoor, fields: dict[str, str], error: "ServerError"
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        list_command = CommandGetTopicsOfNamespace(
            **{"request_id": 3, "namespace": "public/default", **fields}  # type: ignore[arg-type]
        )
        assert (await client.ask(list_command, BaseCommand.ERROR)).error == error
        watch_command = CommandWatchTopicList(
            **{  # type: ignore[arg-type]
                "request_id": 4,
                "watcher_id": 1,
                "namespace": "public/default",
                "topics_pattern": ".*",
                **fields,
            }
        )
        assert (await client.ask(watch_command, BaseCommand.ERROR)).error == error
        assert not client.session.watchers
        assert not door.broker.topics.observers

    with_door(scenario)


def test_watchers_are_told_what_comes_and_goes_in_few_words(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await make(door, "a1")
        await make(door, "b1")
        client = door.client()
        assert (await client.connect()).feature_flags.supports_topic_watchers
        first = await watched(client, "public/default/a.*")
        assert list(first.topic) == [PREFIX + "a1"]
        assert first.topics_hash == topics_hash(first.topic)
        for name in ("a2", "b2", "a3"):
            await make(door, name)
        await make(door, "a4", 2)
        await door.broker.delete_topic(door.broker.topics.get(TopicName.parse("a3")))
        await door.broker.delete_topic(door.broker.topics.get(TopicName.parse("a1")))
        assert not client.received
        door.clock.advance(UPDATE_DELAY_S)
        update = await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)
        assert update.watcher_id == 1
        assert list(update.new_topics) == [
            PREFIX + name for name in ("a2", "a4-partition-0", "a4-partition-1")
        ]
        assert list(update.deleted_topics) == [PREFIX + "a1"]
        assert update.topics_hash == topics_hash(update.new_topics)
        await door.broker.pulsar_topics.grow(TopicName.parse("a4"), 3)
        door.clock.advance(UPDATE_DELAY_S)
        grown = await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)
        assert list(grown.new_topics) == [PREFIX + "a4-partition-2"]
        await make(door, "b3")
        door.clock.advance(1)
        assert not client.received

    with_door(scenario)


def test_a_watcher_that_knows_the_list_is_not_sent_it(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await make(door, "a1")
        client = await door.connected()
        known = await watched(client, ".*", topics_hash=topics_hash([PREFIX + "a1"]))
        assert not known.topic
        await make(door, "a2")
        door.clock.advance(UPDATE_DELAY_S)
        assert list((await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)).new_topics) == [PREFIX + "a2"]

    with_door(scenario)


def test_watching_ends_with_the_command_and_with_the_connection(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await watched(client, ".*")
        await watched(client, "x.*")  # the same id again replaces it
        assert len(door.broker.topics.observers) == 1
        await make(door, "a")
        closed = await client.ask(CommandWatchTopicListClose(request_id=9, watcher_id=1), BaseCommand.SUCCESS)
        assert closed.request_id == 9
        door.clock.advance(1)
        assert not client.received
        await client.ask(CommandWatchTopicListClose(request_id=9, watcher_id=1), BaseCommand.SUCCESS)
        await watched(client, ".*")
        await make(door, "b")
        client.leave()
        assert not door.broker.topics.observers
        door.clock.advance(1)

    with_door(scenario)
