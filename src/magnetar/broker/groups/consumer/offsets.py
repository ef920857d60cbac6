"""Whether a member of the consumer protocol may commit or fetch offsets, by its epoch (KIP-848, KIP-1251)."""

from magnetar.broker.groups.consumer.assignors import TopicId
from magnetar.broker.groups.consumer.group import ConsumerGroup
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest


def check_commit(group: ConsumerGroup, request: CommitRequest, *, in_transaction: bool = False) -> GroupError:
    """The reason to refuse a commit as a whole; `may_commit` then checks each partition."""
    if request.generation < 0 and not group.members:
        return GroupError.NONE  # an administrator, or a client that assigns itself
    member = group.members.get(request.member_id)
    if member is None:
        return GroupError.UNKNOWN_MEMBER_ID
    if member.classic is not None:
        matches = request.generation == member.epoch
        return GroupError.NONE if matches else GroupError.ILLEGAL_GENERATION
    if not request.knows_epochs and not in_transaction:
        return GroupError.UNSUPPORTED_VERSION
    if not 0 <= request.generation <= member.epoch:
        return GroupError.STALE_MEMBER_EPOCH
    return GroupError.NONE


def may_commit(group: ConsumerGroup, request: CommitRequest, topic: TopicId, partition: int) -> bool:
    """Whether a member may commit an offset: with an epoch lower than its present one, only if it has held the
    partition since then.
    """
    member = group.members.get(request.member_id)
    if member is None or request.generation == member.epoch:
        return True
    since = member.holds_since(topic, partition)
    return since is not None and since <= request.generation


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> GroupError:
    """The reason to refuse a fetch.  A client that sends neither id nor epoch is no member, and may fetch."""
    if member_id is None and epoch < 0:
        return GroupError.NONE
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        return GroupError.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return GroupError.NONE
    return GroupError.STALE_MEMBER_EPOCH if member.classic is None else GroupError.ILLEGAL_GENERATION
