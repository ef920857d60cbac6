"""Room that several owners share, and that one of them alone cannot fill.

One owner has at most half of what the others leave.  So the next owner finds room, however many came before: each owner
leaves at least as much as it takes.  Without an owner (None) there is no such limit: where clients need not log in, all
of them are one principal.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final

NO_OWNER: Final = None


class Shares:
    """See the module's text.  `most` is how much room there is."""

    __slots__ = ("_most", "_of", "used")

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: Counter[Hashable] = Counter()
        self.used = 0

    def room(self, owner: Hashable) -> int:
        """How much more the owner may have; less than none if it has too much already."""
        left = self._most - self.used
        if owner is NO_OWNER:
            return left
        own = self._of[owner]
        return min(left, (left + own + 1) // 2 - own)

    def of(self, owner: Hashable) -> int:
        """How much the owner has."""
        return self._of[owner]

    def take(self, owner: Hashable, size: int = 1) -> None:
        """Count this much for the owner, whether or not there is room for it."""
        self.used += size
        if owner is not NO_OWNER:
            self._of[owner] += size

    def give(self, owner: Hashable, size: int = 1) -> None:
        """What `take` counted is free again."""
        self.used -= size
        if owner is not NO_OWNER:
            self._of[owner] -= size
            if not self._of[owner]:
                del self._of[owner]
