"""Cursors that another broker has written: read again when this one takes their partitions over."""

import logging

import pytest

from magnetar.base.errors import EntryCorrupt, MetadataError
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.ledger.stored_cursors import ROOT
from magnetar.testing.metadata import MemoryMetadataStore

from .chain import run

T = "persistent://public/default/t"
U = "persistent://public/default/u"
IDS = {T: "a1", U: "b2"}


def cursor(offset: int) -> Cursor:
    return Cursor(offset, holds_data=True)


async def two_stores() -> tuple[MemoryMetadataStore, CursorStore, CursorStore]:
    """Of two brokers, which both know what was written before."""
    metadata = MemoryMetadataStore()
    first, second = (CursorStore(metadata, identity=IDS.__getitem__) for _ in range(2))
    await first.commit({CursorKey("s", T, 0): cursor(5), CursorKey("s", T, 1): cursor(7)})
    await second.load()
    return metadata, first, second


@run
async def test_what_another_broker_has_written_since_is_there() -> None:
    _, first, second = await two_stores()
    await first.commit({CursorKey("s", T, 0): cursor(50), CursorKey("new", T, 0): cursor(3)})
    assert second.get(CursorKey("s", T, 0)) == cursor(5)
    await second.read_again({(T, 0)})
    assert second.get(CursorKey("s", T, 0)) == cursor(50)
    assert second.get(CursorKey("new", T, 0)) == cursor(3)
    assert second.held_from(T, 0) == 3
    assert sorted(second.holders(T, 0)) == ["new", "s"]
    assert sorted(second.subscriptions()) == ["new", "s"]


@run
async def test_what_another_broker_has_dropped_is_gone_and_holds_nothing_back() -> None:
    _, first, second = await two_stores()
    await first.drop([CursorKey("s", T, 0)])
    await second.read_again({(T, 0)})
    assert second.get(CursorKey("s", T, 0)) is None
    assert second.held_from(T, 0) is None
    assert second.get(CursorKey("s", T, 1)) == cursor(7)
    await first.drop_subscription("s")
    await second.read_again({(T, 1)})
    assert second.subscriptions() == []


@run
async def test_partitions_that_are_not_taken_over_stay_as_this_broker_knows_them() -> None:
    _, first, second = await two_stores()
    await second.commit({CursorKey("s", U, 0): cursor(9)})
    await first.commit({CursorKey("s", T, 0): cursor(50), CursorKey("s", T, 1): cursor(70)})
    await second.read_again({(T, 0)})
    assert second.get(CursorKey("s", T, 1)) == cursor(7)
    assert second.get(CursorKey("s", U, 0)) == cursor(9)
    assert second.held_from(U, 0) == 9


@run
async def test_a_cursor_of_an_earlier_topic_of_the_name_is_none_of_this_one() -> None:
    metadata, _, second = await two_stores()
    (path, stored), *_ = await metadata.scan(ROOT)
    await metadata.put(path.replace("@a1", "@old"), stored.value)
    await metadata.delete(path)
    await second.read_again({(T, 0)})
    assert second.get(CursorKey("s", T, 0)) is None


@run
async def test_a_damaged_cursor_is_reported_and_the_others_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata, first, second = await two_stores()
    (path, stored), *_ = await metadata.scan(ROOT)
    await metadata.put(path, stored.value[:-1])
    await first.commit({CursorKey("new", T, 0): cursor(3)})
    with caplog.at_level(logging.ERROR):
        await second.read_again({(T, 0)})
    assert "nothing is held back" in caplog.text
    assert second.get(CursorKey("new", T, 0)) == cursor(3)
    with pytest.raises(EntryCorrupt):
        second.get(CursorKey("s", T, 0))


@run
async def test_a_store_that_cannot_be_read_changes_nothing() -> None:
    metadata, _, second = await two_stores()
    await metadata.close()
    with pytest.raises(MetadataError):
        await second.read_again({(T, 0)})
    assert second.get(CursorKey("s", T, 0)) == cursor(5)
