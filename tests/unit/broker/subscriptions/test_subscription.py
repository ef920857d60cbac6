"""The shell around the dispatchers: reading, acknowledging, storing positions, coming back after a kill."""

import asyncio

import pytest

from magnetar.base.errors import StorageError
from magnetar.broker.subscriptions.consumer import OutboxConsumer
from magnetar.broker.subscriptions.model import InitialPosition, SubscriptionType
from magnetar.broker.subscriptions.stored_positions import SAVE_INTERVAL_S
from magnetar.ledger.entry import Entry
from magnetar.storage.store import EntryId, LedgerId

from .driver import World, acknowledging, scenario, settle

SHARED = SubscriptionType.SHARED


# Reading


@scenario
async def test_a_consumer_gets_what_it_asks_for_and_what_comes_later(world: World) -> None:
    await world.publish(3)
    client = await world.sub(permits=2)
    assert client.entries == [0, 1]
    client.flow(2)
    await settle()
    assert client.entries == [0, 1, 2]
    await world.publish(2)
    assert client.entries == [0, 1, 2, 3], "one permit was left"


@scenario
async def test_an_entry_goes_out_as_it_came(world: World) -> None:
    await world.publish(1, payload=b"abc")
    client = await world.sub()
    entry = await world.partition.log.entry_at(0)
    assert entry is not None
    assert bytes(client.got[0].payload) == bytes(entry.payload)
    assert client.got[0].ack_set == ()


@scenario
async def test_latest_begins_at_the_end_and_is_for_new_subscriptions_only(world: World) -> None:
    await world.publish(2)
    client = await world.sub(initial_position=InitialPosition.LATEST)
    assert client.entries == []
    await world.publish(1)
    assert client.entries == [2]
    await client.leave()
    again = await world.sub(initial_position=InitialPosition.LATEST)
    assert again.entries == [2], "it was not acknowledged"


@scenario
async def test_markers_are_acknowledged_by_the_broker_and_never_seen(world: World) -> None:
    await world.publish(1)
    await world.publish(2, marker_type=10)
    await world.publish(1)
    client = await world.sub()
    assert client.entries == [0, 3]
    client.ack(*client.positions)
    assert world.cursor().mark_delete == 4
    assert world.broker.subscriptions.counters.unseen == 2


def test_what_is_not_cached_is_read_from_the_store_in_order() -> None:
    async def main() -> None:
        world = await World(entry_cache_bytes=0).start()
        await world.publish(250)
        client = await world.sub(permits=10_000)
        assert client.entries == list(range(250))
        await world.publish(1)
        assert client.entries[-1] == 250
        await world.stop()

    asyncio.run(main())


@pytest.mark.parametrize("permits", [1, 7, 10_000])
def test_no_entry_is_read_from_the_store_twice_on_the_way_through_a_backlog(permits: int) -> None:
    async def main() -> None:
        world = await World(entry_cache_bytes=0).start()
        await world.publish(250)
        client = await world.sub(permits=permits)
        while len(client.entries) < 250:
            client.flow(permits)
            await settle()
        assert sum(ledger.read_count for ledger in world.store.ledgers.values()) <= 250 + 1
        await world.stop()

    asyncio.run(main())


@scenario
async def test_a_slow_peer_gets_nothing_more_until_it_takes_what_it_has(world: World) -> None:
    await world.publish(2)
    client = await world.sub(permits=100)
    client.writable(False)
    await world.publish(5)
    assert client.entries == [0, 1]
    client.writable(True)
    await settle()
    assert client.entries == list(range(7))


@scenario
async def test_a_peer_that_stops_taking_in_the_middle_holds_no_payloads(world: World) -> None:
    await world.publish(4, payload=b"x" * 20_000)
    client = await world.sub(permits=0)
    deliver = client.deliver

    def once(deliveries: object) -> None:
        deliver(deliveries)  # type: ignore[arg-type]
        client.is_writable = False

    client.deliver = once  # type: ignore[method-assign]
    client.flow(100)
    await settle()
    assert client.entries == [0, 1], "a burst is 256 KiB"
    assert isinstance(client.member, OutboxConsumer)
    assert [unit.payload for unit in client.member.outbox] == [None, None]
    client.deliver = deliver  # type: ignore[method-assign]
    client.writable(True)
    await settle()
    assert client.entries == [0, 1, 2, 3]


# Acknowledging


@scenario
async def test_individual_acknowledgements_move_the_mark_over_what_is_contiguous(world: World) -> None:
    await world.publish(4)
    client = await world.sub()
    first, second, third, _ = client.positions
    client.ack(third)
    client.ack(first, first)
    assert (world.cursor().mark_delete, world.cursor().ranges) == (1, [(2, 3)])
    client.ack(second)
    assert (world.cursor().mark_delete, world.cursor().ranges) == (3, [])


