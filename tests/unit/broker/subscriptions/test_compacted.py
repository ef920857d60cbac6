"""Batches of which compaction has left some messages, at consumers of every type: those come, and no others go."""

import asyncio
from collections.abc import Sequence

import pytest

from magnetar.base.config import LONG_MAX
from magnetar.broker.compaction.plan import plan
from magnetar.broker.interop.model import Buffer
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.errors import MessageGone
from magnetar.broker.subscriptions.model import AckedId, SubscriptionType
from magnetar.wire.compaction import latest
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.pulsar.entry import read_batch, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType
from tests.unit.broker.compaction.keyed import kafka_batch, pulsar_entry

from .driver import Client, World, scenario, settle

EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED

RECORDS = [(b"a", b"a0"), (b"b", b"b1"), (b"a", b"a2"), (b"c", b"c3"), (b"b", b"b4"), (b"c", b"c5")]
NEWER = [(b"b", b"b6"), (b"d", b"d7")]
LEFT = [b"a2", b"c5", b"b6", b"d7"]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


async def append(world: World, records: Sequence[tuple[bytes, bytes | None]], *, by_pulsar: bool) -> None:
    world.partition.log.limits.entry_count_max = 1
    now_ms = world.clock.now_ms()
    if by_pulsar:
        view = pulsar_entry(records, now_ms, codec=CompressionType.LZ4)
        world.partition.publish(view.data, view, now_ms, lambda error: None)
    else:
        world.partition.append(kafka_batch(records, [now_ms] * len(records)), now_ms, lambda error: None)
    await settle()


async def compact(world: World, *, closing: bool = True) -> None:
    object.__setattr__(world.topic.config, "compact", True)
    if closing:
        await append(world, [(b"last", b"")], by_pulsar=False)
    else:
        world.partition.log.roll_if_old(0)
        await settle()
    now_ms = world.clock.now_ms()
    wanted = plan(world.partition, now_ms, LONG_MAX)
    assert wanted is not None
    await world.broker.compactor.run(world.partition, wanted, now_ms)
    await settle()


def values(payload: Buffer) -> list[bytes | None]:
    """What is in a batch, None for what is compacted out."""
    view = read_entry(memoryview(payload), verify=True)
    content = expand_pulsar(view.payload, view.metadata.compression, view.metadata.uncompressed_size)
    return [
        None if one.metadata.compacted_out else bytes(one.payload)
        for one in read_batch(content, view.num_messages)
    ]


