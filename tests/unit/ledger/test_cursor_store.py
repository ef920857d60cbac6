"""The cursor store over an in-memory metadata store: durability before visibility, shared commits,
start-up.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import EntryCorrupt, MetadataError
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore, escape, unescape
from magnetar.metadata.store import Put
from magnetar.testing.metadata import MemoryMetadataStore

T = "persistent://public/default/t"
KEY = CursorKey("group", T, 0)


def run(test: Callable[[MemoryMetadataStore, CursorStore], Awaitable[None]]) -> MemoryMetadataStore:
    async def main() -> MemoryMetadataStore:
        store = MemoryMetadataStore()
        cursors = CursorStore(store)
        await cursors.load()
        await test(store, cursors)
        await cursors.close()
        return store

    return asyncio.run(main())


async def reopened(store: MemoryMetadataStore) -> CursorStore:
    cursors = CursorStore(store)
    await cursors.load()
    return cursors


def test_a_commit_shows_only_once_it_is_durable() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        store.hold()
        task = asyncio.create_task(cursors.commit({KEY: Cursor(5)}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert cursors.get(KEY) is None
        assert KEY.subscription not in cursors
        store.release()
        await task
        assert cursors.get(KEY) == Cursor(5)

    run(test)


def test_a_failed_commit_leaves_the_old_cursor_and_the_next_one_works() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit({KEY: Cursor(1)})
        store.fail_next = 1
        with pytest.raises(MetadataError):
            await cursors.commit({KEY: Cursor(2)})
        assert cursors.get(KEY) == Cursor(1)
        await cursors.commit({KEY: Cursor(3)})
        assert cursors.get(KEY) == Cursor(3)

    run(test)


def test_commits_that_wait_at_one_moment_share_one_store_commit_in_order() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        store.hold()
        first = asyncio.create_task(cursors.commit({KEY: Cursor(0)}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the first round is under way
        rest = [asyncio.create_task(cursors.commit({KEY: Cursor(n)})) for n in range(1, 100)]
        await asyncio.sleep(0)
        store.release()
        await asyncio.gather(first, *rest)
        assert store.commit_count == 2
        assert cursors.get(KEY) == Cursor(99)

    store = run(test)
    assert asyncio.run(reopened(store)).get(KEY) == Cursor(99)


def test_one_commit_of_many_cursors_is_all_or_nothing() -> None:
    keys = [CursorKey("g", T, number) for number in range(50)]

    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit({key: Cursor(1) for key in keys})
        assert store.commit_count == 1
        store.fail_next = 1
        with pytest.raises(MetadataError):
            await cursors.commit({key: Cursor(2) for key in keys})
        assert {cursor.mark_delete for cursor in cursors.subscription("g")[T].values()} == {1}
        with pytest.raises(ValueError, match="too large"):
            await cursors.commit({keys[0]: Cursor(3), keys[1]: Cursor(3, "m" * 40_000)})
        assert cursors.get(keys[0]) == Cursor(1)

    run(test)


def test_a_waiter_that_gives_up_does_not_take_its_write_back() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        store.hold()
        task = asyncio.create_task(cursors.commit({KEY: Cursor(5)}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.release()
        await cursors.close()
        assert cursors.get(KEY) == Cursor(5)

    run(test)


def test_everything_is_there_after_a_restart() -> None:
    written = {
        CursorKey(group, topic, partition): Cursor(partition, metadata=group, holds_data=partition == 1)
        for group in ("g", "", "..", "a/b %", "ünï")
        for topic in (T, "persistent://a/b/c")
        for partition in range(3)
    }

    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit(written)
        again = await reopened(store)
        assert sorted(again.subscriptions()) == sorted({key.subscription for key in written})
        assert "" in again
        assert {key: again.get(key) for key in written} == written
        assert again.held_from(T, 1) == 1
        assert again.held_from(T, 0) is None

    run(test)


def test_the_lowest_holder_decides_what_is_held() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        a, b, c = (CursorKey(name, T, 0) for name in "abc")
        await cursors.commit({a: Cursor(7, holds_data=True), b: Cursor(3, holds_data=True), c: Cursor(1)})
        assert cursors.held_from(T, 0) == 3
        await cursors.drop([b])
        assert cursors.held_from(T, 0) == 7
        await cursors.commit({a: Cursor(7)})
        assert cursors.held_from(T, 0) is None

    run(test)


def test_a_deleted_topic_takes_its_cursors_along_even_unread_and_unwritten_ones() -> None:
    other = CursorKey("g0", T + "2", 0)

    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit({CursorKey(f"g{n}", T, 0): Cursor(n) for n in range(3)} | {other: Cursor(9)})
        again = await reopened(store)
        store.hold()
        late = asyncio.create_task(again.commit({CursorKey("late", T, 4): Cursor(1)}))
        await asyncio.sleep(0)
        drop = asyncio.create_task(again.drop_topic(T))
        await asyncio.sleep(0)
        store.release()
        await asyncio.gather(late, drop)
        assert again.subscriptions() == ["g0"]
        assert again.get(other) == Cursor(9)
        assert [path for path, _ in await store.scan("/cursors/")] == [f"/cursors/g0/{escape(T + '2')}/0"]

    run(test)


def test_dropping_a_subscription_applies_what_belongs_to_it_in_the_same_step() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit({KEY: Cursor(1), CursorKey("group2", T, 0): Cursor(2)})
        again = await reopened(store)
        before = store.commit_count
        drop = asyncio.create_task(again.drop_subscription("group", [Put("/groups/group", b"")]))
        await asyncio.sleep(0)
        assert again.get(KEY) == Cursor(1)  # read while the drop is under way
        await drop
        assert again.subscriptions() == ["group2"]
        assert store.commit_count == before + 1
        assert (await reopened(store)).subscriptions() == ["group2"]
        assert await store.get("/groups/group") is not None

    run(test)


def test_damaged_cursors_are_reported_never_served_and_can_be_dropped() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit({KEY: Cursor(1), CursorKey("well", T, 0): Cursor(2)})
        path = f"/cursors/group/{escape(T)}/0"
        value = bytearray((await store.scan(path))[0][1].value)
        value[10] ^= 1
        await store.put(path, bytes(value))
        again = await reopened(store)
        with pytest.raises(EntryCorrupt, match="group"):
            again.get(KEY)
        with pytest.raises(EntryCorrupt):
            await again.commit({KEY: Cursor(5)})
        assert again.get(CursorKey("well", T, 0)) == Cursor(2)
        await again.drop_subscription("group")
        assert again.get(KEY) is None
        assert await store.get(path) is None

    run(test)


@given(st.text())
def test_any_name_becomes_one_path_part_and_back(name: str) -> None:
    part = escape(name)
    assert unescape(part) == name
    assert part not in ("", ".", "..")
    assert "/" not in part


def test_a_cursor_that_was_dropped_before_it_was_read_does_not_come_back() -> None:
    other = CursorKey("group", T, 1)

    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit({KEY: Cursor(1), other: Cursor(2)})
        again = await reopened(store)
        await again.drop([KEY])
        assert again.get(KEY) is None
        assert again.get(other) == Cursor(2)

    run(test)
