"""GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST: what is listed, what a pattern means, what watchers get."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest
from crc32c import crc32c

from magnetar.base.lane import TEXTS_PER_PIECE, Lane
from magnetar.base.names import TopicName
from magnetar.base.patterns import PATTERN_CHARS_MAX
from magnetar.broker.topics.listing import PIECE_S
from magnetar.broker.topics.model import NewTopic
from magnetar.protocols.pulsar.handlers import topics as handlers
from magnetar.protocols.pulsar.patterns import InvalidPattern, matcher
from magnetar.protocols.pulsar.topic_lists import NAME_BYTES, UPDATE_DELAY_S, topics_hash
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


def hash_of(names: Iterable[str]) -> str:
    """As Pulsar's clients compute it."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


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
    assert hash_of(names) == expected
    assert hash_of(["b", "a"]) == hash_of(["a", "b"]) == hash_of(["a,b"])


def test_a_long_list_has_the_hash_of_the_whole() -> None:
    for count in (0, 1, TEXTS_PER_PIECE, 2 * TEXTS_PER_PIECE + 1):
        names = [f"t{number:06}" for number in range(count)]
        assert asyncio.run(topics_hash(Lane(), names)) == hash_of(names)


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
        assert found.topics_hash == hash_of(persistent)
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
        assert first.topics_hash == hash_of(first.topic)
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
        assert update.topics_hash == hash_of(update.new_topics)
        await door.broker.pulsar_topics.grow(TopicName.parse("a4"), 3)
        door.clock.advance(UPDATE_DELAY_S)
        grown = await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)
        assert list(grown.new_topics) == [PREFIX + "a4-partition-2"]
        await make(door, "b3")
        door.clock.advance(1)
        await door.service.tasks.ended()
        assert not client.received

    with_door(scenario)


def test_a_watcher_that_knows_the_list_is_not_sent_it(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await make(door, "a1")
        client = await door.connected()
        known = await watched(client, ".*", topics_hash=hash_of([PREFIX + "a1"]))
        assert not known.topic
        await make(door, "a2")
        door.clock.advance(UPDATE_DELAY_S)
        assert list((await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)).new_topics) == [PREFIX + "a2"]

    with_door(scenario)


def test_a_connection_watches_so_many_lists_and_no_more(
    with_door: WithDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "WATCHERS_MAX", 1)

    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await watched(client, ".*")
        await watched(client, "x.*")  # the same id again replaces it
        client.say(
            CommandWatchTopicList(request_id=8, watcher_id=2, namespace="public/default", topics_pattern=".*")
        )
        refused = await client.hear(BaseCommand.ERROR)
        assert (refused.request_id, refused.error) == (8, ServerError.NotAllowedError)
        assert len(door.broker.topics.observers) == 1

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
        await door.service.tasks.ended()
        assert not client.received
        await client.ask(CommandWatchTopicListClose(request_id=9, watcher_id=1), BaseCommand.SUCCESS)
        await watched(client, ".*")
        await make(door, "b")
        client.leave()
        assert not door.broker.topics.observers
        door.clock.advance(1)

    with_door(scenario)


# --- very long lists ------------------------------------------------------------------------------------------------


async def make_many(door: PulsarDoor, *names: str, partition_count: int = 1) -> None:
    topics = door.broker.topics
    await topics.create([topics.plan(NewTopic(TopicName.parse(name), partition_count)) for name in names])


