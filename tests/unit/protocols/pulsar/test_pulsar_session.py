"""The commands of a Pulsar session at work: what leaves together, when reading stops, what an end lets go of."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.base.turns import TURN_S
from magnetar.protocols.outbox import UNSENT_BYTES_MAX
from magnetar.protocols.pulsar.registry import Command
from magnetar.protocols.pulsar.session import (
    AT_WORK_BYTES_MAX,
    AT_WORK_MAX,
    UNTAKEN_ANSWER_BYTES_MAX,
    PulsarSession,
)
from magnetar.testing.pulsar import PulsarClient, PulsarDoor, framed
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandGetTopicsOfNamespace,
    CommandPing,
    CommandProducer,
    CommandSubscribe,
    CommandSuccess,
    CommandUnsubscribe,
    KeyValue,
    Schema,
    ServerError,
)

WithDoor = Callable[..., None]
SUCCESS = BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=1))


def serving(door: PulsarDoor, handle: Callable[..., Any]) -> None:
    """Have UNSUBSCRIBE handled by `handle`."""
    command = Command(BaseCommand.UNSUBSCRIBE, handle)
    door.service.commands = {**door.service.commands, BaseCommand.UNSUBSCRIBE: command}


def unsubscribe(request_id: int) -> CommandUnsubscribe:
    return CommandUnsubscribe(consumer_id=1, request_id=request_id)


def success(request_id: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id))


def test_answers_leave_when_they_are_ready_and_together(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        gates: dict[int, asyncio.Event] = {1: asyncio.Event(), 2: asyncio.Event()}

        async def wait(request_id: int) -> BaseCommand:
            await gates[request_id].wait()
            return success(request_id)

        def handle(
            _: PulsarSession, command: CommandUnsubscribe
        ) -> Coroutine[Any, Any, BaseCommand] | BaseCommand:
            return wait(command.request_id) if command.request_id in gates else success(command.request_id)

        serving(door, handle)
        client = await door.connected()
        client.writes.clear()
        client.give(b"".join(framed(unsubscribe(number)) for number in range(1, 6)))
        assert [(await client.hear(BaseCommand.SUCCESS)).request_id for _ in range(3)] == [3, 4, 5]
        assert client.writes == [3]
        gates[2].set()
        assert (await client.hear(BaseCommand.SUCCESS)).request_id == 2
        gates[1].set()
        assert (await client.hear(BaseCommand.SUCCESS)).request_id == 1

    with_door(scenario)


@pytest.mark.parametrize("waits", [False, True])
def test_what_the_broker_refuses_becomes_an_error(with_door: WithDoor, waits: bool) -> None:
    async def scenario(door: PulsarDoor) -> None:
        async def fail() -> BaseCommand:
            raise StorageError("the disk is gone")

        def handle(_: PulsarSession, command: CommandUnsubscribe) -> Coroutine[Any, Any, BaseCommand]:
            if waits:
                return fail()
            raise StorageError("the disk is gone")

        serving(door, handle)
        client = await door.connected()
        error = await client.ask(unsubscribe(7), BaseCommand.ERROR)
        assert (error.request_id, error.error, error.message) == (
            7,
            ServerError.PersistenceError,
            "the disk is gone",
        )
        assert not client.is_closed

    with_door(scenario)


@pytest.mark.parametrize("waits", [False, True])
def test_a_bug_of_ours_closes_the_connection_and_is_logged(
    with_door: WithDoor, caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        async def fail() -> BaseCommand:
            raise AssertionError("a bug")

        def handle(_: PulsarSession, command: CommandUnsubscribe) -> Coroutine[Any, Any, BaseCommand]:
            if waits:
                return fail()
            raise AssertionError("a bug")

        serving(door, handle)
        client = await door.connected()
        client.say(unsubscribe(7))
        for _ in range(5):
            await asyncio.sleep(0)
        assert client.is_closed
        assert "a bug" in caplog.text
        assert "failed inside the broker; the server closes its connection" in caplog.text
        assert not door.service.tasks

    with_door(scenario)


def test_work_goes_on_when_its_client_has_gone(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        gate = asyncio.Event()
        ended: list[int] = []

        async def wait(request_id: int) -> BaseCommand:
            await gate.wait()
            ended.append(request_id)
            return success(request_id)

        serving(door, lambda _, command: wait(command.request_id))
        client = await door.connected()
        client.say(unsubscribe(1))
        client.leave()
        gate.set()
        await door.service.tasks.ended()
        assert ended == [1]
        assert not client.received
        assert door.service.queued_bytes == 0

    with_door(scenario)


@pytest.mark.parametrize(("size", "count"), [(1, AT_WORK_MAX + 1), (AT_WORK_BYTES_MAX // 4, 5)])
def test_reading_pauses_while_too_much_is_at_work(with_door: WithDoor, size: int, count: int) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        for _ in range(count - 1):
            client.session.began_work(size)
        assert not client.is_paused
        client.session.began_work(size)
        assert client.is_paused
        for _ in range(count):
            client.session.ended_work(size)
        assert not client.is_paused

    with_door(scenario)


def test_all_sessions_together_are_bounded(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        one, other = await door.connected(), await door.connected()
        door.service.memory.bytes_max = 1000
        one.session.began_work(900)
        other.session.began_work(200)
        assert (one.is_paused, other.is_paused) == (False, True)
        one.session.ended_work(900)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not other.is_paused
        other.leave()
        other.session.ended_work(200)
        assert door.service.queued_bytes == door.service.memory.used == 0

    with_door(scenario)


def test_a_slow_peer_is_not_writable_and_says_when_it_is_again(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        session = client.session
        told: list[str] = []
        session.when_writable.add(lambda: told.append("writable"))
        assert session.is_writable
        session.peer_is_slow(True)
        assert not session.is_writable
        session.peer_is_slow(False)
        assert told == ["writable"]
        session.peer_is_slow(True)
        session.peer_is_slow(False)
        assert told == ["writable"], "it was not asked in between"

    with_door(scenario)


def test_one_turn_takes_so_much_and_no_more(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        told: list[str] = []
        client.session.when_writable.add(lambda: told.append("writable"))
        frame = framed(CommandPing())
        many = frame * (UNSENT_BYTES_MAX // len(frame) + 1)
        client.session.send_parts([many], len(many))
        assert not client.session.is_writable
        await client.hear(BaseCommand.PING)
        assert told == ["writable"]

    with_door(scenario)


def test_answers_for_a_peer_that_takes_nothing_stop_its_reading(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        client.session.peer_is_slow(True)
        assert not client.is_paused, "who is sent messages may go on to acknowledge them"
        frame = len(framed(CommandSuccess(request_id=1)))
        for _ in range(UNTAKEN_ANSWER_BYTES_MAX // frame + 1):
            client.session.send(SUCCESS)
        assert client.is_paused
        client.session.peer_is_slow(False)
        assert not client.is_paused

    with_door(scenario)


class Held:
    """Something attached to a session."""

    def __init__(self) -> None:
        self.lost = 0

    def connection_lost(self) -> None:
        self.lost += 1

    def close_notice(self) -> BaseCommand | None:
        return BaseCommand(
            type=BaseCommand.CLOSE_CONSUMER,
            close_consumer=CommandCloseConsumer(consumer_id=3, request_id=(1 << 64) - 1),
        )


def test_a_stop_waits_for_what_is_at_work_then_tells_all_attached(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        gate = asyncio.Event()

        async def wait() -> BaseCommand:
            await gate.wait()
            return SUCCESS

        serving(door, lambda *_: wait())
        client = await door.connected()
        held = client.session.consumers[3] = Held()
        client.say(unsubscribe(1))
        client.session.finish()
        assert not client.is_closed
        client.say(unsubscribe(2))  # too late
        gate.set()
        await client.hear(BaseCommand.SUCCESS)
        assert (await client.hear(BaseCommand.CLOSE_CONSUMER)).consumer_id == 3
        assert client.is_closed
        assert held.lost == 1
        assert not client.received

    with_door(scenario)


def test_a_connection_that_breaks_lets_go_of_all_it_had(
    with_door: WithDoor, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Held):
        def connection_lost(self) -> None:
            super().connection_lost()
            raise AssertionError("a bug of a consumer's")

    async def scenario(door: PulsarDoor) -> None:
        client: PulsarClient = await door.connected()
        producer, consumer, watcher = Held(), Broken(), Held()
        client.session.producers[1] = producer
        client.session.consumers[1] = consumer
        client.session.watchers[1] = watcher
        client.leave()
        client.session.closed()
        assert [producer.lost, consumer.lost, watcher.lost] == [1, 1, 1]
        assert "a bug of a consumer's" in caplog.text
        assert not door.service.sessions

    with_door(scenario)


def test_commands_that_came_together_leave_turns_to_others(with_door: WithDoor) -> None:
    # 64 KiB that ask for the topics of a namespace again and again were one turn of the event loop, of six seconds.
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        time_s = count(0, TURN_S / 3)
        client.session.intake.monotonic = lambda: next(time_s)
        counts = door.service.command_counts
        kind = BaseCommand.GET_TOPICS_OF_NAMESPACE
        commands = [CommandGetTopicsOfNamespace(request_id=n, namespace="public/default") for n in range(50)]
        client.give(b"".join(map(framed, commands)))
        assert counts[kind] <= 3
        assert client.is_paused
        client.say(CommandGetTopicsOfNamespace(request_id=50, namespace="public/default"))
        done = counts[kind]
        while done < 51:
            await asyncio.sleep(0)
            assert counts[kind] <= done + 3
            done = counts[kind]
        for number in range(51):
            answer = await client.hear(BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
            assert answer.request_id == number
        assert not client.is_paused
        assert door.service.memory.used == 0

    with_door(scenario)


def test_commands_that_wait_for_their_turn_are_forgotten_with_their_connection(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        time_s = count(0, TURN_S)
        client.session.intake.monotonic = lambda: next(time_s)
        client.give(framed(CommandPing()) * 5)
        client.leave()
        for _ in range(3):
            await asyncio.sleep(0)
        assert door.service.command_counts[BaseCommand.PING] <= 1
        assert door.service.memory.used == 0

    with_door(scenario)


@pytest.mark.parametrize(
    "command",
    [
        CommandProducer(topic="t", producer_id=1, request_id=1, producer_name="n" * 70_000),
        CommandProducer(
            topic="t", producer_id=1, request_id=1, metadata=[KeyValue(key="k", value="v" * 70_000)]
        ),
        CommandSubscribe(
            topic="t",
            subscription="s",
            subType=CommandSubscribe.Shared,
            consumer_id=1,
            request_id=1,
            consumer_name="n" * 70_000,
        ),
    ],
)
def test_what_is_kept_of_producers_and_consumers_is_bounded(with_door: WithDoor, command: Any) -> None:
    # 400 of them on one connection, of a megabyte each, were 370 MiB under a limit of 64 MiB.
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        refused = await client.ask(command, BaseCommand.ERROR)
        assert refused.error == ServerError.NotAllowedError
        assert not client.session.producers
        assert not client.session.consumers
        large_schema = Schema(name="s", schema_data=bytes(70_000), type=Schema.Bytes)
        asked = CommandProducer(topic="t", producer_id=1, request_id=2, schema=large_schema)
        assert (await client.ask(asked, BaseCommand.PRODUCER_SUCCESS)).request_id == 2

    with_door(scenario)
