"""The topics to which members subscribe, and which of them their client may see.

A member may subscribe to any name, because a classic member says its names to the other members and not to the server,
and because rights change.  It gets only topics that its client may see; changes of other topics are no changes of its
group.  So the server checks rights when it learns of a subscription, and again when they have changed, some names in
each step.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from magnetar.broker.groups.consumer.patterns import Pattern, PatternKey
from magnetar.broker.groups.viewer import Viewer, ViewerKey

NAME_OVERHEAD_BYTES: Final = 400  # what a name of a subscription costs besides its letters
_ASKED_AT_ONCE: Final = 256  # rights that are asked for before others have their turn

SubscriptionKey: TypeAlias = tuple[tuple[str, ...], ViewerKey, PatternKey | None]


class Subscription:
    """Members of a group with equal subscriptions, and the same rights, share one object.

    `names` are as clients write them; `topics` are full names, in the same order; `pattern` adds the topics that it
    finds.  `seen` are those of `topics` that the `viewer` might see when its rights were last asked for, at the change
    `asked_at` of rights; -1: they were not.
    """

    __slots__ = (
        "asked_at",
        "names",
        "pattern",
        "seen",
        "size_bytes",
        "topics",
        "users",
        "viewer",
    )

    def __init__(
        self, names: tuple[str, ...], topics: tuple[str, ...], pattern: Pattern | None, viewer: Viewer
    ) -> None:
        self.names = names
        self.topics = topics
        self.pattern = pattern
        self.viewer = viewer
        self.seen: tuple[str, ...] = ()
        self.asked_at = -1
        self.size_bytes = subscription_size(names)
        self.users = 0

    @property
    def key(self) -> SubscriptionKey:
        return self.names, self.viewer.key, None if self.pattern is None else self.pattern.key

    @property
    def all_topics(self) -> Iterable[str]:
        """Those that the client may see."""
        return self.seen if self.pattern is None else {*self.seen, *self.pattern.topics}

    def trust(self, rights_changes: int) -> None:
        """The client might see all of `topics` at this change of rights."""
        self.seen, self.asked_at = self.topics, rights_changes

    def ask(self, rights_changes: int) -> Iterator[None]:
        """Ask for the rights, some of them in each step; `seen` is new after the last one."""
        seen: list[str] = []
        for start in range(0, len(self.topics), _ASKED_AT_ONCE):
            seen += filter(self.viewer.may_see, self.topics[start : start + _ASKED_AT_ONCE])
            yield
        self.seen, self.asked_at = tuple(seen), rights_changes


def subscription_size(names: Iterable[str]) -> int:
    """How many bytes a subscription counts as."""
    return sum(2 * len(name) + NAME_OVERHEAD_BYTES for name in names)
