"""Consumers with `readCompacted`: what compaction has left up to its horizon, and the log behind it."""

from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.base.settings_subscriptions import FAILOVER_DELAY_MS
from magnetar.broker.compaction.beside import SUBSCRIPTION
from magnetar.broker.subscriptions import consumer, positions
from magnetar.broker.subscriptions.model import Delivery, InitialPosition, SubscriptionType
from magnetar.ledger.compacted_view import view_of
from magnetar.wire.compaction import latest
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, EncryptionKeys, MessageMetadata

from .driver import Client, World, scenario, settle
from .test_compacted import LEFT, NEWER, RECORDS, append, heard, values

EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
EARLIEST = (-1, -1)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    assert latest.load()


async def compact(world: World) -> None:
    await world.broker.beside.start(world.partition)
    assert world.partition.compaction.error == ""
    await settle()


async def filled(world: World, *, by_pulsar: bool = True, trimmed: bool = False) -> None:
    """Eight messages of which four are left, and one behind."""
    await append(world, RECORDS, by_pulsar=by_pulsar)
    await append(world, NEWER, by_pulsar=by_pulsar)
    await compact(world)
    if trimmed:
        await world.partition.log.trim(log_start=8)
        await settle()
        assert world.partition.log.log_start == 8
    await append(world, [(b"a", b"a8")], by_pulsar=by_pulsar)


