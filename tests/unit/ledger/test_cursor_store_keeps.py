"""What the cursor store knows from its start on, what is on its way, and what is gone when something is dropped."""

import asyncio

import pytest

from magnetar.base.errors import EntryCorrupt, MetadataError
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.stored_cursors import ROOT
from magnetar.metadata.store import Delete, Put
from magnetar.testing.metadata import MemoryMetadataStore

from .chain import run

T = "persistent://public/default/t"


class Owner:
    """Keeps what its owner reports."""

    def __init__(self) -> None:
        self.cursor = Cursor()
        self.is_in_use = True
        self.told: list[Cursor | None] = []

    def replaced(self, cursor: Cursor | None) -> None:
        self.told.append(cursor)


async def loaded(store: MemoryMetadataStore) -> CursorStore:
    cursors = CursorStore(store)
    await cursors.load()
    return cursors


def key(name: str, partition: int = 0) -> CursorKey:
    return CursorKey(name, T, partition)


@run
async def test_what_is_held_is_known_from_the_start_on() -> None:
    store = MemoryMetadataStore()
    await (await loaded(store)).commit(
        {key("a"): Cursor(7, holds_data=True), key("b"): Cursor(9, holds_data=True), key("c"): Cursor(3)}
    )
    again = await loaded(store)
    assert again.held_from(T, 0) == 7
    assert sorted(again.holders(T, 0)) == ["a", "b"]
    assert again.holders(T, 1) == []


@pytest.mark.parametrize("value", [b"", b"\xc5", b"\xc5\x01"])
def test_a_value_of_a_byte_or_two_is_damage_to_callers_that_ask_for_it_only(value: bytes) -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore()
        await store.put(f"{ROOT}a/{T.replace('/', '%2F')}/0", value)
        await (await loaded(store)).commit({key("b"): Cursor(1)})
        cursors = await loaded(store)
        assert cursors.get(key("b")) == Cursor(1)
        with pytest.raises(EntryCorrupt):
            cursors.get(key("a"))

    asyncio.run(scenario())


@run
async def test_what_goes_with_a_commit_is_written_in_the_same_step() -> None:
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    await store.put("/old", b"")
    before = store.commit_count
    await cursors.submit({key("a"): Cursor(1)}, [Put("/new", b"x"), Delete("/old")])
    assert store.commit_count == before + 1
    assert [path for path, _ in await store.scan("/") if not path.startswith(ROOT)] == ["/new"]


@run
async def test_a_subscription_that_is_dropped_while_it_is_written_does_not_come_back() -> None:
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    store.hold()
    written = [cursors.submit({key(name, 3): Cursor(5)}) for name in ("dropped", "other")]
    await asyncio.sleep(0)
    assert cursors.is_being_written(key("dropped", 3))
    assert not cursors.is_being_written(key("dropped", 4))
    drop = asyncio.ensure_future(cursors.drop_subscription("dropped"))
    await asyncio.sleep(0)
    store.release()
    await asyncio.gather(*written, drop)
    assert not cursors.is_being_written(key("dropped", 3))
    assert cursors.subscriptions() == ["other"]
    assert (await loaded(store)).subscriptions() == ["other"]


@run
async def test_a_write_that_failed_is_on_its_way_no_more() -> None:
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    store.fail_next = 1
    twice = [cursors.submit({key("a"): Cursor(number)}) for number in (1, 2)]
    assert cursors.is_being_written(key("a"))
    assert await asyncio.gather(*twice, return_exceptions=True) != [None, None]
    assert not cursors.is_being_written(key("a"))


@run
async def test_a_failure_that_no_caller_waits_for_any_more_disturbs_no_other() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    store.hold()
    store.fail_next = 1
    waiting = asyncio.ensure_future(cursors.commit({key("a"): Cursor(1)}))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    store.release()
    await cursors.close()
    await asyncio.sleep(0)
    assert cursors.get(key("a")) is None
    assert reported == []


@run
async def test_a_deleted_topic_has_no_holder_and_its_cursors_no_owner() -> None:
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    await cursors.commit({key("a"): Cursor(7, holds_data=True), key("a", 1): Cursor(1, holds_data=True)})
    owner, next_one = Owner(), Owner()
    cursors.attach(key("a"), owner)
    cursors.attach(CursorKey("a", T + "2", 0), next_one)
    assert len(list(cursors.forget_topic(T, ""))) == 2
    assert owner.told == [None]
    assert next_one.told == []
    assert (cursors.held_from(T, 0), cursors.holders(T, 1)) == (None, [])
    cursors.attach(key("a"), Owner())
    assert cursors.is_in_use(key("a"))


