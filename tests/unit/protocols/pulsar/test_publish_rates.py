"""A namespace's publish rate holds producers of both protocols back, and nobody else's topics."""

from typing import Any

from magnetar.protocols.pulsar.handlers.producer import AttachedProducer
from magnetar.testing.pulsar import PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand
from tests.unit.protocols.pulsar.pulsar_producing import (
    WithDoor,
    entry,
    partition_of,
    produce,
    producing,
    send,
    set_policies,
)


def rate(messages: int, size: int = -1) -> dict[str, Any]:
    return {
        "publishMaxMessageRate": {
            "publishThrottlingRateInMsg": messages,
            "publishThrottlingRateInByte": size,
        }
    }


def test_a_producer_is_not_read_from_until_more_may_come(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await producing(door)
        await set_policies(door, **rate(2))
        for number in range(3):
            send(client, number)
        for number in range(3):
            assert (await client.hear(BaseCommand.SEND_RECEIPT)).sequence_id == number
        assert client.session.throttle.is_on
        send(client, 3)  # was on its way
        assert partition_of(door).log.next_offset == 3
        door.clock.advance(0.51)
        assert partition_of(door).log.next_offset == 4
        assert (await client.hear(BaseCommand.SEND_RECEIPT)).sequence_id == 3
        assert client.session.throttle.is_on
        await set_policies(door, **rate(-1, 0))
        assert partition_of(door).publish_limit is None
        door.clock.advance(0.51)
        for number in range(4, 20):
            send(client, number)
            assert (await client.hear(BaseCommand.SEND_RECEIPT)).sequence_id == number
        assert not client.session.throttle.is_on

    with_door(scenario)


def test_producers_of_a_partition_share_its_rate(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **rate(3))
        first = await producing(door)
        second = await door.connected()
        await produce(second)
        send(first, 0)
        send(first, 1)
        send(second, 0)
        send(second, 1)
        assert not first.session.throttle.is_on
        assert second.session.throttle.is_on
        send(first, 2)
        assert first.session.throttle.is_on

    with_door(scenario)


def test_the_same_rate_set_again_forgets_nothing(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **rate(1))
        client = await producing(door)
        for number in range(5):
            send(client, number)
            door.clock.advance(0)
        owed_s = partition_of(door).owed_s()
        assert owed_s > 0
        await set_policies(door, message_ttl_in_seconds=60)
        assert partition_of(door).owed_s() == owed_s

    with_door(scenario)


def test_a_client_that_hangs_up_meanwhile_is_missed(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **rate(-1, 1))
        client = await producing(door)
        send(client, 0, entry(0, bytes(1000)))
        assert client.session.throttle.is_on
        client.has_hung_up = lambda: True  # type: ignore[method-assign]
        door.clock.advance(door.service.settings.keep_alive_s + 1)
        assert client.is_closed
        assert not client.session.throttle.is_on

    with_door(scenario)


def test_a_rate_that_is_lifted_holds_no_longer(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **rate(-1, 1))
        client = await producing(door)
        send(client, 0, entry(0, bytes(1000)))
        door.clock.advance(5)
        assert client.session.throttle.is_on
        await set_policies(door, **rate(-1, 0))
        door.clock.advance(1.01)
        assert not client.session.throttle.is_on
        send(client, 1)
        assert partition_of(door).log.next_offset == 2

    with_door(scenario)


def test_a_producer_that_is_gone_holds_no_longer(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        await set_policies(door, **rate(-1, 1))
        client = await producing(door)
        send(client, 0, entry(0, bytes(1000)))
        assert (await client.hear(BaseCommand.SEND_RECEIPT)).sequence_id == 0
        producer = next(iter(client.session.producers.values()))
        assert isinstance(producer, AttachedProducer)
        producer.closed()
        assert client.session.throttle.is_on
        door.clock.advance(1.01)
        assert not client.session.throttle.is_on

    with_door(scenario)
