"""What one delivered entry may cost: calls of Python's functions, which are counted alike on every machine.

A call takes some 80 ns and a delivered entry of 100 messages some 80 us, so ten calls more are one percent of the
processor time of a server whose clients read.
"""

import sys
from types import FrameType
from typing import Any

import pytest

import magnetar
from magnetar.testing.pulsar import PulsarClient, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandFlow
from tests.unit.protocols.pulsar.pulsar_consuming import (
    EXCLUSIVE,
    SHARED,
    WithDoor,
    acknowledgement,
    publish,
    subscribe,
)

AT_ONCE = 5  # entries that a client asks for, and acknowledges together
MESSAGES = 10  # in an entry
WARM_UP, ROUNDS = 10, 40
_SERVER = str(magnetar.__path__[0])


class Calls:
    """Counts calls of the server's functions, without those of a test's client."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_SERVER):
            self.count += "/testing/" not in frame.f_code.co_filename


async def round_trip(client: PulsarClient) -> None:
    client.say(CommandFlow(consumer_id=1, messagePermits=AT_ONCE * MESSAGES))
    ids = [(await client.hear(BaseCommand.MESSAGE)).message_id for _ in range(AT_ONCE)]
    client.say(acknowledgement(*ids))


@pytest.mark.parametrize(("kind", "calls_max"), [(EXCLUSIVE, 38), (SHARED, 66)])
def test_delivered_entry_costs_few_calls(with_door: WithDoor, kind: int, calls_max: int) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        await publish(client, AT_ONCE * (WARM_UP + ROUNDS), MESSAGES)
        await subscribe(client, permits=0, subType=kind)
        for _ in range(WARM_UP):
            await round_trip(client)
        calls, before = Calls(), sys.getprofile()
        sys.setprofile(calls)
        try:
            for _ in range(ROUNDS):
                await round_trip(client)
        finally:
            sys.setprofile(before)
        assert calls.count / (AT_ONCE * ROUNDS) <= calls_max, calls.count / (AT_ONCE * ROUNDS)

    with_door(scenario)
