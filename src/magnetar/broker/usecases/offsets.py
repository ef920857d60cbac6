"""Committed offsets of Kafka's groups: commit, fetch, delete.

The right to the group comes first, then the right to each topic: a refused topic does not stop the others.  A client
names a topic by name or by id; the result has its full name, or the reason for the refusal.  A name without a topic
is no error here: the group refuses each of its partitions.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol, TypeAlias

from magnetar.base.errors import BrokerError, kept
from magnetar.base.names import TopicName
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest
from magnetar.broker.groups.offsets import GroupOffsets
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    Caller,
    Operation,
    group_resource,
    subscription_resource,
    topic_resource,
    transactional_id_resource,
)
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.transactions.coordinator import TransactionCoordinator
from magnetar.broker.usecases.known_groups import KnownGroups

TopicKey: TypeAlias = str | bytes  # as a client names it, or its id
Found: TypeAlias = str | BrokerError  # a topic's full name, or why it is refused


class CommittedOffset(Protocol):
    """What a group has committed for a partition, as of now; as `Cursor`."""

    @property
    def committed_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def metadata(self) -> str: ...


class CommittedTopic(NamedTuple):
    """What a group has committed in one topic, by partition; None where only an open transaction has offsets."""

    name: str  # full
    topic_id: bytes
    offsets: Mapping[int, CommittedOffset | None]


class Committed(NamedTuple):
    """All that a group has committed; `pending` are the partitions whose offset an open transaction may move."""

    error: GroupError
    offsets: Mapping[str, Mapping[int, CommittedOffset]] = {}
    pending: Set[tuple[str, int]] = frozenset()


class OffsetCases:
    """See the module's text.  `node` is the node that the client asked."""

    def __init__(
        self,
        access: AccessControl,
        nodes: Nodes,
        offsets: GroupOffsets,
        transactions: TransactionCoordinator,
        topics: TopicRegistry,
        kafka_topics: KafkaTopics,
        known: KnownGroups,
    ) -> None:
        self._access = access
        self._nodes = nodes
        self._offsets = offsets
        self._transactions = transactions
        self._topics = topics
        self._kafka_topics = kafka_topics
        self._known = known

    # --- commit ------------------------------------------------------------------------------------------------------

    def to_commit(self, caller: Caller, node: Node, group_id: str, topics: Iterable[TopicKey]) -> list[Found]:
        """The topics for which a client commits offsets.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.READ, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        return [self._position(caller, Operation.READ, group_id, one) for one in topics]

    def commit(self, caller: Caller, request: CommitRequest) -> Coroutine[Any, Any, list[GroupError]]:
        """Commit offsets of the topics from `to_commit`: checked now, and answered one by one when they are durable."""
        answer = self._offsets.commit(request)
        return answer if request.member_id else self._commit_from_outside(caller, request, answer)

    async def _commit_from_outside(
        self, caller: Caller, request: CommitRequest, answer: Coroutine[Any, Any, list[GroupError]]
    ) -> list[GroupError]:
        # An administrator who sets offsets; or a consumer that takes no part in a group, which does it all the time.
        errors = await answer
        done = {one.topic for one, error in zip(request.offsets, errors, strict=True) if not error.value}
        for topic in done:
            resource = subscription_resource(topic, request.group_id)
            self._access.note_often(caller, Change.GROUP_SET_OFFSETS, resource)
        return errors

    def to_commit_in_transaction(
        self, caller: Caller, node: Node, transactional_id: str, group_id: str, topics: Iterable[TopicKey]
    ) -> list[Found]:
        """The topics for which a transaction commits a group's offsets; `TransactionCases.commit_offsets` commits
        them.

        Raises:
            TransactionalIdNotAuthorized, GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.WRITE, transactional_id_resource(transactional_id))
        return self.to_commit(caller, node, group_id, topics)

    # --- fetch -------------------------------------------------------------------------------------------------------

    def fetch(
        self,
        caller: Caller,
        node: Node,
        group_id: str,
        *,
        stable: bool,
        member_id: str | None = None,
        epoch: int = -1,
    ) -> Committed:
        """All that a group has committed; the caller sees the topics from `shown` and `every_shown`.

        `member_id` and `epoch` are those of a member of the consumer protocol.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.DESCRIBE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        error = self._offsets.check_fetch(group_id, member_id, epoch)
        if error is not GroupError.NONE:
            return Committed(error)
        error, cursors = self._offsets.fetch_all(group_id)
        if error is not GroupError.NONE:
            return Committed(error)
        return Committed(error, cursors, self._transactions.pending_offsets(group_id) if stable else set())

    def shown(self, caller: Caller, group_id: str, topic: TopicKey) -> Found | None:
        """A topic whose offsets the caller wants to see; None if the group has none there as far as it may know."""
        found = self._topic(caller, Operation.DESCRIBE, topic)
        if isinstance(found, str) and not self._known.is_shown_in(caller, group_id, found):
            return None
        return found

    def every_shown(self, caller: Caller, group_id: str, committed: Committed) -> Iterable[CommittedTopic]:
        """All existing topics that the caller may describe, and in which it may know where the group is."""
        rows: dict[str, dict[int, CommittedOffset | None]]
        rows = {full: dict(offsets) for full, offsets in committed.offsets.items()}
        for full, index in committed.pending:
            rows.setdefault(full, {}).setdefault(index, None)
        for full, offsets in rows.items():
            topic = self._topics.find(TopicName.parse(full))
            if (
                topic is not None
                and self._access.permits(caller, Operation.DESCRIBE, topic.resource)
                and self._known.is_shown_in(caller, group_id, full)
            ):
                yield CommittedTopic(full, topic.topic_id, offsets)

    # --- delete ------------------------------------------------------------------------------------------------------

    def to_delete(self, caller: Caller, node: Node, group_id: str, topics: Iterable[TopicKey]) -> list[Found]:
        """The topics whose offsets a client deletes from a group.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.DELETE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        return [self._position(caller, Operation.DELETE, group_id, one) for one in topics]

    async def delete(
        self, caller: Caller, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> tuple[GroupError, list[GroupError]]:
        """Delete offsets of the topics from `to_delete`.  Returns the error of the whole request, and an answer for
        each partition.
        """
        if not self._known.is_shown(caller, group_id):
            return GroupError.GROUP_ID_NOT_FOUND, []
        if not partitions:
            return await self._offsets.delete(group_id, partitions)
        resource = group_resource(group_id)
        names = [f"{full}-{index}" for full, index in partitions]
        async with self._access.record(
            caller, Change.GROUP_DELETE_OFFSETS, resource, partitions=names
        ) as recording:
            error, errors = await self._offsets.delete(group_id, partitions)
            found = next((one for one in (error, *errors) if one is not GroupError.NONE), None)
            if found is not None:
                recording.fails(found.name)
            return error, errors

    # --- topics ------------------------------------------------------------------------------------------------------

    def _position(self, caller: Caller, operation: Operation, group_id: str, wanted: TopicKey) -> Found:
        """A topic whose subscription with the group's name the caller may move, or delete: the subscription may hold
        messages for others.
        """
        if caller.pipeline and operation is Operation.READ and isinstance(wanted, str):
            full = self._kafka_topics.full_name_or_itself(wanted)
            if self._access.takes_notes(caller, group_id, full):
                return full  # there is nothing to read in it
        found = self._topic(caller, Operation.READ, wanted)
        if isinstance(found, str):
            try:
                self._access.require(caller, operation, subscription_resource(found, group_id))
            except BrokerError as refusal:
                return kept(refusal)
        return found

    def _topic(self, caller: Caller, operation: Operation, wanted: TopicKey) -> Found:
        try:
            if isinstance(wanted, bytes):
                topic = self._topics.get_by_id(wanted)
                self._access.require_unnamed(caller, operation, topic.resource)
                return topic.name.full
            full = self._kafka_topics.name(wanted).full
            self._access.require(caller, operation, topic_resource(full))
        except BrokerError as refusal:
            return kept(refusal)
        return full
