"""Whether a member of a group with epochs may commit or fetch offsets, by its epoch (KIP-848, KIP-1251, KIP-1071)."""

from magnetar.broker.groups.consumer.assignors import TopicId
from magnetar.broker.groups.consumer.group import AssignedGroup, ConsumerMember
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest
from magnetar.broker.groups.streams.group import StreamsGroup, StreamsMember


def check_commit(
    group: AssignedGroup | StreamsGroup, request: CommitRequest, *, in_transaction: bool = False
) -> GroupError:
    """The reason to refuse a commit as a whole; `may_commit` then checks each partition."""
    if request.generation < 0 and not group.members:
        return GroupError.NONE  # an administrator, or a client that assigns itself
    member = group.members.get(request.member_id)
    if member is None:
        return GroupError.UNKNOWN_MEMBER_ID
    if _is_classic(member):
        matches = request.generation == member.epoch
        return GroupError.NONE if matches else GroupError.ILLEGAL_GENERATION
    if not request.knows_epochs and not in_transaction:
        return GroupError.UNSUPPORTED_VERSION
    if not 0 <= request.generation <= member.epoch:
        return GroupError.STALE_MEMBER_EPOCH
    return GroupError.NONE


def may_commit(
    group: AssignedGroup | StreamsGroup,
    request: CommitRequest,
    topic: str,
    topic_id: TopicId,
    partition: int,
) -> bool:
    """With an epoch that is behind its own a member may commit what it has held since then: the partition, or the task
    that reads it.
    """
    member = group.members.get(request.member_id)
    if member is None or request.generation == member.epoch:
        return True
    if isinstance(member, ConsumerMember):
        since = member.holds_since(topic_id, partition)
    else:
        assert isinstance(group, StreamsGroup), group.group_id
        task = group.task_of(topic, partition)
        since = None if task is None else member.has_active_since(task)
    return since is not None and since <= request.generation


def check_fetch(group: AssignedGroup | StreamsGroup, member_id: str | None, epoch: int) -> GroupError:
    """A client that sends neither id nor epoch is not a member, and may fetch."""
    if member_id is None and epoch < 0:
        return GroupError.NONE
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        return GroupError.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return GroupError.NONE
    return GroupError.ILLEGAL_GENERATION if _is_classic(member) else GroupError.STALE_MEMBER_EPOCH


def _is_classic(member: ConsumerMember | StreamsMember) -> bool:
    """Whether it speaks the classic protocol."""
    return isinstance(member, ConsumerMember) and member.classic is not None
