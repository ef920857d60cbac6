"""Positions of share groups: administrators show, move and delete them.

The right to the group comes first, then the right to each topic: a refused topic does not stop the others.  Positions
are the cursors of the subscription with the group's name.  No client can move them while the group has members, or
the subscription has consumers of either protocol in one of the topics.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, kept
from magnetar.base.names import TopicName
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import GroupState
from magnetar.broker.groups.share.group import ShareGroup
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.model import Caller, Operation, group_resource, subscription_resource
from magnetar.broker.topics.topic import Topic
from magnetar.broker.usecases.known_groups import KnownGroups
from magnetar.broker.usecases.topic_access import TopicAccess
from magnetar.ledger.cursor import OFFSET_MAX, Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore

CursorOf: TypeAlias = Callable[[CursorKey], Cursor | None]


class SharePosition(NamedTuple):
    """Where a group is in a partition, and how many records it has not acknowledged; -1 if it has not begun."""

    partition: int
    offset: int
    leader_epoch: int
    lag: int


class ChangedTopic(NamedTuple):
    """A topic whose positions were changed, with the error of each partition that the client named."""

    topic_id: bytes
    partitions: Mapping[int, BrokerError | None]


class ShareOffsetCases:
    """See the module's text.  `node` is the node that the client asked."""

    def __init__(
        self,
        topic_access: TopicAccess,
        nodes: Nodes,
        groups: GroupCoordinator,
        cursors: CursorStore,
        clock: Clock,
        known: KnownGroups,
    ) -> None:
        self._topic_access = topic_access
        self._access = topic_access.access
        self._topics = topic_access.topics
        self._known = known
        self._nodes = nodes
        self._groups = groups
        self._cursors = cursors
        self._clock = clock

    def check_describe(self, caller: Caller, node: Node, group_id: str) -> None:
        """Check that the caller may see the group's positions.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.DESCRIBE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)

    def is_one(self, group_id: str) -> bool:
        """Whether there is such a share group."""
        return isinstance(self._groups.find(group_id), ShareGroup)

    def every_topic(self, caller: Caller, group_id: str) -> list[tuple[str, list[int]]]:
        """The full names and partitions of the topics in which the group has positions, as far as the caller may know.

        Raises:
            EntryCorrupt
        """
        found = []
        for full, cursors in self._cursors.subscription(group_id).items():
            topic = self._topics.find(TopicName.parse(full))
            if (
                topic is not None
                and self._access.permits(caller, Operation.DESCRIBE, topic.resource)
                and self._known.is_shown_in(caller, group_id, full)
            ):
                found.append((full, sorted(cursors)))
        return found

    def describe(
        self, caller: Caller, group_id: str, name: str, partitions: Sequence[int]
    ) -> tuple[bytes, list[SharePosition | BrokerError]]:
        """A topic's id, and the group's position in each of these partitions, or why there is none.  Where the caller
        may not know of the group's positions, it has not begun.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        topic = self._topic_access.get(caller, Operation.DESCRIBE, name)
        full = topic.name.full
        cursor_of = self._cursors.get if self._known.is_shown_in(caller, group_id, full) else _no_cursor
        return topic.topic_id, [self._position(cursor_of, group_id, topic, index) for index in partitions]

    def _position(
        self, cursor_of: CursorOf, group_id: str, topic: Topic, index: int
    ) -> SharePosition | BrokerError:
        try:
            partition = topic.partition(index)
            cursor = cursor_of(CursorKey(group_id, topic.name.full, index))
        except BrokerError as error:
            return kept(error)
        if cursor is None:
            return SharePosition(index, -1, 0, -1)
        log = partition.log
        offset = max(cursor.mark_delete, log.log_start)
        return SharePosition(
            index, offset, log.epoch_at(offset), cursor.backlog(log.high_watermark, log.log_start)
        )

    # --- changes -----------------------------------------------------------------------------------------------------

    async def alter(
        self, caller: Caller, node: Node, group_id: str, moves: Mapping[str, Mapping[int, int]]
    ) -> GroupError | list[ChangedTopic | BrokerError]:
        """Move a group's positions: topics, as the client names them, with partitions and offsets.

        Returns the error of the whole request; or for each topic what was done, durably, or why it is refused.

        Raises:
            GroupNotAuthorized, NotCoordinator
            MetadataError: nothing is moved.
            EntryCorrupt: the group's positions are damaged.
        """
        topics = self._to_change(caller, node, Operation.READ, group_id, moves)
        if isinstance(topics, GroupError):
            return topics
        cursors: dict[CursorKey, Cursor] = {}
        answers: list[ChangedTopic | BrokerError] = []
        for topic, offsets in zip(topics, moves.values(), strict=True):
            if isinstance(topic, BrokerError):
                answers.append(topic)
                continue
            problems = {
                index: self._moved(cursors, group_id, topic, index, at) for index, at in offsets.items()
            }
            answers.append(ChangedTopic(topic.topic_id, problems))
        if cursors:
            async with self._record(caller, Change.GROUP_SET_OFFSETS, group_id, cursors):
                await self._cursors.commit(cursors)
        return answers

    async def delete(
        self, caller: Caller, node: Node, group_id: str, names: Sequence[str]
    ) -> GroupError | list[ChangedTopic | BrokerError]:
        """Delete a group's positions in topics, as the client names them.

        Returns and raises as `alter`.
        """
        topics = self._to_change(caller, node, Operation.DELETE, group_id, names)
        if isinstance(topics, GroupError):
            return topics
        known = self._cursors.subscription(group_id)
        keys = [
            CursorKey(group_id, topic.name.full, index)
            for topic in topics
            if not isinstance(topic, BrokerError)
            for index in known.get(topic.name.full, ())
        ]
        if keys:
            async with self._record(caller, Change.GROUP_DELETE_OFFSETS, group_id, keys):
                await self._cursors.drop(keys)
        return [
            topic if isinstance(topic, BrokerError) else ChangedTopic(topic.topic_id, {}) for topic in topics
        ]

    def _to_change(
        self, caller: Caller, node: Node, operation: Operation, group_id: str, names: Iterable[str]
    ) -> GroupError | list[Topic | BrokerError]:
        self._access.require(caller, operation, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        topics = [self._topic(caller, operation, group_id, name) for name in names]
        if topics and all(isinstance(topic, BrokerError) for topic in topics):
            return topics  # a caller that may change nothing learns nothing of the group
        group = self._groups.find(group_id)
        if not isinstance(group, ShareGroup):
            return GroupError.GROUP_ID_NOT_FOUND
        is_free = group.state is GroupState.EMPTY and not any(
            self._cursors.is_in_use(CursorKey(group_id, topic.name.full, index))
            for topic in topics
            if not isinstance(topic, BrokerError)
            for index in range(topic.partition_count)
        )
        return topics if is_free else GroupError.NON_EMPTY_GROUP

    def _topic(self, caller: Caller, operation: Operation, group_id: str, name: str) -> Topic | BrokerError:
        try:
            topic = self._topic_access.get(caller, Operation.READ, name)
            # It may be kept for others, where the topic is of another namespace.
            self._access.require(caller, operation, subscription_resource(topic.name.full, group_id))
        except BrokerError as refusal:
            return kept(refusal)
        return topic

    def _moved(
        self, cursors: dict[CursorKey, Cursor], group_id: str, topic: Topic, index: int, offset: int
    ) -> BrokerError | None:
        if not 0 <= index < topic.partition_count:
            return UnknownTopic("There is no such partition.")
        key = CursorKey(group_id, topic.name.full, index)
        before = self._cursors.get(key)
        cursor = Cursor() if before is None else before.copy()
        cursor.reset(min(max(offset, 0), OFFSET_MAX))
        cursor.commit_timestamp_ms = self._clock.now_ms()
        cursors[key] = cursor
        return None

    def _record(self, caller: Caller, change: Change, group_id: str, keys: Iterable[CursorKey]) -> Recording:
        names = [f"{key.topic}-{key.partition}" for key in keys]
        return self._access.record(caller, change, group_resource(group_id), partitions=names)


def _no_cursor(key: CursorKey) -> None:
    """What a caller sees that may not know of the group's positions in a topic."""
