"""The cursor store over an in-memory metadata store: durability before visibility, shared commits,
start-up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import BrokerError, EntryCorrupt, MetadataError
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.path_parts import escape, unescape
from magnetar.metadata.store import CommitStep, Put
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


class Names:
    """Which topic has a name."""

    def __init__(self, **ids: str) -> None:
        self.ids = {T + name.removeprefix("t"): topic_id for name, topic_id in ids.items()}

    def __call__(self, topic: str) -> str:
        if topic not in self.ids:
            raise BrokerError(f"there is no topic {topic}")
        return self.ids[topic]


def test_a_deleted_topic_takes_its_cursors_along_even_unread_and_unwritten_ones() -> None:
    other = CursorKey("g0", T + "2", 0)

    async def test(store: MemoryMetadataStore, _: CursorStore) -> None:
        names = Names(t="aa", t2="bb")
        cursors = CursorStore(store, identity=names)
        await cursors.commit({CursorKey(f"g{n}", T, 0): Cursor(n) for n in range(3)} | {other: Cursor(9)})
        commits = SharedCommits(store)
        again = CursorStore(store, commits, names)
        assert await again.load() == {}
        store.hold()
        late = asyncio.create_task(again.commit({CursorKey("late", T, 4): Cursor(1)}))
        await asyncio.sleep(0)
        paths: list[str] = []
        deletion = commits.submit([], lambda: paths.extend(again.forget_topic(T, "aa")))
        del names.ids[T]
        with pytest.raises(BrokerError, match="there is no topic"):
            await again.commit({CursorKey("too late", T, 4): Cursor(1)})
        store.release()
        await asyncio.gather(late, deletion)
        assert again.subscriptions() == ["g0"]
        assert again.get(other) == Cursor(9)
        names.ids[T] = "cc"
        assert again.get(CursorKey("g0", T, 0)) is None
        await again.commit({CursorKey("g0", T, 0): Cursor(7)})
        stored = [path for path, _ in await store.scan("/cursors/")]
        kept = [f"/cursors/g0/{escape(T + '2')}@bb/0", f"/cursors/g0/{escape(T)}@cc/0"]
        assert sorted(paths) == sorted(set(stored) - set(kept))
        assert len(stored) == 6
        third = CursorStore(store, identity=names)
        assert await third.load() == {"aa": sorted(paths)}
        assert third.get(CursorKey("g0", T, 0)) == Cursor(7)
        assert third.subscriptions() == ["g0"]

    run(test)


def test_cursors_that_earlier_versions_stored_by_name_get_the_id_of_the_topic_that_there_is() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit(
            {CursorKey(f"g{n}", T + topic, n): Cursor(n) for n in range(3) for topic in ("", "2", "gone")}
        )
        before = dict(await store.scan("/cursors/"))
        names = Names(t="aa", t2="bb")
        for _ in range(2):
            again = CursorStore(store, identity=names)
            assert await again.load() == {}
            assert again.get(CursorKey("g1", T + "2", 1)) == Cursor(1)
            assert again.get(CursorKey("g1", T + "gone", 1)) is None
        after = dict(await store.scan("/cursors/"))
        assert after == {
            f"/cursors/g{n}/{escape(T + topic)}@{topic_id}/{n}": before[
                f"/cursors/g{n}/{escape(T + topic)}/{n}"
            ]
            for n in range(3)
            for topic, topic_id in (("", "aa"), ("2", "bb"))
        }
        await again.drop([CursorKey("g1", T, 1)])
        await again.drop_subscription("g2")
        assert len(await store.scan("/cursors/")) == 3

    run(test)


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_crash_while_cursors_of_earlier_versions_get_their_ids_loses_none(commits: int) -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit({CursorKey("a", T + "gone", 0): Cursor(1)})  # nothing comes in its place
        keys = [CursorKey("group", T, number) for number in range(2500)]
        await cursors.commit({key: Cursor(key.partition) for key in keys})

        async def commit(operations: Sequence[CommitStep]) -> None:
            nonlocal commits
            if not commits:
                raise MetadataError("the process is gone")
            commits -= 1
            await whole(operations)

        whole, store.commit = store.commit, commit  # type: ignore[method-assign]
        with pytest.raises(MetadataError):
            await CursorStore(store, identity=Names(t="aa")).load()
        store.commit = whole  # type: ignore[method-assign]
        again = CursorStore(store, identity=Names(t="aa"))
        await again.load()
        assert [again.get(key) for key in keys] == [Cursor(key.partition) for key in keys]

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
