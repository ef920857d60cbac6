"""The layout of a topic, as clients of Pulsar 5 (V5) want it, and the watchers that tell them when it changes.

V5 clients know topics made of segments.  For any other topic, PIP-475 has a layout in which each partition is a
segment.  Clients use such a topic by its own name as other clients do, and hash keys in the same way.  Segments have
the numbers of their partitions.  A topic without partitions is one segment.

A list of segments is encoded in pieces, with turns of the event loop between them.  The epoch of a layout is the count
of partitions, which only grows.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from magnetar.base.clock import TimerHandle
from magnetar.base.errors import BrokerError
from magnetar.base.lane import cut
from magnetar.base.names import parse_partition
from magnetar.base.varint import varint
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.protocols.pulsar.topic_lists import NAME_BYTES
from magnetar.wire.pulsar.commands import frame_in_parts
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandScalableTopicUpdate,
    ScalableAssignedSegment,
    ScalableConsumerAssignment,
    ScalableTopicDAG,
    SegmentInfoProto,
)

UPDATE_DELAY_S: Final = 0.05  # partitions that come together are one update
HASHES: Final = 1 << 16
_LENGTH_DELIMITED: Final = 2  # protobuf's wire type of a message

# Tells the client of a watcher how many partitions its topic has.
Send: TypeAlias = "Callable[[LayoutWatcher, int], Awaitable[None]]"


def hash_range(index: int, count: int) -> tuple[int, int]:
    """First and last hash of one of `count` segments: equal parts of all hashes, in order."""
    return index * HASHES // count, (index + 1) * HASHES // count - 1


class LayoutWatcher:
    """One client that has asked for the layout of a topic, and learns when it has more partitions.

    A client that may no longer describe the topic learns nothing more.  `answer` must be awaited; until then, and while
    an update is made, changes are only noted.

    Raises:
        InvalidTopicName
    """

    def __init__(self, session: PulsarSession, topic: str, send: "Send") -> None:
        """`send` is awaited to tell the client of another count of partitions."""
        self.session = session
        self.name, self._index = parse_partition(topic)
        self._topic = topic
        self._send = send
        self._count = 0
        self._timer: TimerHandle | None = None
        self._is_telling = True
        self._is_due = False
        self._is_over = False

    @property
    def resolved(self) -> str:
        """The topic as V5 clients call it."""
        return f"topic://{self._full.partition('://')[2]}"

    async def answer(self, send: "Send") -> None:
        """Await `send` with the count of partitions, and report changes from then on.  The topic may be created for it.

        Raises:
            as `PulsarTopicCases.watch_partitions`
        """
        if self._is_over:
            return
        watch = self.session.cases.pulsar_topics.watch_partitions
        self._count = await watch(self.session.caller, self._topic, self.changed)
        await self._told(send)

    def segments(self, count: int) -> list[tuple[int, str]]:
        """Number and topic of each segment, if the topic has `count` partitions (0: it is not partitioned)."""
        if count == 0:
            return [(0, self._full)]
        return [(index, self.name.partition_name(index)) for index in range(count)]

    @property
    def _full(self) -> str:
        return self.name.full if self._index < 0 else self.name.partition_name(self._index)

    def changed(self, gone: Sequence[str], came: Sequence[str]) -> None:
        if self._index < 0 and came:
            self._is_due = True
            self._tell_soon()

    def _tell_soon(self) -> None:
        if self._is_due and self._timer is None and not self._is_telling and not self._is_over:
            self._timer = self.session.service.clock.call_later(UPDATE_DELAY_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._is_due = False
        try:
            count = self.session.cases.pulsar_topics.partition_count(self.session.caller, self._topic)
        except BrokerError:
            return  # the topic has gone, or the right to know of it, which a client learns when it asks again
        if count != self._count:
            self._count = count
            self._is_telling = True
            self.session.service.tasks.spawn("an update of a layout", self._told(self._send))

    async def _told(self, send: "Send") -> None:
        if not self._is_over:
            await send(self, self._count)
        self._is_telling = False
        self._tell_soon()

    def connection_lost(self) -> None:
        self._is_over = True
        self.session.cases.pulsar_topics.unwatch_partitions(self._topic, self.changed)
        if self._timer is not None:
            self._timer.cancel()

    def close_notice(self) -> None:
        return None


async def send_layout(watcher: LayoutWatcher, session_id: int, count: int) -> None:
    """Send a SCALABLE_TOPIC_UPDATE with the layout of a topic of `count` partitions."""
    front = CommandScalableTopicUpdate(session_id=session_id, resolved_topic_name=watcher.resolved)
    found = watcher.segments(count)

    def encode(some: Sequence[tuple[int, str]]) -> bytes:
        return ScalableTopicDAG(
            segments=[
                SegmentInfoProto(
                    segment_id=index,
                    hash_start=first,
                    hash_end=last,
                    state=SegmentInfoProto.ACTIVE,
                    created_at_epoch=0,
                    created_at_ms=0,
                    legacy_topic_name=topic,
                )
                for index, topic in some
                for first, last in [hash_range(index, len(found))]
            ]
        ).SerializePartialToString()

    inner = ScalableTopicDAG(epoch=count)
    await _send(watcher, BaseCommand.SCALABLE_TOPIC_UPDATE, front, "dag", inner, found, encode)


async def send_assignment(watcher: LayoutWatcher, kind: "BaseCommand.Type", front: Any, count: int) -> None:
    """Send the command `front` of type `kind`, by which a stream consumer gets all segments of a topic."""
    found = watcher.segments(count)

    def encode(some: Sequence[tuple[int, str]]) -> bytes:
        return ScalableConsumerAssignment(
            segments=[
                ScalableAssignedSegment(
                    segment_id=index, hash_start=first, hash_end=last, segment_topic=topic
                )
                for index, topic in some
                for first, last in [hash_range(index, len(found))]
            ]
        ).SerializePartialToString()

    inner = ScalableConsumerAssignment(layout_epoch=count)
    await _send(watcher, kind, front, "assignment", inner, found, encode)


async def _send(
    watcher: LayoutWatcher,
    kind: "BaseCommand.Type",
    front: Any,
    field: str,
    inner: Any,
    segments: Sequence[tuple[int, str]],
    encode: Callable[[Sequence[tuple[int, str]]], bytes],
) -> None:
    """Send `front` with `inner` in its field, to which `encode` adds segments.

    That field comes once: Java takes the last one of several, where protobuf would put them together.
    """
    session = watcher.session
    body = [inner.SerializeToString()]
    async with session.service.memory.objects(0, len(segments) * NAME_BYTES):
        await session.service.lane.each(cut(segments), lambda some: body.append(encode(some)))
        number = front.DESCRIPTOR.fields_by_name[field].number
        head = varint(number << 3 | _LENGTH_DELIMITED) + varint(sum(map(len, body)))
        parts = frame_in_parts(kind, [front.SerializePartialToString(), head, *body])
        session.send_parts([*parts], sum(map(len, parts)))