async def heard(client: Client, count: int) -> list[bytes | None]:
    """`count` messages, at least: conversion and cutting may take a thread."""
    async with asyncio.timeout(20):
        while len(found := [value for one in client.got for value in values(one.payload)]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return found


@pytest.mark.parametrize("by_pulsar", [False, True])
@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_consumers_get_what_is_left_and_acknowledge_all_of_it(
    kind: SubscriptionType, by_pulsar: bool
) -> None:
    @scenario
    async def run(world: World) -> None:
        await append(world, RECORDS, by_pulsar=by_pulsar)
        await append(world, NEWER, by_pulsar=by_pulsar)
        await compact(world)
        client = await world.sub(kind=kind)
        found = await heard(client, 5)
        assert set(found) == {*LEFT, b""}
        assert client.member.state.permits == 1000 - 5
        client.ack(*client.positions)
        assert world.cursor().mark_delete == world.partition.log.high_watermark
        assert world.cursor().backlog(world.partition.log.high_watermark) == 0

    run()


@pytest.mark.parametrize("by_pulsar", [False, True])
@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_is_left_of_a_batch_comes_again_when_it_was_whole_before(
    kind: SubscriptionType, by_pulsar: bool
) -> None:
    @scenario
    async def run(world: World) -> None:
        await append(world, RECORDS, by_pulsar=by_pulsar)
        client = await world.sub(kind=kind)
        await heard(client, 6)
        await append(world, NEWER, by_pulsar=by_pulsar)
        await heard(client, 8)
        await compact(world)
        await heard(client, 9)
        client.got.clear()
        client.nack()
        found = await heard(client, 5)
        assert set(found) == {*LEFT, b""}
        client.ack(*client.positions)
        assert world.cursor().mark_delete == world.partition.log.high_watermark
        await settle()
        assert client.member.state.unacked_messages == 0

    run()


@scenario
async def test_a_part_that_was_delivered_before_is_acknowledged_for_itself_alone(world: World) -> None:
    """By the id that it had, on a server that has been started again since."""
    await append(world, RECORDS, by_pulsar=False)
    client = await world.sub(kind=KEY_SHARED)
    await heard(client, 6)
    ids = {tuple(values(one.payload)): (one.ledger_id, one.entry_id) for one in client.got}
    await append(world, NEWER, by_pulsar=False)
    await compact(world)
    await client.leave()
    again = await world.sub(kind=KEY_SHARED, permits=0)
    await again.ack(ids[b"b1", b"b4"])
    cursor = world.cursor()
    assert not cursor.is_acknowledged(2)
    assert not cursor.is_acknowledged(5)
    await again.ack(ids[b"c3", b"c5"])
    assert not cursor.is_acknowledged(2)
    assert await positions.offset_of(world.partition.log, *ids[b"c3", b"c5"]) == 0
    again.flow()
    found = await heard(again, 4)
    assert {b"a2", b"b6", b"d7"} <= set(found), "no other part was taken for these"


@scenario
async def test_bits_of_a_batch_that_is_shorter_now_acknowledge_nothing(world: World) -> None:
    await append(world, RECORDS, by_pulsar=False)
    client = await world.sub(kind=SHARED)
    await heard(client, 6)
    (position,) = client.positions
    await append(world, NEWER, by_pulsar=False)
    await compact(world)
    await client.leave()
    again = await world.sub(kind=SHARED, permits=0)
    await again.ack((*position, (0b111100,)))  # the first two of six
    subscription = world.subscription()
    assert subscription is not None
    with pytest.raises(MessageGone):  # in a transaction it would seem to be acknowledged
        await subscription.to_acknowledge([AckedId(*position, (0b111100,))], cumulative=False)
    again.flow()
    assert {b"a2", b"c5"} <= set(await heard(again, 5))


@scenario
async def test_bits_count_the_messages_that_a_consumer_was_given(world: World) -> None:
    await append(world, RECORDS, by_pulsar=False)
    await append(world, NEWER, by_pulsar=False)
    await compact(world)
    client = await world.sub(kind=SHARED)
    await heard(client, 5)
    client.ack((*client.positions[0], (0b10,)))
    assert world.cursor().is_acknowledged(2)
    assert not world.cursor().is_acknowledged(5)
    client.ack((*client.positions[0], (0b01,)))
    assert world.cursor().mark_delete == 6


@scenario
async def test_a_reader_gets_messages_at_their_indexes(world: World) -> None:
    """Its client goes on by those, and leaves out what comes before the one that it has."""
    await append(world, RECORDS, by_pulsar=False)
    position = await world.position_at(0)
    await append(world, NEWER, by_pulsar=False)
    await compact(world)
    client = await world.sub("r", is_durable=False, start=position)
    await heard(client, 6)
    assert values(client.got[0].payload) == [None, None, b"a2", None, None, b"c5"]


@pytest.mark.parametrize("by_pulsar", [False, True])
def test_the_last_message_is_the_last_one_that_is_left(by_pulsar: bool) -> None:
    @scenario
    async def run(world: World) -> None:
        records: list[tuple[bytes, bytes | None]] = [
            (b"a", b"a0"),
            (b"a", b"a1"),
            (b"b", b"b2"),
            (b"c", None),
        ]
        await append(world, records, by_pulsar=by_pulsar)
        position = await world.position_at(0)
        object.__setattr__(world.topic.config, "delete_retention_ms", 1)
        await compact(world, closing=False)
        world.clock.advance(1)
        object.__setattr__(world.partition.log, "cleaned", 0)
        await compact(world, closing=False)
        forms = world.broker.interop.pulsar_form
        for is_dense, index in ((True, 1), (False, 2)):
            last = await positions.last_message(world.partition, forms, is_dense=is_dense)
            assert (last.ledger_id, last.entry_id, last.batch_index) == (*position, index)

    run()