async def in_pieces(door: PulsarDoor, asked: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """The answer, and how many turns of the event loop went by until it came."""
    asking = asyncio.ensure_future(asked)
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    return asking.result(), turns


@pytest.mark.parametrize("width", [1, 2_500])
def test_a_long_list_leaves_turns_to_others(with_door: WithDoor, width: int) -> None:
    """Fifty thousand topics were one turn of the event loop, of 50 ms."""

    async def scenario(door: PulsarDoor) -> None:
        names = [f"n{number:05}" for number in range(5_000 // width)]
        await make_many(door, *reversed(names), partition_count=width)
        expected = sorted(f"{PREFIX}{name}-partition-{index}" for name in names for index in range(width))
        client = await door.connected()
        broker, encoder = door.broker.pulsar_topics.lane, door.service.lane
        found, turns = await in_pieces(door, listed(client))
        assert list(found.topics) == expected
        assert found.topics_hash == hash_of(expected)
        assert broker.pieces >= 10, "found and put in order"
        assert encoder.pieces >= 10, "hashed and encoded"
        assert turns >= broker.pieces + encoder.pieces, "a turn for each"
        first, turns = await in_pieces(door, watched(client, "public/default/.*"))
        assert list(first.topic) == expected
        assert first.topics_hash == hash_of(expected)
        assert turns >= 20
        encoder.pieces = 0
        await make_many(door, "a", "z")
        door.clock.advance(UPDATE_DELAY_S)
        update = await client.hear(BaseCommand.WATCH_TOPIC_UPDATE)
        came = [f"{PREFIX}{name}-partition-0" for name in ("a", "z")]
        assert list(update.new_topics) == came
        assert update.topics_hash == hash_of([*expected, *came])
        assert encoder.pieces >= 5, "the hash is that of all"

    with_door(scenario)


def test_a_topic_that_is_there_all_the_while_is_listed_once(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        kept = [f"k{number:04}" for number in range(3_000)]
        going = [f"g{number}" for number in range(5)]
        await make_many(door, *kept, *going)
        client, watching = await door.connected(), await door.connected()
        asking = asyncio.ensure_future(listed(client))
        asking_first = asyncio.ensure_future(watched(watching, ".*"))
        await asyncio.sleep(0)
        for number, name in enumerate(going):
            await door.broker.delete_topic(door.broker.topics.get(TopicName.parse(name)))
            await make_many(door, f"c{number}", *([name] if number % 2 else []))
            assert number > 1 or not asking_first.done()
        names = [name.removesuffix("-partition-0").removeprefix(PREFIX) for name in (await asking).topics]
        assert len(names) == len(set(names))
        assert {*names} >= {*kept}
        assert {*names} <= {*kept, *going, *(f"c{number}" for number in range(5))}
        # Who watches knows all of them in the end.
        seen = set((first := await asking_first).topic)
        assert first.topics_hash == hash_of(first.topic)
        there = {
            f"{PREFIX}{name}-partition-0"
            for name in (*kept, "g1", "g3", *(f"c{number}" for number in range(5)))
        }
        while seen != there:
            door.clock.advance(UPDATE_DELAY_S)
            update = await watching.hear(BaseCommand.WATCH_TOPIC_UPDATE)
            seen = (seen - {*update.deleted_topics}) | {*update.new_topics}
            assert update.topics_hash == hash_of(seen)

    with_door(scenario)


def test_the_memory_of_a_list_is_counted_before_it_is_made(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await make_many(door, *(f"n{number}" for number in range(300)))
        memory, lane = door.service.memory, door.broker.pulsar_topics.lane
        client = await door.connected()
        await memory.take_objects(0, memory.bytes_max)
        lists = [
            asyncio.ensure_future(listed(client)),
            asyncio.ensure_future(watched(client, ".*")),
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        assert memory.objects_waiting == 2
        assert not lane.pieces, "nothing is made yet"
        memory.give_objects(memory.bytes_max)
        await asyncio.sleep(0)
        assert memory.objects_used == 2 * 300 * NAME_BYTES
        await asyncio.gather(*lists)
        await door.service.tasks.ended()
        assert not memory.objects_used

    with_door(scenario)


def test_a_slow_pattern_is_matched_in_turns(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await make_many(door, *(f"n{number}" for number in range(50)))
        client = await door.connected()
        clock, lane = door.clock, door.broker.pulsar_topics.lane
        listing = door.broker.cases.pulsar_topics.to_list(client.session.caller, "public/default")

        def matches(name: str) -> bool:
            clock.advance(PIECE_S)
            return True

        assert len(await listing.all(matches)) == 50
        assert lane.pieces >= 50, "one name in each turn"

    with_door(scenario)