async def reader(world: World, name: str = "s", **fields: object) -> Client:
    """A consumer with `readCompacted`."""
    return await world.sub(name, spec={"reads_compacted": True}, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("by_pulsar", [False, True])
@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_consumers_get_what_is_left_and_then_the_log(
    kind: SubscriptionType, by_pulsar: bool, trimmed: bool
) -> None:
    @scenario
    async def run(world: World) -> None:
        await filled(world, by_pulsar=by_pulsar, trimmed=trimmed)
        client = await reader(world, kind=kind)
        assert await heard(client, 5) == [*LEFT, b"a8"]
        client.ack(*client.positions)
        assert world.cursor().mark_delete == 9
        await client.leave()
        again = await reader(world, kind=kind)
        await settle()
        assert again.got == []

    run()


@pytest.mark.parametrize("trimmed", [False, True])
def test_readers_get_batches_with_their_messages_in_their_places(trimmed: bool) -> None:
    @scenario
    async def run(world: World) -> None:
        await filled(world, trimmed=trimmed)
        ids = [await world.position_at(8)]
        client = await reader(world, is_durable=False, start=EARLIEST)
        found = await heard(client, 9)
        assert found == [None, None, b"a2", None, None, b"c5", b"b6", b"d7", b"a8"]
        assert client.positions[2:] == ids
        # From the second entry on, by the id that it had in the log.
        from_there = await reader(world, "other", is_durable=False, start=client.positions[1])
        assert await heard(from_there, 3) == [b"b6", b"d7", b"a8"]

    run()


@scenario
async def test_consumers_without_it_get_the_log(world: World) -> None:
    await filled(world)
    client = await world.sub()
    assert await heard(client, 9) == [value for _, value in [*RECORDS, *NEWER]] + [b"a8"]


@scenario
async def test_the_active_consumer_decides_what_a_failover_subscription_reads(world: World) -> None:
    await filled(world)
    client = await reader(world, kind=FAILOVER, consumer="a")
    other = await world.sub(kind=FAILOVER, consumer="b")
    await heard(client, 5)
    await client.leave()
    world.clock.advance(FAILOVER_DELAY_MS / 1000)
    assert len(await heard(other, 9)) == 9, "nothing was acknowledged"


@scenario
async def test_a_subscription_that_stood_in_what_was_trimmed_goes_on_in_what_is_left(world: World) -> None:
    await append(world, RECORDS, by_pulsar=True)
    client = await reader(world, permits=0)
    await client.leave()
    await append(world, NEWER, by_pulsar=True)
    await compact(world)
    await world.partition.log.trim(log_start=8)
    again = await reader(world)
    assert await heard(again, 4) == LEFT


@scenario
async def test_what_was_delivered_comes_again_as_it_is_after_another_run(world: World) -> None:
    await append(world, RECORDS, by_pulsar=True)
    client = await reader(world)
    assert len(await heard(client, 6)) == 6
    await append(world, NEWER, by_pulsar=True)
    await heard(client, 8)
    await compact(world)
    client.got.clear()
    client.nack()
    assert await heard(client, 4) == LEFT
    client.ack(*client.positions)
    assert world.cursor().mark_delete == 8


@scenario
async def test_a_reader_goes_on_where_it_is_when_another_run_takes_what_it_reads(world: World) -> None:
    world.partition.log.limits.entry_count_max = 1
    for number in range(6):
        await append(world, [(b"k%d" % number, b"0")], by_pulsar=True)
    await compact(world)
    client = await reader(world, is_durable=False, start=EARLIEST, permits=2)
    assert len(await heard(client, 2)) == 2
    await append(world, [(b"k0", b"1"), (b"k4", b"1")], by_pulsar=True)
    await compact(world)
    client.got.clear()
    client.flow(100)
    assert await heard(client, 5) == [b"0", b"0", b"0", b"1", b"1"], "k2, k3, k5, and what is new"


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_seek_finds_what_is_left_by_position_and_by_time(trimmed: bool) -> None:
    @scenario
    async def run(world: World) -> None:
        start_ms = world.clock.now_ms()
        await append(world, [(b"a", b"a0")], by_pulsar=True)
        world.clock.advance(10)
        await append(world, [(b"b", b"b1"), (b"c", b"c2")], by_pulsar=True)
        await append(world, [(b"b", b"b3")], by_pulsar=True)
        ids = [await world.position_at(offset) for offset in range(4)]
        await compact(world)
        if trimmed:
            await world.partition.log.trim(log_start=4)
        view = view_of(world.partition.log, compacted=True)
        assert await positions.offset_of(view, *EARLIEST) == 0
        assert [await positions.offset_of(view, *one) for one in ids] == [0, 1, 1, 3]
        assert await positions.offset_of(view, positions.LATEST, positions.LATEST) == 4
        assert await positions.offset_at_time(view, start_ms) == 0
        assert await positions.offset_at_time(view, start_ms + 5_000) == 1
        assert await positions.offset_at_time(view, start_ms + 50_000) == 4
        client = await reader(world)
        assert await heard(client, 3) == [b"a0", b"c2", b"b3"]
        await world.broker.subscriptions.seek(
            client.member.subscription,  # type: ignore[arg-type]
            positions.offset_of(view, *ids[1]),
        )
        again = await reader(world)
        assert await heard(again, 2) == [b"c2", b"b3"]
        late = await reader(world, "late", rollback_s=5, is_durable=False)
        assert await heard(late, 3) == [None, b"c2", b"b3"]

    run()


@pytest.mark.parametrize("trimmed", [False, True])
def test_the_last_message_is_the_last_one_that_is_left(trimmed: bool) -> None:
    @scenario
    async def run(world: World) -> None:
        forms = world.broker.interop.pulsar_form
        view = view_of(world.partition.log, compacted=True)
        await append(world, RECORDS, by_pulsar=True)
        first = await world.position_at(0)
        await append(world, [(b"b", b"")], by_pulsar=True)
        await compact(world)
        if trimmed:
            await world.partition.log.trim(log_start=7)
        last = await positions.last_message(world.partition, forms, view)
        assert last == (*first, 5), "of the batch that is left; the tombstone is gone"
        assert await positions.last_message(world.partition, forms, view, is_dense=True) == (*first, 1)
        await append(world, [(b"a", b""), (b"c", b"")], by_pulsar=True)
        await compact(world)
        nothing = await positions.last_message(world.partition, forms, view)
        assert nothing.entry_id == -1
        assert (await positions.position_below(view, 9))[1] == 0, (
            "what stands for the end of what was looked at"
        )

    run()


@scenario
async def test_nothing_left_is_read_as_nothing_and_what_comes_then_as_ever(world: World) -> None:
    await append(world, [(b"a", b"1"), (b"a", b"")], by_pulsar=True)
    await compact(world)
    assert world.partition.log.compacted is not None
    client = await reader(world)
    await settle()
    assert client.got == []
    assert world.cursor().mark_delete == 2, "acknowledged for it"
    await append(world, [(b"a", b"2")], by_pulsar=True)
    assert await heard(client, 1) == [b"2"]


@scenario
async def test_a_new_subscription_begins_at_the_end_unless_it_asks_for_the_beginning(world: World) -> None:
    await filled(world)
    client = await reader(world, initial_position=InitialPosition.LATEST)
    await settle()
    assert client.got == []
    assert world.cursor().mark_delete == 9


@scenario
async def test_compaction_has_a_subscription_and_what_it_left_goes_with_it(world: World) -> None:
    await filled(world)
    admin = world.broker.subscription_admin
    assert world.broker.subscriptions.names(world.partition) == [SUBSCRIPTION]
    assert admin.cursor(world.partition, SUBSCRIPTION).holds_data
    assert admin.backlog(world.partition, SUBSCRIPTION) == 1
    await admin.delete(world.partition, SUBSCRIPTION)
    await settle()
    assert world.partition.log.compacted is None
    assert len(await world.store.list_ledgers()) == len(list(world.partition.log.ledgers))
    client = await reader(world)
    assert len(await heard(client, 9)) == 9


@scenario
async def test_what_is_left_is_there_after_a_restart_and_goes_with_the_topic(world: World) -> None:
    await filled(world, trimmed=True)
    await world.crash()
    client = await reader(world)
    assert await heard(client, 5) == [*LEFT, b"a8"]
    assert [value for one in client.got for value in values(one.payload)] == [*LEFT, b"a8"]
    await world.broker.delete_topic(world.topic)
    await settle()
    assert [one for one in await world.store.list_ledgers() if one.entry_count] == []
    assert await world.metadata.scan("/managed-ledgers/") == []


async def publish(world: World, payload: bytes, **fields: Any) -> None:
    """One message, with a key of its own unless it is told another."""
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=world.clock.now_ms(),
        **{"partition_key": "a", **fields},
    )
    view = read_entry(memoryview(frame_entry(metadata, payload)), verify=True)
    world.partition.publish(view.data, view, world.clock.now_ms(), lambda error: None)
    await settle()


