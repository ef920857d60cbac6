"""The epochs of a group whose assignments the server makes: the server stores them ahead of their use.

What must stay true:

* `epoch` only grows, and never beyond `epochs_stored`, which is durable.  After a restart the group continues above
  `epochs_stored`, so no epoch means two things to a member that has lived through the restart;
* `assignment_epoch` never exceeds `epoch`.
"""

import asyncio
from typing import ClassVar, Final

from magnetar.broker.groups.memory import GroupMemory, MembersMemory

GROUP_OVERHEAD_BYTES: Final = 1536
FIRST_EPOCH: Final = 1


class EpochGroup:
    """See the module's text.  `epoch` is the last one that members may have got; the next one is greater."""

    group_type: ClassVar[str]
    protocol_type: ClassVar[str]
    has_pending_members: Final = False  # clients, or the door, make member ids

    def __init__(
        self, group_id: str, now_ms: int, *, epoch: int = 0, memory: MembersMemory | None = None
    ) -> None:
        self.group_id = group_id
        self.memory = GroupMemory(memory or MembersMemory())
        self.is_dead = False
        self.state_since_ms = now_ms  # since when it is empty, or has members
        self.epoch = max(epoch, FIRST_EPOCH)
        self.epochs_stored = epoch
        self.epochs_asked = epoch  # what is on its way to be stored
        self.storing: asyncio.Future[None] | None = None
        self.owes_epoch = False  # it has changed when there was none left
        self.assignment_epoch = self.epoch
        self.reconciled: set[str] = set()  # the members that have what they shall have at `assignment_epoch`
        self.assigned_at_s: float | None = None
        self.is_assigning = False  # on a thread

    @property
    def generation(self) -> int:
        """The last epoch that the group has asked the server to store."""
        return self.epochs_asked

    def _begin_assignment(self, epoch: int) -> None:
        """From `epoch` on the members shall have another assignment; none of them has it yet."""
        assert self.assignment_epoch <= epoch <= self.epoch, (self.assignment_epoch, epoch, self.epoch)
        self.assignment_epoch = epoch
        self.reconciled.clear()

    @property
    def can_bump(self) -> bool:
        """Whether the group may use its next epoch, because it is durable."""
        return self.epoch < self.epochs_stored

    def bump(self) -> None:
        """Begin the next epoch, because the group has changed; if none is durable, the group owes one."""
        self.owes_epoch = not self.can_bump
        if self.can_bump:
            self.epoch += 1
