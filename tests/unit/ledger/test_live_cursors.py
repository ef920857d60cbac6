"""Live cursors of the cursor store: who owns one is believed, what is stored follows when the owner says so."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.errors import MetadataError
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.metadata.store import VALUE_BYTES_MAX, Put
from magnetar.testing.metadata import MemoryMetadataStore

T = "persistent://public/default/t"
KEY = CursorKey("sub", T, 0)


class Owner:
    def __init__(self, cursor: Cursor, in_use: bool = True) -> None:
        self.cursor = cursor
        self.is_in_use = in_use
        self.seen: list[Cursor | None] = []

    def replaced(self, cursor: Cursor | None) -> None:
        self.seen.append(cursor)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(test: Callable[[MemoryMetadataStore, CursorStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MemoryMetadataStore()
        cursors = CursorStore(store)
        await cursors.load()
        await test(store, cursors)
        await cursors.close()

    asyncio.run(main())


def test_readers_see_the_live_cursor_and_the_stored_one_again_when_it_is_let_go() -> None:
    async def test(_: MemoryMetadataStore, cursors: CursorStore) -> None:
        other = KEY._replace(partition=1)
        await cursors.commit({KEY: Cursor(1), other: Cursor(7)})
        owner = Owner(Cursor(1))
        cursors.attach(KEY, owner)
        owner.cursor.ack_cumulative(5)
        assert cursors.get(KEY) is owner.cursor
        assert cursors.subscription("sub") == {T: {0: Cursor(5), 1: Cursor(7)}}
        cursors.detach(KEY)
        assert cursors.get(KEY) == Cursor(1)
        assert cursors.subscription("sub") == {T: {0: Cursor(1), 1: Cursor(7)}}

    run(test)


def test_what_is_saved_is_the_cursor_of_that_moment() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        owner = Owner(Cursor(0, holds_data=True))
        cursors.attach(KEY, owner)
        owner.cursor.ack_cumulative(3)
        store.hold()
        saved = cursors.save(KEY)
        owner.cursor.ack_cumulative(9)
        assert cursors.held_from(T, 0) is None, "nothing is stored yet"
        store.release()
        await saved
        assert cursors.held_from(T, 0) == 3
        assert owner.seen == [], "its own writes are no news"
        again = CursorStore(store)
        await again.load()
        found = again.get(KEY)
        assert found is not None
        assert found.mark_delete == 3

    run(test)


def test_the_owner_has_at_once_what_others_write_and_keeps_what_could_not_be_stored() -> None:
    """What the owner saves next is written behind it, and would undo it."""

    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        owner = Owner(Cursor(0))
        cursors.attach(KEY, owner)
        store.hold()
        writing = cursors.submit({KEY: Cursor(4)})
        assert owner.seen == [Cursor(4)]
        store.release()
        await writing
        store.fail_next = 1
        with pytest.raises(MetadataError):
            await cursors.commit({KEY: Cursor(5)})
        dropping = asyncio.ensure_future(cursors.drop([KEY]))
        assert owner.seen == [Cursor(4), Cursor(5)]
        await dropping
        assert owner.seen == [Cursor(4), Cursor(5), None], "that is known once it is durable"

    run(test)


def test_the_owner_hears_nothing_of_what_no_store_would_take() -> None:
    async def test(_: MemoryMetadataStore, cursors: CursorStore) -> None:
        owner = Owner(Cursor(0))
        cursors.attach(KEY, owner)
        with pytest.raises(MetadataError):
            await cursors.submit({KEY: Cursor(4)}, [Put("/too-large", bytes(VALUE_BYTES_MAX + 1))])
        assert owner.seen == []

    run(test)


@pytest.mark.parametrize("fails", [False, True])
def test_an_owner_does_not_bring_back_what_is_being_dropped(fails: bool) -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit({KEY: Cursor(1)})
        owner = Owner(Cursor(2), in_use=False)
        cursors.attach(KEY, owner)
        store.hold()
        dropping = asyncio.ensure_future(cursors.drop([KEY]))
        await settle()
        with pytest.raises(MetadataError, match="sub is being dropped"):
            cursors.save(KEY)
        assert cursors.newest(KEY) is None, "what others write behind it is a new one"
        store.fail_next = fails
        store.release()
        await asyncio.wait([dropping])
        assert owner.seen == ([] if fails else [None])
        if fails:
            await cursors.save(KEY)
            assert cursors.newest(KEY) == Cursor(2)

    run(test)


@pytest.mark.parametrize("fails", [False, True])
def test_a_cursor_is_at_rest_when_the_last_write_has_ended_also_one_that_began_meanwhile(fails: bool) -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.at_rest(KEY)
        store.hold()
        first = cursors.submit({KEY: Cursor(1)})
        waiting = asyncio.ensure_future(cursors.at_rest(KEY))
        await settle()
        second = asyncio.ensure_future(cursors.drop([KEY]))
        await settle()
        store.release()
        store.hold()
        await settle()
        assert (first.done(), second.done(), waiting.done()) == (True, False, False)
        store.fail_next = fails
        store.release()
        await waiting
        assert (cursors.get(KEY) is None) is not fails
        await asyncio.wait([second])

    run(test)


def test_a_live_cursor_that_was_never_stored_goes_with_its_topic_and_with_its_subscription() -> None:
    async def test(_: MemoryMetadataStore, cursors: CursorStore) -> None:
        for is_topic in (True, False):
            owner = Owner(Cursor(0))
            cursors.attach(KEY, owner)
            if is_topic:
                cursors.forget_topic(T, "")
            else:
                await cursors.drop_subscription("sub")
            assert owner.seen == [None]
            cursors.detach(KEY)

    run(test)


def test_in_use_is_what_the_owner_says() -> None:
    async def test(_: MemoryMetadataStore, cursors: CursorStore) -> None:
        owner = Owner(Cursor(0), in_use=False)
        cursors.attach(KEY, owner)
        assert not cursors.is_in_use(KEY)
        assert not cursors.in_use("sub")
        owner.is_in_use = True
        assert cursors.is_in_use(KEY)
        assert cursors.in_use("sub")
        assert not cursors.in_use("other")
        assert not cursors.is_in_use(KEY._replace(partition=1))

    run(test)


def test_subscriptions_of_a_topic_are_found_whether_they_have_been_read_or_not() -> None:
    async def test(store: MemoryMetadataStore, cursors: CursorStore) -> None:
        await cursors.commit(
            {KEY: Cursor(), CursorKey("b", T, 3): Cursor(), CursorKey("c", T + "2", 0): Cursor()}
        )
        assert cursors.subscriptions_of(T) == ["b", "sub"]
        again = CursorStore(store)
        await again.load()
        assert again.subscriptions_of(T) == ["b", "sub"]
        assert again.get(KEY) is not None
        assert again.subscriptions_of(T) == ["b", "sub"]
        assert again.subscriptions_of(T + "3") == []

    run(test)
