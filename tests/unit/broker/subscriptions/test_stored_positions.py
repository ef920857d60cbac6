"""Positions of many subscriptions, stored together."""

import asyncio

import pytest

from magnetar.base.errors import MetadataError
from magnetar.broker.subscriptions import stored_positions
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.subscriptions.stored_positions import SAVE_INTERVAL_S, SAVE_INTERVAL_S_MAX
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey

from .driver import NAME, TURNS, World, scenario, settle

NAMES = [f"s{number}" for number in range(6)]


@pytest.mark.parametrize(
    ("ranges_at_once", "saves_at_once", "most"), [(20_000, 200, 6), (6, 200, 2), (20_000, 4, 4)]
)
@pytest.mark.parametrize("leave", [False, True])
def test_positions_of_very_many_ranges_or_subscriptions_are_written_in_turns(
    monkeypatch: pytest.MonkeyPatch, ranges_at_once: int, saves_at_once: int, most: int, leave: bool
) -> None:
    # Each with 20,000 ranges takes five milliseconds, and all were written in one turn of the event loop; so were
    # those of ten thousand subscriptions, which takes half a second.
    written = 0
    encode = Cursor.encode

    def counted(cursor: Cursor) -> bytes:
        nonlocal written
        written += 1
        return encode(cursor)

    async def main() -> None:
        nonlocal written
        world = await World().start()
        await world.publish(7)
        clients = [await world.sub(name, kind=SubscriptionType.SHARED) for name in NAMES]
        for client in clients:
            client.ack(*client.positions[1::2])
        monkeypatch.setattr(Cursor, "encode", counted)
        if leave:
            for client in clients:
                world.broker.subscriptions.leave_later(client.member)
        else:
            world.clock.advance(SAVE_INTERVAL_S)
        found: list[int] = []
        for _ in range(TURNS):
            written = 0
            await asyncio.sleep(0)
            found.append(written)
        assert (sum(found), max(found)) == (len(NAMES), most)
        await world.stop()

    monkeypatch.setattr(stored_positions, "RANGES_AT_ONCE", ranges_at_once)
    monkeypatch.setattr(stored_positions, "SAVES_AT_ONCE", saves_at_once)
    asyncio.run(main())


@pytest.mark.parametrize(
    ("took_s", "rests_s"),
    [
        (0.002, SAVE_INTERVAL_S),
        (0.012, 0.3),  # of which it is 4 %
        (0.5, SAVE_INTERVAL_S_MAX),
    ],
)
def test_positions_are_stored_soon_and_less_often_where_that_takes_long(
    monkeypatch: pytest.MonkeyPatch, took_s: float, rests_s: float
) -> None:
    async def main() -> None:
        world = await World().start()
        await world.publish(200)
        client = await world.sub("s", kind=SubscriptionType.SHARED)
        stored_at_s: list[float] = []
        save = world.broker.cursors.save

        def slow_save(key: CursorKey) -> asyncio.Future[None]:
            stored_at_s.append(world.clock.monotonic())
            write = save(key)
            write.add_done_callback(lambda _: world.clock.advance(took_s))
            return write

        monkeypatch.setattr(world.broker.cursors, "save", slow_save)
        began_s = world.clock.monotonic()
        for position in client.positions:
            client.ack(position)
            world.clock.advance(SAVE_INTERVAL_S / 10)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        first_s, second_s = stored_at_s[:2]
        late_s = SAVE_INTERVAL_S / 5
        assert SAVE_INTERVAL_S <= first_s - began_s <= SAVE_INTERVAL_S + late_s
        rested_s = second_s - first_s - took_s
        assert rests_s - 1e-9 <= rested_s <= rests_s + SAVE_INTERVAL_S + late_s  # the job looks at intervals
        await world.stop()

    asyncio.run(main())


@scenario
async def test_the_last_consumer_is_gone_only_when_the_write_that_was_under_way_is_durable(
    world: World,
) -> None:
    await world.publish(3)
    client = await world.sub()
    client.ack(client.positions[0])
    world.metadata.hold()
    await world.advance(SAVE_INTERVAL_S)
    leaving = asyncio.create_task(client.leave())
    await settle()
    assert not leaving.done()
    world.metadata.release()
    await leaving
    assert world.subscription() is None
    assert await world.stored_mark_delete() == 1


@scenario
async def test_a_write_that_fails_while_the_last_consumer_leaves_is_made_again(world: World) -> None:
    await world.publish(3)
    client = await world.sub()
    client.ack(client.positions[0])
    world.metadata.hold()
    await world.advance(SAVE_INTERVAL_S)
    world.metadata.fail_next = 1
    leaving = asyncio.create_task(client.leave())
    await settle()
    world.metadata.release()
    await leaving
    assert (await world.sub()).entries == [1, 2]
    await world.advance(SAVE_INTERVAL_S_MAX)
    assert await world.stored_mark_delete() == 1