@scenario
async def test_a_cumulative_acknowledgement_is_everything_up_to_it(world: World) -> None:
    await world.publish(4)
    client = await world.sub()
    client.ack(client.positions[2], cumulative=True)
    assert world.cursor().mark_delete == 3


@scenario
async def test_cumulative_acknowledgements_of_shared_consumers_are_ignored(world: World) -> None:
    await world.publish(4)
    client = await world.sub(kind=SHARED)
    client.ack(client.positions[2], cumulative=True)
    assert world.cursor().mark_delete == 0


@scenario
async def test_an_ack_set_acknowledges_a_part_and_the_rest_comes_back_with_one(world: World) -> None:
    await world.publish(1, messages=5)
    client = await world.sub()
    (position,) = client.positions
    client.ack((*position, (0b11010,)))
    assert (world.cursor().mark_delete, world.cursor().ranges) == (1, [(2, 3)])
    await client.leave()
    again = await world.sub()
    assert again.got[0].ack_set == [0b11010]
    again.ack(position)
    assert world.cursor().mark_delete == 5


@scenario
async def test_hidden_messages_cost_permits_only_clients_that_give_them_back(world: World) -> None:
    for returns, left in ((True, 90), (False, 93)):
        await world.publish(1, messages=10)
        name = f"returns-{returns}"
        client = await world.sub(name, permits=0, initial_position=InitialPosition.LATEST)
        await world.publish(1, messages=10)
        client.flow(100)
        await settle()
        (position,) = client.positions
        client.ack((*position, (0b1111111000,)))
        await client.leave()
        again = await world.sub(name, permits=100, spec={"returns_hidden_permits": returns})
        assert again.got[0].ack_set == [0b1111111000]
        assert again.member.state.permits == left


@scenario
async def test_a_cumulative_ack_set_is_all_before_and_the_batches_first_part(world: World) -> None:
    await world.publish(3, messages=4)
    client = await world.sub()
    client.ack((*client.positions[1], (0b1100,)), cumulative=True)
    assert (world.cursor().mark_delete, world.cursor().ranges) == (6, [])


@scenario
async def test_without_ack_sets_a_batch_that_kafka_committed_in_part_comes_whole(world: World) -> None:
    """A client that acknowledges whole batches never would acknowledge one that it saw a part of."""
    await world.publish(1, messages=5)
    client = await world.sub(permits=0)
    await client.leave()
    await world.broker.cursors.commit({world.key: _committed(world, 2)})
    again = await world.sub()
    assert again.got[0].ack_set == ()
    again.ack(*again.positions)
    assert world.cursor().mark_delete == 5


def _committed(world: World, offset: int):  # type: ignore[no-untyped-def]
    cursor = world.cursor().copy()
    cursor.commit(offset)
    return cursor


@scenario
async def test_ids_that_never_were_change_nothing(world: World) -> None:
    await world.publish(2)
    client = await world.sub()
    later = client.ack((99, 0), (client.got[0].ledger_id, 77), (-1, -1), ((1 << 63) - 1, (1 << 63) - 1))
    assert later is not None
    await later
    assert (world.cursor().mark_delete, world.cursor().ranges) == (0, [])


@scenario
async def test_an_id_of_before_the_restart_is_looked_up_in_the_log(world: World) -> None:
    await world.publish(3)
    client = await world.sub()
    positions = client.positions
    await world.crash()
    again = await world.sub(permits=0)
    await again.ack(positions[1])
    assert world.cursor().ranges == [(1, 2)]
    await again.ack(positions[1], cumulative=True)
    assert world.cursor().mark_delete == 2