@run
async def test_nothing_is_kept_of_owners_and_holders_that_are_gone() -> None:
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    owner = Owner()
    for number in range(2):
        cursors.attach(key("a", number), owner)
    cursors.detach(key("a", 0), Owner())
    assert cursors.is_in_use(key("a", 0)), "it has another owner"
    cursors.detach(key("a", 0), owner)
    assert not cursors.is_in_use(key("a", 0))
    assert cursors.in_use("a")
    cursors.detach(key("a", 1))
    cursors.detach(key("a", 1))
    assert not cursors.in_use("a")
    assert cursors._owned == {}
    await cursors.commit({key("a"): Cursor(7, holds_data=True), key("b"): Cursor(3, holds_data=True)})
    for name, left in (("a", 3), ("b", None)):
        await cursors.commit({key(name): Cursor(8)})
        assert cursors.held_from(T, 0) == left
    assert cursors._holders == {}


@run
async def test_the_newest_cursor_is_the_one_that_the_writes_under_way_will_leave() -> None:
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    await cursors.commit({key("a"): Cursor(1), key("b"): Cursor(5)})
    assert (cursors.newest(key("a")), cursors.newest(key("none"))) == (Cursor(1), None)
    store.hold()
    first = cursors.submit({key("a"): Cursor(2)})
    await asyncio.sleep(0)
    second = cursors.submit({key("a"): Cursor(3)})
    dropped = asyncio.ensure_future(cursors.drop([key("b")]))
    await asyncio.sleep(0)
    assert (cursors.get(key("a")), cursors.newest(key("a"))) == (Cursor(1), Cursor(3))
    assert (cursors.get(key("b")), cursors.newest(key("b"))) == (Cursor(5), None)
    store.release()
    store.hold()
    await first
    assert (cursors.get(key("a")), cursors.newest(key("a"))) == (Cursor(2), Cursor(3))
    store.release()
    await asyncio.gather(second, dropped)
    await cursors.commit({key("b"): Cursor(7)})
    assert (cursors.newest(key("a")), cursors.newest(key("b"))) == (Cursor(3), Cursor(7))
    assert cursors._under_way == {}


@run
async def test_a_write_that_failed_leaves_the_newest_cursor_as_it_was() -> None:
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    await cursors.commit({key("a"): Cursor(1)})
    store.fail_next = 1
    written = cursors.submit({key("a"): Cursor(2)})
    assert cursors.newest(key("a")) == Cursor(2)
    with pytest.raises(MetadataError):
        await written
    assert cursors.newest(key("a")) == Cursor(1)


@run
async def test_the_newest_cursor_of_an_owner_is_its_own() -> None:
    store = MemoryMetadataStore()
    cursors = await loaded(store)
    owner = Owner()
    owner.cursor = Cursor(9)
    store.hold()
    cursors.attach(key("a"), owner)
    written = cursors.submit({key("a"): Cursor(2)})
    assert cursors.newest(key("a")) is owner.cursor
    cursors.detach(key("a"))
    assert cursors.newest(key("a")) == Cursor(2)
    store.release()
    await written


@run
async def test_the_topics_of_a_subscription_are_known_before_and_after_it_is_read() -> None:
    store = MemoryMetadataStore()
    await (await loaded(store)).commit(
        {key("a"): Cursor(1), key("a", 1): Cursor(1), CursorKey("a", T + "%2F", 0): Cursor(1)}
    )
    cursors = await loaded(store)
    for _ in range(2):
        assert sorted(cursors.topics_of("a")) == [T, T + "%2F"]
        assert list(cursors.topics_of("b")) == []
        cursors.get(key("a"))


@run
async def test_who_asked_for_it_hears_which_cursors_are_gone() -> None:
    told: list[set[CursorKey]] = []
    store = MemoryMetadataStore()
    cursors = CursorStore(store)
    cursors.dropped.hear(lambda keys: told.append(set(keys)))
    await cursors.load()
    every = {key("a"), key("a", 1), key("b"), CursorKey("b", T + "2", 0)}
    await cursors.commit({one: Cursor(1) for one in every})
    await cursors.drop([key("a", 1)])
    assert told == [{key("a", 1)}]
    assert list(cursors.forget_topic(T, ""))
    assert told[1:] == [{key("a"), key("b")}]
    await cursors.drop_subscription("b")
    assert told[2:] == [{CursorKey("b", T + "2", 0)}]