@pytest.mark.parametrize("is_seek", [False, True])
def test_what_an_administrator_skips_while_consumers_go_is_stored(is_seek: bool) -> None:
    @scenario
    async def skip_meanwhile(world: World) -> None:
        await world.publish(3)
        client = await world.sub()
        client.ack(client.positions[0])
        world.metadata.hold()
        position = await world.position_at(1)
        going = asyncio.create_task(world.seek(client, position) if is_seek else client.leave())
        await settle()
        await world.broker.subscription_admin.skip_to(world.partition, "s", 3)
        world.metadata.release()
        await going
        assert world.subscription() is None
        assert world.cursor().mark_delete == await world.stored_mark_delete() == 3

    skip_meanwhile()


def test_callers_who_wait_for_room_are_told_when_it_is_durable_and_not_when_it_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @scenario
    async def two_callers(world: World) -> None:
        await world.publish(2)
        clients = [await world.sub(name, kind=SubscriptionType.SHARED) for name in ("s", "other", "third")]
        found = [world.subscription(name) for name in ("other", "third", "s", "s")]
        for client in clients:
            client.ack(client.positions[0])
        world.metadata.hold()
        told = [
            asyncio.create_task(world.broker.subscriptions.store(one)) for one in found if one is not None
        ]
        await settle()
        world.metadata.release()
        world.metadata.hold()  # the first two are stored: now there is room for the others
        await settle()
        assert [one.done() for one in told] == [True, True, False, False]
        assert await world.stored_mark_delete() == 0
        world.metadata.release()
        await asyncio.gather(*told)
        assert await world.stored_mark_delete() == 1

    monkeypatch.setattr(stored_positions, "RANGES_AT_ONCE", 4)
    monkeypatch.setattr(stored_positions, "SAVES_AT_ONCE", 2)
    two_callers()


@scenario
async def test_a_caller_that_is_gone_takes_no_write_with_it(world: World) -> None:
    await world.publish(2)
    client = await world.sub()
    client.ack(client.positions[0])
    subscription = world.subscription()
    assert subscription is not None
    world.metadata.hold()
    told = [asyncio.create_task(world.broker.subscriptions.store(subscription)) for _ in range(2)]
    await settle()
    told[0].cancel()
    world.metadata.release()
    await told[1]
    assert await world.stored_mark_delete() == 1


def remembered(world: World) -> tuple[object, object, int]:
    """Of which subscriptions something is kept, and how much room is taken."""
    stored = world.broker.subscriptions._stored
    return stored._unsaved, stored._under_way, stored._room._taken


NOTHING: tuple[object, object, int] = (set(), {}, 0)


@scenario
async def test_a_dropped_subscription_whose_write_failed_is_not_stored_again(world: World) -> None:
    await world.publish(2)
    client = await world.sub()
    client.ack(client.positions[0])
    world.metadata.hold()
    await world.advance(SAVE_INTERVAL_S)
    world.metadata.fail_next = 1
    dropping = asyncio.create_task(world.broker.subscriptions.delete(world.partition, "s", force=True))
    await settle()
    world.metadata.release()
    await dropping
    commits = world.metadata.commit_count
    await world.advance(2 * SAVE_INTERVAL_S_MAX)
    assert (world.metadata.commit_count, world.broker.cursors.get(world.key)) == (commits, None)
    assert remembered(world) == NOTHING


@pytest.mark.parametrize("how", ["leave", "drop", "delete the topic"])
def test_nothing_is_kept_of_a_subscription_that_is_gone(how: str) -> None:
    @scenario
    async def gone(world: World) -> None:
        await world.publish(2)
        client = await world.sub()
        client.ack(client.positions[0])
        if how == "leave":
            await client.leave()
        elif how == "drop":
            await world.broker.subscriptions.delete(world.partition, "s", force=True)
        else:
            await world.broker.delete_topic(world.topic)
        assert remembered(world) == NOTHING

    gone()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_is_acknowledged_while_a_topic_is_deleted_is_stored_if_it_stays(is_deleted: bool) -> None:
    @scenario
    async def meanwhile(world: World) -> None:
        await world.publish(2)
        topic, partition = world.topic, world.partition
        async with world.broker.topics.changing(topic):
            deleting = asyncio.create_task(world.broker.delete_topic(topic))
            await settle()  # those who were there have been sent away
            client = await world.sub()
            world.metadata.hold()
        await settle()
        client.ack(client.positions[0])
        await world.advance(SAVE_INTERVAL_S)
        subscription = world.broker.subscriptions.find(partition, "s")
        assert subscription is not None
        with pytest.raises(MetadataError):
            await world.broker.subscriptions.store(subscription)
        world.metadata.fail_next = not is_deleted
        world.metadata.release()
        if is_deleted:
            await deleting
            assert client.is_closed
        else:
            with pytest.raises(MetadataError):
                await deleting
            await world.advance(SAVE_INTERVAL_S_MAX)
            assert await world.stored_mark_delete() == 1
        assert remembered(world) == NOTHING

    meanwhile()


