"""A queue of Kafka's share consumers, driven by requests in bytes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from magnetar.base.names import TopicName
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.model import NewTopic
from magnetar.ledger.cursor import Cursor
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import share_acknowledge, share_fetch
from magnetar.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
)
from magnetar.wire.kafka.messages.share_acknowledge import ShareAcknowledgeRequest
from magnetar.wire.kafka.messages.share_fetch import ShareFetchRequest
from magnetar.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

Run = Callable[..., None]
FULL: Final = "persistent://public/default/t"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Batches = Sequence[tuple[int, int, Sequence[int]]]
FETCH_VERSIONS: Final = range(1, 3)


def short_locks(lock_ms: int) -> GroupSettings:
    return GroupSettings(
        group_share_record_lock_duration_ms=lock_ms, group_share_min_record_lock_duration_ms=lock_ms
    )


class Queue:
    """A topic with one partition, and share consumers of group `g`, which begins at its start."""

    def __init__(self, client: Any, version: int = 2) -> None:
        self.client = client
        self.version = version
        self.epochs: dict[str, int] = {}
        self.partition: Partition
        self.topic_id = b""

    async def begin(self, *sizes: int, **configs: str) -> "Queue":
        """With batches of so many records."""
        broker = self.client.broker
        await broker.topics.create([broker.topics.plan(NewTopic(TopicName.parse(FULL), 1))])
        settings = {"share.auto.offset.reset": "earliest"}
        settings |= {f"share.{name.replace('_', '.')}": value for name, value in configs.items()}
        await broker.groups.configs.change("g", settings)
        topic = broker.topics.get(TopicName.parse(FULL))
        self.partition, self.topic_id = topic.partition(0), topic.topic_id
        for size in sizes:
            await self.client.append(self.partition, size)
        return self

    async def ask(self, member: str, said: Batches = (), **fields: Any) -> Any:
        """A ShareFetch: the whole response."""
        epoch = self.epochs.get(member, 0)
        batches = [share_fetch.AcknowledgementBatch(first, last, list(kinds)) for first, last, kinds in said]
        topic = share_fetch.FetchTopic(self.topic_id, [share_fetch.FetchPartition(0, batches)])
        values = {"max_records": 100, "topics": [topic]} | fields
        request = ShareFetchRequest("g", member, epoch)
        for name, value in values.items():
            setattr(request, name, value)
        answer = await self.client.ask("share_fetch", self.version, request)
        if answer.error_code == ErrorCode.NONE:
            self.epochs[member] = epoch + 1
        return answer

    async def fetch(self, member: str, said: Batches = (), **fields: Any) -> list[tuple[int, int, int]]:
        """First and last offset of what has come, and its delivery count."""
        answer = await self.ask(member, said, **fields)
        assert answer.error_code == ErrorCode.NONE, answer
        rows = [row for topic in answer.responses for row in topic.partitions]
        for row in rows:
            assert (row.error_code, row.acknowledge_error_code) == (0, 0), row
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for row in rows
            for one in row.acquired_records
        ]

    async def acknowledge(self, member: str, said: Batches, **fields: Any) -> Any:
        """A ShareAcknowledge: the code of its partition, or of all of it."""
        epoch = self.epochs[member]
        batches = [
            share_acknowledge.AcknowledgementBatch(first, last, list(kinds)) for first, last, kinds in said
        ]
        topic = share_acknowledge.AcknowledgeTopic(
            self.topic_id, [share_acknowledge.AcknowledgePartition(0, batches)]
        )
        request = ShareAcknowledgeRequest("g", member, epoch, topics=[topic])
        for name, value in fields.items():
            setattr(request, name, value)
        answer = await self.client.ask("share_acknowledge", self.version, request)
        if answer.error_code:
            return answer.error_code
        self.epochs[member] = epoch + 1
        (row,) = answer.responses[0].partitions
        return row.error_code

    async def stored(self) -> Cursor:
        """What would be there after a kill."""
        rows = await self.client.metadata.scan("/cursors/g/")
        (cursor,) = [Cursor.decode(one.value) for _, one in rows]
        return cursor

    async def until_stored(self, holds: Callable[[Cursor], bool]) -> None:
        """Return when this is true of what is stored; positions are stored once a second."""
        async with asyncio.timeout(60):
            while not holds(await self.stored()):  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0.05)

    async def lag(self) -> int:
        request = DescribeShareGroupOffsetsRequest([RequestGroup("g", None)])
        (group,) = (await self.client.ask("describe_share_group_offsets", 1, request)).groups
        assert group.error_code == ErrorCode.NONE, group
        return group.topics[0].partitions[0].lag  # type: ignore[no-any-return]


def joins(**changes: Any) -> ShareGroupHeartbeatRequest:
    request = ShareGroupHeartbeatRequest("g", "m", 0, None, ["t"])
    for name, value in changes.items():
        setattr(request, name, value)
    return request
