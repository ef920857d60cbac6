"""Deletions, commits and kills in any order: nothing of a deleted topic is seen by the next one of its name."""

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from magnetar.base.errors import BrokerError
from magnetar.broker.broker import Broker
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.cursor_store import CursorKey
from magnetar.testing.ledgers import MemoryLedgerStore

from .test_deletion import commit
from .test_producer_state import settle
from .test_topics import NAME, World


class DeletionMachine(RuleBasedStateMachine):
    """One name; a group, a subscription, schemas; and a process that dies with writes on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World(MemoryLedgerStore())
        self.do(self.world.start())
        self.topic: Topic | None = None
        self.stale: list[Any] = []  # partitions of topics that were deleted
        self.allowed: dict[str, set[int | None]] = {"g": {None}, "s": {None}}  # where each may stand
        self.next_offset = 1

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.world.metadata.release()
        self.world.metadata.stop_after(1 << 30)
        self.do(self.world.broker.stop())
        self.loop.close()

    @property
    def broker(self) -> Broker:
        return self.world.broker

    def check(self) -> None:
        """What all clients see is what may be."""
        assert (self.broker.topics.find(NAME) is None) == (self.topic is None)
        for name, allowed in self.allowed.items():
            found = self.broker.cursors.get(CursorKey(name, NAME.full, 0))
            assert (None if found is None else found.mark_delete) in allowed, (name, found, allowed)

    @precondition(lambda self: self.topic is None)
    @rule()
    def create(self) -> None:
        self.topic = self.do(self.world.create())
        self.allowed = {"g": {None}, "s": {None}}
        self.check()

    @precondition(lambda self: self.topic is not None)
    @rule(name=st.sampled_from(["g", "s"]))
    def move(self, name: str) -> None:
        offset = self.next_offset
        self.next_offset += 1
        assert self.do(commit(self.broker, offset, name)) is GroupError.NONE
        self.allowed[name] = {offset}
        self.check()

    @precondition(lambda self: self.topic is not None)
    @rule(commits=st.integers(0, 3), again=st.booleans(), stop=st.integers(0, 8))
    def delete_with_writes_on_their_way(self, commits: int, again: bool, stop: int) -> None:
        """`stop`: the process dies after so many commits, or not at all."""
        topic, self.topic = self.topic, None
        assert topic is not None
        dies = stop < 7

        async def scenario() -> tuple[bool, bool]:
            broker = self.broker
            work: list[Any] = [asyncio.ensure_future(commit(broker, 900 + n)) for n in range(commits)]
            if dies:
                self.world.metadata.stop_after(stop)
            deletion = asyncio.ensure_future(broker.delete_topic(topic))
            work.append(deletion)
            await asyncio.sleep(0)
            work += [asyncio.ensure_future(commit(broker, 950 + n)) for n in range(commits)]
            if again:
                made = asyncio.ensure_future(broker.topics.ensure(NAME))
                work.append(made)
                await settle()
                if made.done():
                    work.append(asyncio.ensure_future(commit(broker, 7)))
            await settle()
            is_deleted = deletion.done()
            if not dies:
                await asyncio.gather(*work)
                return True, again
            for one in work:
                one.cancel()
            self.world.metadata.stop_after(1 << 30)
            await self.world.crash()
            now = self.broker.topics.find(NAME)
            assert not (is_deleted and now is not None and now.topic_id == topic.topic_id)
            return now is None or now.topic_id != topic.topic_id, now is not None

        self.stale += topic.open_partitions
        is_deleted, is_there = self.do(scenario())
        before = self.allowed
        self.topic = self.broker.topics.find(NAME)
        assert (self.topic is not None) == is_there
        if is_deleted:
            self.allowed = {"g": {None, 7} if again else {None}, "s": {None}}
        else:
            self.allowed = {"g": before["g"] | {*range(900, 953)}, "s": before["s"]}
        self.check()

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def subscribe_to_a_deleted_topic(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(self.stale))
        if not partition.topic.is_deleted:
            return
        with pytest.raises(BrokerError):
            self.do(self.broker.subscriptions.create(partition, "s", 1))
        self.check()

    @rule()
    def die(self) -> None:
        self.do(self.world.crash())
        self.topic = self.broker.topics.find(NAME) if self.topic is not None else None
        self.check()


TestDeletionModel = DeletionMachine.TestCase


TestDeletionModel.settings = settings(stateful_step_count=25)
