"""Kafka batches of mixed keys at Key_Shared consumers: every key at one of them, none acknowledges for another."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from magnetar.base.errors import WireError
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.ack_sets import ack_set_of, intersection, positions_in
from magnetar.broker.subscriptions.dispatch.hashing import slot_of
from magnetar.broker.subscriptions.model import InitialPosition, SubscriptionType
from magnetar.broker.subscriptions.sharing import acknowledged_of_part, split_by_key
from magnetar.wire.convert import kafka_to_pulsar
from magnetar.wire.pulsar.entry import EntryView, frame_entry, read_batch, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata

from .driver import Client, World, scenario, settle

KEY_SHARED = SubscriptionType.KEY_SHARED
Records = Sequence[tuple[bytes | None, bytes]]


def kafka_batch(records: Records, codec: int = 0) -> memoryview:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset, (key, value) in enumerate(records):
        builder.append(offset, 1_700_000_000_000, key, value, [])
    return memoryview(bytearray(builder.build()))


def pulsar_entry(records: Records, codec: int = 0) -> EntryView:
    return read_entry(kafka_to_pulsar(kafka_batch(records, codec)), verify=True)


def values(entry: bytes | memoryview) -> list[bytes]:
    view = read_entry(memoryview(entry), verify=True)
    return [bytes(one.payload) for one in read_batch(view.payload, view.num_messages)]


# Cutting


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_is_cut_by_slot_whatever_its_compression(codec: int) -> None:
    records = [(b"k%d" % (number % 3), b"v%d" % number) for number in range(12)]
    parts = split_by_key(pulsar_entry(records, codec))
    assert [part.slot for part in parts] == [slot_of(b"k0"), slot_of(b"k1"), slot_of(b"k2")]
    for number, part in enumerate(parts):
        assert values(part.payload) == [b"v%d" % at for at in range(number, 12, 3)]
        assert part.ranges == tuple((at, at + 1) for at in range(number, 12, 3))


def test_binary_keys_hash_as_what_they_are_and_keyless_messages_stay_together() -> None:
    records = [(b"\xff\x00", b"a"), (None, b"b"), (b"\xff\x00", b"c"), (None, b"d")]
    parts = split_by_key(pulsar_entry(records))
    assert [values(part.payload) for part in parts] == [[b"a", b"c"], [b"b", b"d"]]
    assert parts[0].slot == slot_of(b"\xff\x00")


def test_a_malformed_batch_is_refused() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=3)
    for content in (b"x" * 30, b"\0\0\0\xff" + b"x" * 30, b"\0\0\0\x02\x18\x7f" + b"x" * 30):
        with pytest.raises(WireError):
            split_by_key(read_entry(memoryview(frame_entry(metadata, content)), verify=True))


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.data())
def test_acknowledgements_of_parts_are_of_their_own_offsets(keys: list[str], data: st.DataObject) -> None:
    entry = pulsar_entry([(key.encode(), b"%d" % at) for at, key in enumerate(keys)])
    part = data.draw(st.sampled_from(split_by_key(entry)))
    ranges = [(100 + start, 100 + end) for start, end in part.ranges]
    offsets = [offset for start, end in ranges for offset in range(start, end)]
    assert acknowledged_of_part(ranges, ()) == ranges
    left = data.draw(st.sets(st.sampled_from(offsets)))
    single = intersection(ranges, sorted((offset, offset + 1) for offset in left))
    ack_set = ack_set_of(positions_in(single, ranges), 0, len(offsets))
    acknowledged = {o for start, end in acknowledged_of_part(ranges, ack_set) for o in range(start, end)}
    assert acknowledged == set(offsets) - left


def test_an_acknowledged_part_of_very_many_messages_is_not_taken_apart_into_them() -> None:
    ranges = [(0, 1 << 40), (1 << 41, 1 << 42)]
    assert acknowledged_of_part(ranges, [0b10]) == [(0, 1), (2, 1 << 40), (1 << 41, 1 << 42)]


# Sharing


async def produce(world: World, records: Records, *clients: Client) -> None:
    """Append a batch and wait until `clients` together have got all of it: it is converted on a thread."""
    expected = sum(len(heard(client)) for client in clients) + len(records)
    world.partition.append(kafka_batch(records), world.clock.now_ms(), lambda error: None)
    async with asyncio.timeout(20):
        while sum(len(heard(client)) for client in clients) < expected:  # noqa: ASYNC110  threads set no event
            await asyncio.sleep(0.001)


def heard(client: Client) -> list[bytes]:
    return [value for one in client.got for value in values(bytes(one.payload))]


async def two_consumers(world: World) -> tuple[Client, Client]:
    return (
        await world.sub(kind=KEY_SHARED, consumer="a"),
        await world.sub(kind=KEY_SHARED, consumer="b"),
    )


RECORDS = [(b"key-%d" % (number % 8), b"%03d" % number) for number in range(80)]


@scenario
async def test_every_key_of_a_kafka_batch_is_at_one_consumer_in_order(world: World) -> None:
    first, second = await two_consumers(world)
    await produce(world, RECORDS, first, second)
    await produce(world, RECORDS, first, second)
    seen = [heard(first), heard(second)]
    assert all(seen)
    assert sorted(seen[0] + seen[1]) == sorted([value for _, value in RECORDS] * 2)
    for client in (first, second):
        assert client.member.state.permits == 1000 - len(heard(client))
    keys = [{int(value) % 8 for value in one} for one in seen]
    assert not keys[0] & keys[1]
    for one in seen:
        for key in range(8):
            order = [int(value) for value in one if int(value) % 8 == key]
            assert order == (sorted(order[: len(order) // 2]) * 2)


@scenario
async def test_every_part_is_acknowledged_by_itself_also_at_one_consumer(world: World) -> None:
    """A client acknowledges a part when it is through with it: that says nothing of others that wait in its queue."""
    client = await world.sub(kind=KEY_SHARED)
    await produce(world, RECORDS, client)
    assert len(set(client.positions)) == len(client.got) == 8
    left = 80
    for delivery, position in zip(client.got, client.positions, strict=True):
        client.ack(position)
        left -= len(values(bytes(delivery.payload)))
        assert world.cursor().backlog(80) == left
    assert world.cursor().mark_delete == 80


@scenario
async def test_what_one_has_not_acknowledged_goes_to_the_other_when_it_leaves(world: World) -> None:
    first, second = await two_consumers(world)
    await produce(world, RECORDS, first, second)
    theirs = heard(second)
    first.ack(*first.positions)
    assert world.cursor().backlog(80) == len(theirs)
    await second.leave()
    await settle()
    assert sorted(heard(first)) == sorted([value for _, value in RECORDS])
    await first.ack(*first.positions)  # those of before are looked up, and change nothing
    assert world.cursor().mark_delete == 80


@scenario
async def test_a_part_that_is_not_remembered_is_found_again_by_its_id(world: World) -> None:
    first, second = await two_consumers(world)
    await produce(world, RECORDS, first, second)
    mine, theirs = list(first.positions), len(heard(second))
    await first.leave()
    await second.leave()
    third = await world.sub(kind=KEY_SHARED, consumer="c", permits=0)
    await third.ack(*mine, (mine[0][0], mine[0][1] | 99 << 40))
    assert world.cursor().backlog(80) == theirs


@scenario
async def test_ids_of_parts_lead_to_their_entry(world: World) -> None:
    first, second = await two_consumers(world)
    await produce(world, RECORDS, first, second)
    await produce(world, RECORDS, first, second)
    last = max(first.positions)
    assert await positions.offset_of(world.partition.log, *last) == 80


@scenario
async def test_parts_are_acknowledged_message_by_message_and_come_again_in_part(world: World) -> None:
    client = await world.sub(kind=KEY_SHARED)
    await produce(world, [(b"a", b"0"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3")], client)
    parts = {tuple(values(bytes(one.payload))): (one.ledger_id, one.entry_id) for one in client.got}
    position = parts[b"0", b"2", b"3"]
    assert client.ack((*position, (0b110,))) is None
    assert world.cursor().is_acknowledged(0)
    assert not world.cursor().is_acknowledged(1)
    client.got.clear()
    client.nack(position)
    await settle()
    again = {tuple(values(bytes(one.payload))): list(one.ack_set) for one in client.got}
    assert again[b"0", b"2", b"3"] == [0b110]


@scenario
async def test_a_part_that_is_refused_comes_again_and_no_other_does(world: World) -> None:
    client = await world.sub(kind=KEY_SHARED)
    await produce(world, RECORDS, client)
    wanted = client.positions[3]
    client.got.clear()
    client.nack(wanted)
    await settle()
    assert [(one.entry_id, one.redelivery_count) for one in client.got] == [(wanted[1], 1)]


@scenario
async def test_other_types_get_a_kafka_batch_whole(world: World) -> None:
    for kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED):
        client = await world.sub(kind.name, kind=kind, initial_position=InitialPosition.LATEST)
        await produce(world, RECORDS[:10], client)
        assert values(bytes(client.got[-1].payload)) == [value for _, value in RECORDS[:10]]
