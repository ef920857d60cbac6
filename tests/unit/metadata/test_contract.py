"""What every `MetadataStore` promises (the port's docstring, sentence by sentence)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.base.errors import BadVersion, MetadataError
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    VALUE_BYTES_MAX,
    Change,
    Check,
    Delete,
    MetadataStore,
    Put,
    Versioned,
)

OpenStore = Callable[[], MetadataStore]


def with_store(open_store: OpenStore, scenario: Callable[[MetadataStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = open_store()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(run())


def test_a_path_never_written_has_no_value(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.get("/a") is None
        assert await store.scan("/") == []

    with_store(open_store, scenario)


def test_versions_start_at_0_and_grow_by_one_and_start_again_after_a_delete(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.put("/a", b"1") == 0
        assert await store.put("/a", b"2") == 1
        assert await store.get("/a") == Versioned(b"2", 1)
        await store.delete("/a")
        assert await store.get("/a") is None
        assert await store.put("/a", b"3") == 0

    with_store(open_store, scenario)


def test_compare_and_set_refuses_every_version_but_the_current_one(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(BadVersion):
            await store.put("/a", b"x", 0)
        assert await store.put("/a", b"1", MUST_NOT_EXIST) == 0
        with pytest.raises(BadVersion):
            await store.put("/a", b"x", MUST_NOT_EXIST)
        with pytest.raises(BadVersion):
            await store.put("/a", b"x", 1)
        assert await store.put("/a", b"2", 0) == 1
        with pytest.raises(BadVersion):
            await store.delete("/a", 0)
        assert await store.get("/a") == Versioned(b"2", 1)
        await store.delete("/a", 1)
        with pytest.raises(BadVersion):
            await store.delete("/a", 1)
        await store.delete("/a")

    with_store(open_store, scenario)


def test_of_many_racing_creators_exactly_one_wins(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        results = await asyncio.gather(
            *(store.put("/a", str(i).encode(), MUST_NOT_EXIST) for i in range(50)), return_exceptions=True
        )
        winners = [i for i, result in enumerate(results) if result == 0]
        assert len(winners) == 1
        assert sum(isinstance(result, BadVersion) for result in results) == 49
        assert await store.get("/a") == Versioned(str(winners[0]).encode(), 0)

    with_store(open_store, scenario)


def test_concurrent_compare_and_set_increments_lose_nothing(open_store: OpenStore) -> None:
    async def increment(store: MetadataStore) -> None:
        while True:
            current = await store.get("/n")
            assert current is not None
            try:
                await store.put("/n", str(int(current.value) + 1).encode(), current.version)
            except BadVersion:
                continue
            return

    async def scenario(store: MetadataStore) -> None:
        await store.put("/n", b"0")
        await asyncio.gather(*(increment(store) for _ in range(20)))
        assert await store.get("/n") == Versioned(b"20", 20)

    with_store(open_store, scenario)


def test_commit_applies_all_or_nothing(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.put("/a", b"1")
        with pytest.raises(BadVersion):
            await store.commit([Put("/b", b"x"), Delete("/a"), Put("/c", b"x", 7)])
        assert await store.scan("/") == [("/a", Versioned(b"1", 0))]
        await store.commit([Put("/b", b"2", MUST_NOT_EXIST), Delete("/a", 0), Put("/c", b"3")])
        assert await store.scan("/") == [("/b", Versioned(b"2", 0)), ("/c", Versioned(b"3", 0))]
        await store.commit([])

    with_store(open_store, scenario)


def test_a_check_lets_a_commit_depend_on_a_path_that_it_leaves_as_it_is(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        seen: list[Change] = []
        await store.put("/owner", b"1")
        store.watch("/", seen.append)
        await store.commit([Check("/owner", 0), Put("/a", b"1"), Check("/none", MUST_NOT_EXIST)])
        assert await store.scan("/") == [("/a", Versioned(b"1", 0)), ("/owner", Versioned(b"1", 0))]
        for refused in (
            Check("/owner", 1),
            Check("/owner", MUST_NOT_EXIST),
            Check("/none", 0),
            Check("/a", MUST_NOT_EXIST),
        ):
            with pytest.raises(BadVersion):
                await store.commit([Put("/b", b"lost"), refused])
            with pytest.raises(BadVersion):
                await store.commit([refused, Put("/b", b"lost")])
        assert await store.get("/b") is None
        await store.put("/last", b"")
        await settle(lambda: len(seen) >= 2)
        assert [change.path for change in seen] == ["/a", "/last"]

    with_store(open_store, scenario)


def test_a_check_sees_the_steps_before_it(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.put("/a", b"1")
        await store.commit([Put("/a", b"2"), Check("/a", 1), Delete("/a"), Check("/a", MUST_NOT_EXIST)])
        assert await store.get("/a") is None
        with pytest.raises(BadVersion):
            await store.commit([Put("/a", b"3"), Check("/a", 1)])

    with_store(open_store, scenario)


def test_a_commit_of_nothing_but_checks_only_asks(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.put("/a", b"1")
        await store.commit([Check("/a", 0), Check("/b", MUST_NOT_EXIST)])
        with pytest.raises(BadVersion):
            await store.commit([Check("/a", 0), Check("/b", 0)])
        results = await asyncio.gather(
            store.commit([Check("/a", 1)]),
            store.put("/a", b"2", 0),
            store.commit([Check("/a", 1)]),
            store.commit([Check("/a", 0)]),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [BadVersion, int, type(None), BadVersion]

    with_store(open_store, scenario)


def test_a_check_says_which_version_it_expects(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.put("/a", b"1")
        with pytest.raises(MetadataError, match="must say which version"):
            await store.commit([Check("/a", ANY_VERSION), Put("/b", b"")])
        with pytest.raises(MetadataError, match="must begin with a slash"):
            await store.commit([Check("a", 0)])
        assert await store.get("/b") is None

    with_store(open_store, scenario)


def test_a_losing_commit_leaves_nothing_behind_for_the_writes_that_wait_with_it(
    open_store: OpenStore,
) -> None:
    async def scenario(store: MetadataStore) -> None:
        results = await asyncio.gather(
            store.commit([Put("/a", b"lost"), Put("/b", b"lost", 5)]),
            store.put("/a", b"won", MUST_NOT_EXIST),
            store.commit([Put("/a", b"again", 0)]),
            return_exceptions=True,
        )
        assert isinstance(results[0], BadVersion)
        assert list(results[1:]) == [0, None]
        assert await store.get("/a") == Versioned(b"again", 1)
        assert await store.get("/b") is None

    with_store(open_store, scenario)


def test_steps_of_one_commit_see_the_steps_before_them(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.put("/a", b"1")
        await store.commit(
            [Put("/a", b"2", 0), Put("/a", b"3", 1), Delete("/a", 2), Put("/a", b"4", MUST_NOT_EXIST)]
        )
        assert await store.get("/a") == Versioned(b"4", 0)

    with_store(open_store, scenario)


def test_scan_gives_what_is_below_the_prefix_in_order_of_path(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        for path in ("/t/b", "/t/a", "/t/a/x", "/tt/a", "/s", "/t/é", "/t/a-b"):
            await store.put(path, path.encode())
        assert [path for path, _ in await store.scan("/t/")] == ["/t/a", "/t/a-b", "/t/a/x", "/t/b", "/t/é"]
        assert await store.scan("/u/") == []
        await store.delete("/t/a")
        assert [path for path, _ in await store.scan("/t/a/")] == ["/t/a/x"]

    with_store(open_store, scenario)


def test_a_watcher_sees_each_later_change_once_and_in_order(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        seen: list[Change] = []
        await store.put("/w/a", b"before")
        store.watch("/w/", seen.append)
        await asyncio.gather(store.put("/w/a", b"1"), store.put("/w/a", b"2"), store.put("/other", b"x"))
        await store.delete("/w/a")
        await store.delete("/w/a")
        await store.commit([Put("/w/b", b"3"), Put("/w/c", b"4")])
        with pytest.raises(BadVersion):
            await store.put("/w/b", b"lost", 9)
        await settle(lambda: len(seen) >= 5)
        assert seen == [
            Change("/w/a", Versioned(b"1", 1)),
            Change("/w/a", Versioned(b"2", 2)),
            Change("/w/a", None),
            Change("/w/b", Versioned(b"3", 0)),
            Change("/w/c", Versioned(b"4", 0)),
        ]

    with_store(open_store, scenario)


def test_a_watcher_that_ended_sees_nothing_more_and_the_others_do(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        ended: list[Change] = []
        other: list[Change] = []
        end = store.watch("/w/", ended.append)
        store.watch("/w/", other.append)
        end()
        end()
        await store.put("/w/a", b"1")
        await settle(lambda: len(other) == 1)
        assert ended == []

    with_store(open_store, scenario)


def test_what_a_watcher_is_told_can_be_read(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        reads: list[asyncio.Task[Versioned | None]] = []
        store.watch("/w/", lambda change: reads.append(asyncio.ensure_future(store.get(change.path))))
        await store.put("/w/a", b"1")
        await settle(lambda: len(reads) == 1)
        assert await reads[0] == Versioned(b"1", 0)

    with_store(open_store, scenario)


def test_ephemeral_paths_read_like_any_other(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.put("/e/a", b"1", MUST_NOT_EXIST, ephemeral=True) == 0
        assert await store.put("/e/a", b"2", 0, ephemeral=True) == 1
        assert await store.scan("/e/") == [("/e/a", Versioned(b"2", 1))]
        with pytest.raises(BadVersion):
            await store.put("/e/a", b"3", MUST_NOT_EXIST, ephemeral=True)
        await store.delete("/e/a", 1)
        assert await store.get("/e/a") is None

    with_store(open_store, scenario)


def test_a_value_at_the_limit_is_stored_and_one_byte_more_is_refused(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.put("/big", b"x" * VALUE_BYTES_MAX)
        assert await store.get("/big") == Versioned(b"x" * VALUE_BYTES_MAX, 0)
        with pytest.raises(MetadataError, match="too large"):
            await store.put("/big", b"x" * (VALUE_BYTES_MAX + 1))
        with pytest.raises(MetadataError, match="too large"):
            await store.commit([Put("/ok", b""), Put("/big", b"x" * (VALUE_BYTES_MAX + 1))])
        assert await store.get("/ok") is None

    with_store(open_store, scenario)


@pytest.mark.parametrize("path", ["", "a", "/", "/a/", "/a\0b", "/\ud800"])
def test_malformed_paths_are_refused(open_store: OpenStore, path: str) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(MetadataError):
            await store.put(path, b"")
        assert await store.put("/fine", b"") == 0

    with_store(open_store, scenario)


def test_a_closed_store_refuses_and_closing_twice_is_harmless(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.close()
        with pytest.raises(MetadataError):
            await store.get("/a")
        with pytest.raises(MetadataError):
            await store.put("/a", b"")
        await store.close()

    with_store(open_store, scenario)


def test_close_finishes_what_waits(open_store: OpenStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        writes = [asyncio.ensure_future(store.put(f"/a/{i}", b"")) for i in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*writes) == [0] * 100

    with_store(open_store, scenario)


async def settle(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds; only a remote store needs real time for it."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition is a list that a callback fills
            await asyncio.sleep(0.001)
