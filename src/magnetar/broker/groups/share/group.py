"""One share group: the state of `consumer/group.py`, but several members may have the same partition.

So no member has to release a partition before others get it: a member has its target as soon as it asks.
"""

from magnetar.broker.groups.consumer.group import PARTITION_BYTES, AssignedGroup, ConsumerMember, Held
from magnetar.broker.groups.model import GroupState


class ShareGroup(AssignedGroup):
    """See the module's text."""

    group_type = "share"
    protocol_type = "share"

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def hold(self, member: ConsumerMember, assigned: Held, revoking: Held) -> None:
        """Record the partitions from which the member fetches now; it need not release its previous ones."""
        grown = sum(map(len, assigned.values())) - sum(map(len, member.assigned.values()))
        self.memory.used += PARTITION_BYTES * grown
        member.assigned = assigned

    def offsets_kept_from_ms(self, committed_ms: int) -> int | None:
        """Offsets of share groups do not expire, as in Kafka."""
        return None
