"""A broker hears all that there is under a path, and each change since, in order."""

import pytest

from magnetar.base.errors import MetadataError
from magnetar.broker.cluster.following import follow
from magnetar.metadata.store import Versioned
from magnetar.testing.metadata import MemoryMetadataStore

from .world import run


class Slow(MemoryMetadataStore):
    """Changes while it is read."""

    changes = 3

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        found = await super().scan(prefix)
        await self._change()
        return found

    async def get(self, path: str) -> Versioned | None:
        found = await super().get(path)
        await self._change()
        return found

    async def _change(self) -> None:
        if self.changes:
            self.changes -= 1
            await self.put("/a/x", b"%d" % self.changes)


@run
async def test_what_changes_while_all_is_read_is_heard_too() -> None:
    store, heard = Slow(), dict[str, Versioned | None]()
    await store.put("/a/x", b"first")
    await store.put("/a/y", b"y")
    end = await follow(store, "/a/", heard.__setitem__)
    assert heard == {"/a/x": Versioned(b"0", 3), "/a/y": Versioned(b"y", 0)}
    await store.put("/a/z", b"z")
    await store.delete("/a/y")
    await store.put("/b", b"")
    assert heard["/a/y"] is None
    assert heard["/a/z"] == Versioned(b"z", 0)
    assert len(heard) == 3
    end()
    await store.put("/a/z", b"more")
    assert heard["/a/z"] == Versioned(b"z", 0)


@run
async def test_a_store_that_cannot_be_read_is_not_followed() -> None:
    store, heard = MemoryMetadataStore(), dict[str, Versioned | None]()
    await store.close()
    with pytest.raises(MetadataError):
        await follow(store, "/a/", heard.__setitem__)
    assert store._watchers == []
