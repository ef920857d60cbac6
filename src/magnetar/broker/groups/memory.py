"""The memory that members of groups take, all together, and what each group takes of it.

A group belongs to the client that joined it while it had no members.  The groups of one principal have at most half of
what the groups of the others leave, so that the next member finds room.  A client that may choose the names of its
groups cannot keep all others from joining theirs.  Clients that need not log in have no owner, and all of it.
"""

from collections import Counter
from collections.abc import Sized
from typing import Protocol

from magnetar.broker.groups.settings import MEMBERS_BYTES_MAX, SMALL_MEMBER_BYTES
from magnetar.broker.groups.viewer import Viewer


class MembersMemory:
    """How much memory all members, and those that got an id and have not joined, take."""

    __slots__ = ("_of", "used")

    def __init__(self) -> None:
        self.used = 0
        self._of: Counter[str] = Counter()

    def has_room(self, size: int, owner: str | None = None) -> bool:
        """Whether groups of `owner` may use `size` bytes more."""
        if not size:
            return True
        limit = MEMBERS_BYTES_MAX if size <= SMALL_MEMBER_BYTES else MEMBERS_BYTES_MAX // 2
        if self.used + size > limit:
            return False
        own = 0 if owner is None else self._of[owner]
        return owner is None or own + size <= (MEMBERS_BYTES_MAX - self.used + own + 1) // 2

    def grow(self, owner: str | None, size: int) -> None:
        """Groups of `owner` use `size` bytes more, or less."""
        self.used += size
        if owner is not None:
            self._of[owner] += size
            if not self._of[owner]:
                del self._of[owner]


class GroupMemory:
    """What one group takes.  `owner` is None for a group of clients that need not log in."""

    __slots__ = ("_all", "_used", "owner")

    def __init__(self, of_all: MembersMemory) -> None:
        self._all = of_all
        self._used = 0
        self.owner: str | None = None

    @property
    def used(self) -> int:
        return self._used

    @used.setter
    def used(self, size: int) -> None:
        self._all.grow(self.owner, size - self._used)
        self._used = size

    def has_room(self, size: int) -> bool:
        """Whether the group may use `size` bytes more."""
        return self._all.has_room(size, self.owner)

    def belongs_to(self, owner: str | None) -> None:
        """The group is this client's from now on."""
        if owner != self.owner:
            self._all.grow(self.owner, -self._used)
            self._all.grow(owner, self._used)
            self.owner = owner


class Joined(Protocol):
    """What clients join."""

    @property
    def members(self) -> Sized: ...
    @property
    def has_pending_members(self) -> bool: ...
    @property
    def memory(self) -> GroupMemory: ...


def claim(group: Joined, viewer: Viewer) -> None:
    """`viewer` is about to join."""
    group.memory.belongs_to(owner_for(group, viewer))


def owner_for(group: Joined | None, viewer: Viewer) -> str | None:
    """Whose the group is once `viewer` has joined it, or has made it if there is none yet."""
    if group is None or not (group.members or group.has_pending_members):
        return viewer.shares_as
    return group.memory.owner
