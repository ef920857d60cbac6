"""Committed offsets: Kafka's OffsetCommit, OffsetFetch and OffsetDelete over the cursors of a subscription.

A committed offset is the mark-delete of the cursor of (group, topic, partition).  So a Pulsar client of a
subscription with the same name sees it, and a Kafka client sees that subscription's position.  All offsets of a
request become durable in one step.

While Pulsar consumers of that subscription are connected, only they move the cursor.  A commit gets UNKNOWN_MEMBER_ID.
Kafka gives this error to a client that is not a member while a group has members, and a client learns from it that it
has lost the partition.  OffsetDelete gets GROUP_SUBSCRIBED_TO_TOPIC.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from magnetar.base.clock import Clock
from magnetar.base.errors import EntryCorrupt, MetadataError
from magnetar.broker.groups.catalogue import TopicCatalogue
from magnetar.broker.groups.commits import check_commit, check_fetch, may_commit
from magnetar.broker.groups.consumer.group import AssignedGroup, ConsumerGroup
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group
from magnetar.broker.groups.model import NO_MEMBER, CommitRequest, GroupState, OffsetToCommit
from magnetar.broker.groups.moves import OFFSETS_AT_ONCE, Moves, moved
from magnetar.broker.groups.rebalance import Rebalancer
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.groups.streams.group import StreamsGroup
from magnetar.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore

log: Final = logging.getLogger(__name__)

AnyGroup: TypeAlias = Group | AssignedGroup | StreamsGroup
Partition = tuple[str, int]  # topic's full name, partition


class GroupFinder(Protocol):
    def find(self, group_id: str) -> AnyGroup | None: ...


class GroupOffsets:
    def __init__(
        self,
        groups: GroupFinder,
        rebalancer: Rebalancer,
        clock: Clock,
        cursors: CursorStore,
        catalogue: TopicCatalogue,
        settings: GroupSettings,
    ) -> None:
        self._groups = groups
        self._rebalancer = rebalancer
        self._clock = clock
        self._cursors = cursors
        self.catalogue = catalogue
        self._settings = settings

    # OffsetCommit

    def commit(self, request: CommitRequest) -> Coroutine[Any, Any, list[GroupError]]:
        """Check the request against the group now; the coroutine returns one answer for each offset once they are
        durable.
        """
        error = self._check_commit(request)
        if error is not GroupError.NONE:
            return _refused(request, error)
        errors: list[GroupError] = []
        cursors: dict[CursorKey, Cursor] = {}
        now_ms = self._clock.now_ms()
        expires_ms = None if request.retention_ms is None else now_ms + request.retention_ms
        try:
            for wanted in request.offsets:
                error = self._check_offset(request.group_id, wanted)
                if error is GroupError.NONE and self._is_stale(request, wanted):
                    error = GroupError.STALE_MEMBER_EPOCH
                errors.append(error)
                if error is GroupError.NONE:
                    key = CursorKey(request.group_id, wanted.topic, wanted.partition)
                    cursors[key] = moved(self._cursors.newest(key), wanted, now_ms, expires_ms)
            written = self._cursors.submit(cursors)
        except EntryCorrupt as damage:
            log.error("the server refuses a commit of group %r: %s", request.group_id, damage)
            return _refused(request, GroupError.KAFKA_STORAGE_ERROR)
        return _answered(errors, written)

    # The two halves of a commit in a transaction: it is checked now, and takes effect when the transaction commits.

    async def check_transactional(
        self, request: CommitRequest
    ) -> tuple[list[GroupError], dict[Partition, OffsetToCommit]]:
        """The error of each offset of a TxnOffsetCommit, and the offsets without one, each with the topic that has the
        name now.  It writes nothing, and lets other work of the loop run in between.

        Unlike an ordinary commit it may come without a member, because before KIP-447 a producer did not know members.
        It may also come during a rebalance: the consumer was a member when it passed its offsets to the producer.  If
        an epoch is too low, or a group is gone, its clients expect ILLEGAL_GENERATION.
        """
        checks_member = (request.member_id, request.generation, request.group_instance_id) != (
            NO_MEMBER,
            -1,
            None,
        )
        if checks_member:
            error = self._check_commit(request, in_transaction=True)
            if error in (GroupError.STALE_MEMBER_EPOCH, GroupError.GROUP_ID_NOT_FOUND):
                error = GroupError.ILLEGAL_GENERATION
            if error not in (GroupError.NONE, GroupError.REBALANCE_IN_PROGRESS):
                return [error] * len(request.offsets), {}
        errors: list[GroupError] = []
        good: dict[Partition, OffsetToCommit] = {}
        for number, wanted in enumerate(request.offsets, 1):
            if number % OFFSETS_AT_ONCE == 0:
                await asyncio.sleep(0)
            error = self._check_offset(request.group_id, wanted)
            if error is GroupError.NONE and checks_member and self._is_stale(request, wanted):
                error = GroupError.ILLEGAL_GENERATION
            errors.append(error)
            if error is GroupError.NONE:
                topic_id = self._cursors.identity(wanted.topic)
                good[wanted.topic, wanted.partition] = replace(wanted, topic_id=topic_id)
        return errors, good

    async def moves(self, offsets: Mapping[str, Iterable[OffsetToCommit]]) -> Moves:
        """What is to be written for a transaction that commits `offsets`, by group.

        Raises:
            EntryCorrupt: the stored cursors of a group are damaged.
        """
        moves = Moves(self._cursors, self.catalogue.exists, self._clock.now_ms())
        for group_id, rows in offsets.items():
            await moves.prepare(group_id, rows)
        return moves

    def _check_commit(self, request: CommitRequest, *, in_transaction: bool = False) -> GroupError:
        group = self._groups.find(request.group_id)
        outside = request.generation < 0
        if group is None:
            # Clients of later versions may use either protocol, and know both errors.
            missing = GroupError.GROUP_ID_NOT_FOUND if request.knows_epochs else GroupError.ILLEGAL_GENERATION
            return GroupError.NONE if outside else missing
        if isinstance(group, ConsumerGroup | StreamsGroup):
            return check_commit(group, request, in_transaction=in_transaction)
        if isinstance(group, AssignedGroup):
            return (
                GroupError.GROUP_ID_NOT_FOUND
            )  # its members acknowledge, and another request sets its offsets
        if outside and group.state is GroupState.EMPTY:
            return GroupError.NONE
        if outside and request.member_id == NO_MEMBER and request.group_instance_id is None:
            return GroupError.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not GroupError.NONE:
            return error
        if request.generation != group.generation:
            return GroupError.ILLEGAL_GENERATION
        if group.state is GroupState.COMPLETING_REBALANCE:
            return GroupError.REBALANCE_IN_PROGRESS
        self._rebalancer.touch(group, request.member_id)
        return GroupError.NONE

    def _is_stale(self, request: CommitRequest, wanted: OffsetToCommit) -> bool:
        group = self._groups.find(request.group_id)
        found = self.catalogue.found(wanted.topic)
        return (
            isinstance(group, ConsumerGroup | StreamsGroup)
            and found is not None
            and not may_commit(group, request, wanted.topic, found[0], wanted.partition)
        )

    def _check_offset(self, group_id: str, wanted: OffsetToCommit) -> GroupError:
        if not self.catalogue.exists(wanted.topic, wanted.partition):
            return GroupError.UNKNOWN_TOPIC_OR_PARTITION
        limit = self._settings.offset_metadata_max_bytes
        if len(wanted.metadata) > limit or len(wanted.metadata.encode()) > limit:
            return GroupError.OFFSET_METADATA_TOO_LARGE
        if self._cursors.is_in_use(CursorKey(group_id, wanted.topic, wanted.partition)):
            return GroupError.UNKNOWN_MEMBER_ID
        return GroupError.NONE

    # OffsetFetch

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> GroupError:
        """Whether a member may fetch: one of a group with epochs only with the epoch that it has."""
        group = self._groups.find(group_id)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            return check_fetch(group, member_id, epoch)
        return GroupError.GROUP_ID_NOT_FOUND if isinstance(group, AssignedGroup) else GroupError.NONE

    def fetch(self, group_id: str, partitions: Sequence[Partition]) -> tuple[GroupError, list[Cursor | None]]:
        """The committed cursors of `partitions`, in order; None for a partition without a commit."""
        try:
            return GroupError.NONE, [self._cursors.get(CursorKey(group_id, *key)) for key in partitions]
        except EntryCorrupt as damage:
            log.error("the server cannot serve offsets of group %r: %s", group_id, damage)
            return GroupError.KAFKA_STORAGE_ERROR, []

    def fetch_all(self, group_id: str) -> tuple[GroupError, Mapping[str, Mapping[int, Cursor]]]:
        """All committed cursors of a group, as topic -> partition -> cursor."""
        try:
            return GroupError.NONE, self._cursors.subscription(group_id)
        except EntryCorrupt as damage:
            log.error("the server cannot serve offsets of group %r: %s", group_id, damage)
            return GroupError.KAFKA_STORAGE_ERROR, {}

    # OffsetDelete

    async def delete(
        self, group_id: str, partitions: Sequence[Partition]
    ) -> tuple[GroupError, list[GroupError]]:
        """Delete committed offsets: the error of the whole request, and one answer for each partition."""
        group = self._groups.find(group_id)
        if group is None or (isinstance(group, AssignedGroup) and not isinstance(group, ConsumerGroup)):
            return GroupError.GROUP_ID_NOT_FOUND, []
        tells_topics = isinstance(group, StreamsGroup) or group.protocol_type == CONSUMER_PROTOCOL_TYPE
        if group.state is not GroupState.EMPTY and not tells_topics:
            return GroupError.NON_EMPTY_GROUP, []
        errors = [self._check_delete(group, *key) for key in partitions]
        keys = [
            CursorKey(group_id, *key)
            for key, error in zip(partitions, errors, strict=True)
            if error is GroupError.NONE
        ]
        try:
            await self._cursors.drop(keys)
        except MetadataError as failure:
            log.warning("the server could not delete offsets of group %r: %s", group_id, failure)
            return GroupError.COORDINATOR_NOT_AVAILABLE, []
        except EntryCorrupt as damage:
            log.error("the server cannot delete offsets of group %r one by one: %s", group_id, damage)
            return GroupError.KAFKA_STORAGE_ERROR, []
        return GroupError.NONE, errors

    def _check_delete(self, group: AnyGroup, topic: str, partition: int) -> GroupError:
        if not self.catalogue.exists(topic, 0):
            return GroupError.UNKNOWN_TOPIC_OR_PARTITION
        is_used = self._cursors.is_in_use(CursorKey(group.group_id, topic, partition))
        if is_used or group.is_subscribed_to(topic):
            return GroupError.GROUP_SUBSCRIBED_TO_TOPIC
        return GroupError.NONE


async def _refused(request: CommitRequest, error: GroupError) -> list[GroupError]:
    return [error] * len(request.offsets)


async def _answered(errors: list[GroupError], written: "asyncio.Future[None]") -> list[GroupError]:
    try:
        await written
    except MetadataError as failure:
        log.warning("the server could not commit offsets: %s", failure)
        failed = GroupError.COORDINATOR_NOT_AVAILABLE
        return [failed if error is GroupError.NONE else error for error in errors]
    return errors