@scenario
async def test_encrypted_messages_go_by_their_key_and_what_has_none_of_its_own_stays(world: World) -> None:
    keys = [EncryptionKeys(key="k", value=b"v")]
    chunk: dict[str, Any] = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 2}
    await publish(world, b"0", encryption_keys=keys)
    await publish(world, b"1" * 20, encryption_keys=keys, num_messages_in_batch=1)
    await publish(world, b"2", encryption_keys=keys, compression=CompressionType.LZ4, uncompressed_size=99)
    await publish(world, b"3", chunk_id=0, **chunk)
    await publish(world, b"4", chunk_id=1, **chunk)
    await publish(world, b"5")
    await publish(world, b"6", partition_key="other", null_value=True, encryption_keys=keys)
    await compact(world)
    client = await reader(world, is_durable=False, start=EARLIEST)
    await settle()
    assert [bytes(read_entry(memoryview(one.payload), verify=True).payload) for one in client.got] == [
        b"1" * 20,
        b"3",
        b"4",
        b"5",
    ]


@scenario
async def test_what_was_deleted_behind_the_horizon_is_passed_over(world: World) -> None:
    world.partition.log.limits.entry_count_max = 1
    await append(world, [(b"a", b"a0")], by_pulsar=True)
    await compact(world)
    for value in (b"b1", b"c2", b"d3"):
        await append(world, [(value[:1], value)], by_pulsar=True)
    await world.partition.log.trim(log_start=3)
    client = await reader(world)
    assert await heard(client, 2) == [b"a0", b"d3"]
    client.ack(*client.positions)
    assert world.cursor().mark_delete == 4
    await compact(world)
    again = await reader(world, "other")
    assert await heard(again, 2) == [b"a0", b"d3"]


@scenario
async def test_what_was_delivered_before_a_restart_is_acknowledged_in_what_is_left(world: World) -> None:
    await filled(world, trimmed=True)
    client = await reader(world)
    await heard(client, 5)
    ids = client.positions
    await world.crash()
    again = await reader(world, permits=0)
    await again.ack(*ids)
    assert world.cursor().mark_delete == 9


@pytest.mark.parametrize("trimmed", [False, True])
def test_what_waits_for_a_full_connection_is_what_is_left(
    trimmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "BURST_BYTES_MAX", 1)

    @scenario
    async def run(world: World) -> None:
        await append(world, [(b"x", b"x")], by_pulsar=True)
        await filled(world, trimmed=trimmed)
        client = await reader(world, is_durable=False, start=EARLIEST, permits=0)
        deliver = client.deliver

        def full(deliveries: Sequence[Delivery]) -> None:
            deliver(deliveries)
            client.is_writable = False

        client.deliver = full  # type: ignore[method-assign]
        for _ in range(5):
            client.flow(100)
            await settle()
            client.writable(True)
        assert await heard(client, 10) == [b"x", None, None, b"a2", None, None, b"c5", b"b6", b"d7", b"a8"]

    run()