@scenario
async def test_a_stored_position_has_the_time_at_which_it_was_stored(world: World) -> None:
    await world.publish(1)
    client = await world.sub()
    await world.advance(100)
    client.ack(client.positions[0])
    await client.leave()
    assert world.cursor().commit_timestamp_ms == world.clock.now_ms()


@scenario
async def test_a_position_that_cannot_be_written_is_stored_when_it_can(world: World) -> None:
    await world.publish(1)
    client = await world.sub()
    client.ack(client.positions[0])
    subscription = world.subscription()
    assert subscription is not None
    subscription.cursor.properties["too long"] = "x" * 2000
    with pytest.raises(MetadataError, match="could not be stored yet"):
        await world.broker.subscriptions.store(subscription)
    await world.advance(SAVE_INTERVAL_S_MAX)
    assert await world.stored_mark_delete() == 0
    del subscription.cursor.properties["too long"]
    await world.advance(SAVE_INTERVAL_S_MAX)
    assert await world.stored_mark_delete() == 1


@scenario
async def test_an_older_write_that_ends_is_not_taken_for_the_newer_one(world: World) -> None:
    await world.publish(3)
    client = await world.sub()
    subscription = world.subscription()
    assert subscription is not None
    world.metadata.hold()
    told = []
    for position in client.positions[:2]:
        client.ack(position)
        told.append(asyncio.create_task(world.broker.subscriptions.store(subscription)))
        await settle()
    world.metadata.release()
    world.metadata.hold()
    await settle()
    leaving = asyncio.create_task(client.leave())
    await settle()
    assert [one.done() for one in (*told, leaving)] == [True, False, False]
    world.metadata.release()
    await asyncio.gather(*told, leaving)
    assert await world.stored_mark_delete() == 2


@scenario
async def test_after_the_end_no_position_is_stored_by_itself(world: World) -> None:
    await world.publish(2)
    client = await world.sub()
    client.ack(client.positions[0])
    await world.broker.subscriptions._stored.stop()
    await world.advance(SAVE_INTERVAL_S_MAX)
    assert await world.stored_mark_delete() == 0


@scenario
async def test_an_unforeseen_failure_is_a_problem_for_the_operator_and_positions_are_stored_later(
    world: World,
) -> None:
    await world.publish(2)
    client = await world.sub()
    client.ack(client.positions[0])
    save, problems = world.broker.cursors.save, []

    def fails(key: CursorKey) -> asyncio.Future[None]:
        world.broker.cursors.save = save  # type: ignore[method-assign]
        raise RuntimeError("unforeseen")

    world.broker.cursors.save = fails  # type: ignore[method-assign]
    await world.advance(SAVE_INTERVAL_S)
    problems = [job.problem for job in world.broker.upkeep.jobs if job.problem is not None]
    assert len(problems) == 1
    assert "positions of subscriptions" in problems[0]
    await world.advance(SAVE_INTERVAL_S_MAX)
    assert await world.stored_mark_delete() == 1
    assert not any(job.problem for job in world.broker.upkeep.jobs)


@scenario
async def test_while_a_subscription_is_moved_others_are_stored(world: World) -> None:
    await world.publish(2)
    client, other = await world.sub(), await world.sub("other")
    subscription = world.subscription()
    assert subscription is not None
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def find() -> int:
        return await found

    seeking = asyncio.create_task(world.broker.subscriptions.seek(subscription, find()))
    await settle()
    client.ack(client.positions[0])
    leaving = asyncio.create_task(client.leave())
    await world.advance(SAVE_INTERVAL_S_MAX)
    other.ack(other.positions[0])
    await world.advance(SAVE_INTERVAL_S_MAX)
    assert [await world.stored_mark_delete(name) for name in ("s", "other")] == [1, 1]
    found.set_result(2)
    await asyncio.gather(seeking, leaving)
    assert await world.stored_mark_delete() == 2


@scenario
async def test_a_reader_with_the_name_of_a_subscription_that_could_expire_keeps_nobody_from_being_stored(
    world: World,
) -> None:
    await world.publish(2)
    await (await world.sub()).leave()
    policy = {"subscription_expiration_time_minutes": 1}
    await world.broker.namespaces.change(NAME.namespace_name, lambda _: policy)
    await world.sub(is_durable=False)
    other = await world.sub("other")
    await world.broker.housekeeping.run_once()
    await world.advance(SAVE_INTERVAL_S_MAX)
    other.ack(other.positions[0])
    await world.advance(SAVE_INTERVAL_S_MAX)
    assert await world.stored_mark_delete("other") == 1
    assert not any(job.problem for job in world.broker.upkeep.jobs)
