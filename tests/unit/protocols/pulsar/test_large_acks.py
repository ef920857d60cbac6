"""ACK commands of very many ids or words: others have their turns in between, and commands keep their order."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.subscriptions.ack_turns import WORDS_AT_ONCE
from magnetar.broker.subscriptions.model import IDS_AT_ONCE
from magnetar.protocols.pulsar.handlers.consumer import REDELIVERED_AT_ONCE
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandPing,
    CommandRedeliverUnacknowledgedMessages,
    MessageIdData,
    ServerError,
)
from tests.unit.admin.world import World, run

LARGE = 20 * IDS_AT_ONCE


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    return lambda scenario: run(tmp_path, scenario)


Play = Callable[[Callable[[World], Awaitable[None]]], None]


async def ready(world: World) -> tuple[Any, Any, int]:
    """A consumer that has got five entries of two messages, another client, and the ledger."""
    await world.publish(5, batch=2)
    consumer = await world.subscribed(permits=100)
    for _ in range(5):
        message = await consumer.hear(BaseCommand.MESSAGE)
    return consumer, await world.door.connected(), message.message_id.ledgerId


def ack(request_id: int, ids: list[MessageIdData], cumulative: bool = False) -> CommandAck:
    kind = CommandAck.Cumulative if cumulative else CommandAck.Individual
    return CommandAck(consumer_id=1, ack_type=kind, message_id=ids, request_id=request_id)


def many_ids(ledger: int) -> list[MessageIdData]:
    """The second message of entry 0 again and again, and at the end entry 1."""
    first = [MessageIdData(ledgerId=ledger, entryId=0, ack_set=[0b01])] * (LARGE - 1)
    return [*first, MessageIdData(ledgerId=ledger, entryId=1)]


def many_words(ledger: int) -> list[MessageIdData]:
    """As `many_ids`: few ids, each with very many words."""
    words = [0b01, *[0] * WORDS_AT_ONCE * 2]
    first = [MessageIdData(ledgerId=ledger, entryId=0, ack_set=words)] * 20
    return [*first, MessageIdData(ledgerId=ledger, entryId=1)]


@pytest.mark.parametrize("many", [many_ids, many_words])
def test_others_are_answered_while_a_command_is_taken_piece_by_piece(
    play: Play, many: Callable[[int], list[MessageIdData]]
) -> None:
    """A megabyte of them was taken in one go: hundreds of milliseconds in which no client was served."""

    async def scenario(world: World) -> None:
        consumer, other, ledger = await ready(world)
        consumer.say(ack(1, many(ledger)))
        for _ in range(3):
            await other.ask(CommandPing(), BaseCommand.PONG)
            await asyncio.sleep(0)
        assert consumer.received == [], "the command is at work"
        assert await world.backlog() >= 9
        assert (await consumer.hear(BaseCommand.ACK_RESPONSE)).request_id == 1
        assert await world.backlog() == 7

    play(scenario)


@pytest.mark.parametrize("many", [many_ids, many_words])
def test_commands_behind_a_large_one_take_effect_and_are_answered_after_it(
    play: Play, many: Callable[[int], list[MessageIdData]]
) -> None:
    async def scenario(world: World) -> None:
        consumer, _, ledger = await ready(world)
        consumer.say(ack(1, many(ledger)))
        consumer.say(ack(2, [MessageIdData(ledgerId=ledger, entryId=2)]))
        consumer.say(ack(3, many(ledger)))
        consumer.say(ack(4, [MessageIdData(ledgerId=ledger, entryId=4)], cumulative=False))
        assert await world.backlog() >= 9, "none has overtaken the first one"
        answers = [(await consumer.hear(BaseCommand.ACK_RESPONSE)).request_id for _ in range(4)]
        assert answers == [1, 2, 3, 4]
        assert await world.backlog() == 3
        consumer.say(ack(5, [MessageIdData(ledgerId=ledger, entryId=3)]))
        assert consumer.received == [] or consumer.received[0][1].request_id == 5
        assert await world.backlog() == 1, "what usually comes is taken at once again"

    play(scenario)


def test_ids_that_have_to_be_looked_up_leave_turns_to_others_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        consumer, other, ledger = await ready(world)
        # Once acknowledged as a whole an entry is not remembered, and looked up in the log.
        consumer.say(ack(1, [MessageIdData(ledgerId=ledger, entryId=0)] * IDS_AT_ONCE))
        for _ in range(3):
            await other.ask(CommandPing(), BaseCommand.PONG)
            consumer.say(ack(2, [MessageIdData(ledgerId=ledger, entryId=0)] * IDS_AT_ONCE))
            await asyncio.sleep(0)
        assert [body.request_id for _, body, _ in consumer.received] == [1]

    play(scenario)


def test_a_large_command_whose_subscription_is_dropped_meanwhile_is_refused(play: Play) -> None:
    """Its client took for acknowledged what nothing stores."""

    async def scenario(world: World) -> None:
        consumer, _, ledger = await ready(world)
        consumer.say(ack(1, many_ids(ledger)))
        await world.broker.subscriptions.delete(world.partition, "s", force=True)
        refusal = await consumer.hear(BaseCommand.ACK_RESPONSE)
        assert (refusal.request_id, refusal.error) == (1, ServerError.ServiceNotReady)

    play(scenario)


def test_a_large_command_counts_whose_consumer_is_closed_behind_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        consumer, _, ledger = await ready(world)
        consumer.say(ack(1, many_words(ledger)))
        consumer.say(CommandCloseConsumer(consumer_id=1, request_id=2))
        accepted = await consumer.hear(BaseCommand.ACK_RESPONSE)
        assert not accepted.HasField("error")
        assert (await consumer.hear(BaseCommand.SUCCESS)).request_id == 2
        assert world.broker.subscriptions.of(world.partition) == []
        assert await world.backlog() == 7

    play(scenario)


def test_redelivery_of_very_many_takes_many_turns(play: Play) -> None:
    # A megabyte of ids was a quarter of a second.
    async def scenario(world: World) -> None:
        consumer, other, ledger = await ready(world)
        unknown = [MessageIdData(ledgerId=ledger, entryId=99)] * (REDELIVERED_AT_ONCE * 5)
        ids = [*unknown, MessageIdData(ledgerId=ledger, entryId=1)]
        consumer.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids))
        await other.ask(CommandPing(), BaseCommand.PONG)
        assert consumer.received == [], "the command is at work"
        again = await consumer.hear(BaseCommand.MESSAGE)
        assert (again.message_id.entryId, again.redelivery_count) == (1, 1)
        consumer.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids))
        consumer.leave()
        for _ in range(10):
            await asyncio.sleep(0)

    play(scenario)
