"""Offsets that become a group's in one step, and what happens while they are made ready."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.broker.errors import UnknownTopic
from magnetar.broker.groups.model import OffsetToCommit
from magnetar.broker.groups.moves import OFFSETS_AT_ONCE, Moves
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.testing.metadata import MemoryMetadataStore

KEY = CursorKey("g", "t", 0)


class Topics:
    """By name, with their ids."""

    def __init__(self) -> None:
        self.ids = {"t": "aa"}

    def exists(self, topic: str, partition: int) -> bool:
        return topic in self.ids

    def identity(self, topic: str) -> str:
        try:
            return self.ids[topic]
        except KeyError:
            raise UnknownTopic(topic) from None


class Owner:
    is_in_use = False

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def replaced(self, cursor: Cursor | None) -> None:
        assert cursor is not None
        self.cursor = cursor.copy()


async def commits(topics: Topics, cursors: CursorStore, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Offset 5 of t-0 becomes the group's; `meanwhile` happens when it was made ready."""
    moves = Moves(cursors, topics.exists, 1)
    await moves.prepare("g", [OffsetToCommit("t", 0, 5, topic_id="aa")])
    await meanwhile()
    await moves.submit()


def run(scenario: Callable[[Topics, CursorStore], Awaitable[None]]) -> None:
    async def main() -> None:
        topics = Topics()
        await scenario(topics, CursorStore(MemoryMetadataStore(), None, topics.identity))

    asyncio.run(main())


@pytest.mark.parametrize("is_durable", [True, False])
def test_what_others_have_written_meanwhile_counts(is_durable: bool) -> None:
    async def scenario(topics: Topics, cursors: CursorStore) -> None:
        async def meanwhile() -> None:
            cursor = Cursor(2)
            cursor.ack_individual([(5, 9)])
            writing = cursors.submit({KEY: cursor})
            if is_durable:
                await writing

        await commits(topics, cursors, meanwhile)
        found = cursors.get(KEY)
        assert found is not None
        assert found.mark_delete == 9

    run(scenario)


def test_what_an_owner_has_acknowledged_meanwhile_counts() -> None:
    async def scenario(topics: Topics, cursors: CursorStore) -> None:
        owner = Owner(Cursor(2))
        cursors.attach(KEY, owner)

        async def meanwhile() -> None:
            owner.cursor.ack_individual([(5, 9)])

        await commits(topics, cursors, meanwhile)
        cursors.detach(KEY)
        found = cursors.get(KEY)
        assert found is not None
        assert found.mark_delete == owner.cursor.mark_delete == 9

    run(scenario)


@pytest.mark.parametrize("successor", ["bb", None])
def test_a_topic_that_has_gone_meanwhile_gets_nothing_nor_does_the_next_of_its_name(
    successor: str | None,
) -> None:
    async def scenario(topics: Topics, cursors: CursorStore) -> None:
        async def meanwhile() -> None:
            del topics.ids["t"]
            if successor is not None:
                topics.ids["t"] = successor

        await commits(topics, cursors, meanwhile)
        assert cursors.get(KEY) is None

    run(scenario)


def test_very_many_are_made_ready_in_turns() -> None:
    async def scenario(topics: Topics, cursors: CursorStore) -> None:
        moves = Moves(cursors, topics.exists, 1)
        wanted = [OffsetToCommit("t", number, 5) for number in range(10 * OFFSETS_AT_ONCE)]
        preparing = asyncio.ensure_future(moves.prepare("g", wanted))
        turns = 0
        while not preparing.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 10
        await moves.submit()
        assert len(cursors.subscription("g")["t"]) == len(wanted)

    run(scenario)
