"""Whose rights decide what a member of a group gets, where the server assigns.

Members with the same rights share what is found for them.  Rules may name hosts: then two members of one principal at
two hosts may see different topics, and share nothing.  Where no rule names a host they share, however many hosts there
are, because a pattern would be resolved, and what it finds kept, once for each of them.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from magnetar.broker.security.model import ANONYMOUS

ViewerKey: TypeAlias = tuple[str, str]

NAMELESS: Final = frozenset(("", f"{ANONYMOUS} "))  # owners that may be several clients


class Viewer(NamedTuple):
    """A client, as its request shows it.

    `owner` names it.  `host` is its address; empty if no rule named a host when it asked.  `may_see` says whether it
    may see a topic, by full name.  `is_current` says whether `host` is still what a request would give now, or says
    more: if not, the server cannot distinguish the client from others before it asks again.
    """

    owner: str
    host: str
    may_see: Callable[[str], bool]
    is_current: Callable[[], bool]

    @property
    def key(self) -> ViewerKey:
        """Viewers with equal keys have the same rights."""
        return self.owner, self.host

    @property
    def shares_as(self) -> str | None:
        """Its owner, for what each owner has a share of; None if clients need not log in."""
        return None if self.owner in NAMELESS else self.owner