def test_a_client_hears_of_an_id_that_cannot_be_looked_up_and_all_others_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took for acknowledged what came again."""

    async def main() -> None:
        world = await World().start()
        await world.publish(4)
        first = await world.sub()
        await first.leave()
        again = await world.sub(permits=0)
        log = world.partition.log
        locate = log.locate

        async def found(ledger_id: LedgerId, entry_id: EntryId) -> Entry | None:
            if entry_id == 1:
                raise StorageError("the disk does not answer")
            return await locate(ledger_id, entry_id)

        monkeypatch.setattr(log, "locate", found)
        with pytest.raises(StorageError, match="1 of the acknowledged messages cannot"):
            await again.ack(*first.positions[:3])
        assert (world.cursor().mark_delete, world.cursor().ranges) == (1, [(2, 3)])
        with pytest.raises(StorageError, match="1 of the acknowledged messages cannot"):
            await acknowledging(again, *first.positions)
        assert (world.cursor().mark_delete, world.cursor().ranges) == (1, [(2, 4)])
        await world.stop()

    asyncio.run(main())


# Storing


@scenario
async def test_a_position_is_stored_soon_after_it_moved_and_once(world: World) -> None:
    await world.publish(10)
    client = await world.sub()
    stored: list[str] = []  # other upkeep, as that of the time, writes what is its own
    world.metadata.watch("/cursors/", lambda change: stored.append(change.path))
    client.ack(client.positions[0])
    await settle()
    assert await world.stored_mark_delete() == 0
    await world.advance(SAVE_INTERVAL_S / 2)
    client.ack(client.positions[1])
    await world.advance(SAVE_INTERVAL_S / 2)
    assert await world.stored_mark_delete() == 2
    await world.advance(10)
    assert len(stored) == 1


@scenario
async def test_positions_of_many_subscriptions_share_one_write(world: World) -> None:
    await world.publish(1)
    clients = [await world.sub(f"s{number}") for number in range(20)]
    before = world.metadata.commit_count
    for client in clients:
        client.ack(*client.positions)
    await world.advance(1)
    assert world.metadata.commit_count <= before + 2
    assert await world.stored_mark_delete("s19") == 1


@scenario
async def test_the_last_consumers_leaving_stores_the_position_at_once(world: World) -> None:
    await world.publish(3)
    client = await world.sub()
    client.ack(client.positions[0])
    await client.leave()
    assert await world.stored_mark_delete() == 1
    assert world.subscription() is None
    assert world.cursor().holds_data


@scenario
async def test_a_stop_stores_every_position(world: World) -> None:
    await world.publish(3)
    client = await world.sub()
    client.ack(client.positions[1], cumulative=True)
    await world.broker.subscriptions.close()
    assert await world.stored_mark_delete() == 2
    assert client.is_closed


@scenario
async def test_after_a_kill_what_was_not_stored_comes_again_and_nothing_is_lost(world: World) -> None:
    await world.publish(6)
    client = await world.sub()
    client.ack(client.positions[0], client.positions[3])
    await world.advance(1)
    client.ack(client.positions[1])
    await world.crash()
    again = await world.sub()
    assert again.entries == [1, 2, 4, 5]


@scenario
async def test_a_position_that_cannot_be_stored_is_tried_again(world: World) -> None:
    await world.publish(3)
    client = await world.sub()
    client.ack(client.positions[0])
    world.metadata.fail_next = 1
    await client.leave()
    assert await world.stored_mark_delete() == 0
    again = await world.sub()
    assert again.entries == [1, 2], "what is in memory counts"
    await again.leave()
    assert await world.stored_mark_delete() == 1


@scenario
async def test_an_unsaved_position_without_consumers_is_let_go_of_once_it_is_stored(world: World) -> None:
    await world.publish(3)
    client = await world.sub()
    client.ack(client.positions[0])
    world.metadata.fail_next = 1
    await client.leave()
    assert world.subscription() is not None
    await world.advance(1)
    assert world.subscription() is None
    assert await world.stored_mark_delete() == 1


# Redelivery


@scenario
async def test_all_unacknowledged_come_again_in_order_when_an_exclusive_consumer_asks(world: World) -> None:
    await world.publish(4)
    client = await world.sub()
    client.ack(client.positions[1])
    client.taken()
    client.nack(epoch=3)
    await settle()
    assert client.taken() == [0, 2, 3]
    client.nack(epoch=4)
    await settle()
    assert {one.consumer_epoch for one in client.got} == {4}


@scenario
async def test_a_shared_consumer_gets_what_it_names_again_with_a_count(world: World) -> None:
    await world.publish(4)
    client = await world.sub(kind=SHARED)
    positions = client.positions
    client.taken()
    client.nack(positions[2], positions[2], (7, 7))
    await settle()
    assert [(one.entry_id, one.redelivery_count) for one in client.got] == [(2, 1)]


@scenario
async def test_what_a_shared_consumer_had_goes_to_the_others_when_it_leaves(world: World) -> None:
    await world.publish(4)
    first = await world.sub(kind=SHARED, consumer="a")
    second = await world.sub(kind=SHARED, consumer="b")
    assert (first.entries, second.entries) == ([0, 1, 2, 3], [])
    first.ack(first.positions[1])
    await first.leave()
    await settle()
    assert second.entries == [0, 2, 3]


def test_what_comes_again_is_read_again_when_it_is_not_cached() -> None:
    async def main() -> None:
        world = await World(entry_cache_bytes=0).start()
        await world.publish(5)
        client = await world.sub(kind=SHARED)
        first = {one.entry_id: bytes(one.payload) for one in client.got}
        client.got.clear()
        client.nack()
        await settle()
        await settle()
        assert client.entries == [0, 1, 2, 3, 4]
        assert {one.entry_id: bytes(one.payload) for one in client.got} == first
        await world.stop()

    asyncio.run(main())
